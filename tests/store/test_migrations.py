"""The migrations make the tables that the code uses, on both databases."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect

from service.errors import DatabaseUnavailable, InvalidSetting
from service.store import engines
from service.store.engines import make_engine
from service.store.migrations import migrate
from service.store.tables import metadata


def test_the_migrations_make_exactly_the_tables_of_the_code(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_a_new_database_is_said_with_its_address_in_case_it_was_a_slip(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "advisor.database")
    for _ in range(2):
        made = make_engine(database_url)
        migrate(made)
        made.dispose()
    (said,) = [line for line in caplog.messages if line.startswith("database.made")]
    assert made.url.render_as_string() in said


def test_migrating_twice_changes_nothing(engine: Engine) -> None:
    migrate(engine)
    assert set(inspect(engine).get_table_names()) == {*metadata.tables, "alembic_version"}


def test_processes_may_migrate_at_once(database_url: str) -> None:
    engines = [make_engine(database_url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrate, engines))
    assert "advice" in inspect(engines[0]).get_table_names()
    for engine in engines:
        engine.dispose()


def test_migrating_leaves_nothing_in_the_working_directory(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    migrate(engine)
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("url", ["mysql://x/y", "no url", "sqlite+aiosqlite:///x", "postgresql+asyncpg://x/y"])
def test_another_database_is_refused_by_name(url: str) -> None:
    with pytest.raises(InvalidSetting, match="DATABASE_URL"):
        make_engine(url)


def test_a_database_that_does_not_answer_is_said_so_and_why_only_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = make_engine(f"postgresql://nobody@/none?host={tmp_path}")
    with pytest.raises(DatabaseUnavailable) as raised:
        migrate(engine)
    assert raised.value.detail == "the database does not answer"
    assert str(tmp_path) in caplog.text


def test_a_database_that_stays_locked_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_BUSY_SECONDS", 0.1)
    one, other = (make_engine(f"sqlite:///{tmp_path}/advisor.db") for _ in range(2))
    with one.connect() as holder:
        holder.execution_options(sqlite_begin="EXCLUSIVE").begin()
        with pytest.raises(DatabaseUnavailable):
            migrate(other)
    one.dispose()
    other.dispose()


def test_sqlite_writes_ahead_of_its_file(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path}/deep/down/advisor.db")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    engine.dispose()
