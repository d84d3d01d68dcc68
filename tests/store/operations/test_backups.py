"""Backups of both databases: one moment in one file, brought back whole or not at all."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from service.engine.errors import InvalidInput
from service.errors import DatabaseUnavailable
from service.flows.accounts import account_named
from service.store.engines import make_engine
from service.store.operations.backups import back_up, restore

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def names(engine: Engine) -> set[str]:
    with engine.connect() as connection:
        return {name for (name,) in connection.execute(text("SELECT name FROM account"))}


def test_what_came_after_a_backup_is_gone_when_it_is_brought_back(
    engine: Engine, database_url: str, tmp_path: Path
) -> None:
    account_named(engine, "alice", NOW)
    assert back_up(database_url, tmp_path / "kept") > 1_000
    account_named(engine, "bob", NOW)
    restore(database_url, tmp_path / "kept")
    assert names(engine) == {"alice"}


def test_a_backup_is_taken_while_somebody_writes(engine: Engine, database_url: str, tmp_path: Path) -> None:
    account_named(engine, "alice", NOW)
    with engine.begin() as connection:
        connection.execute(text("UPDATE account SET name = 'mallory'"))
        back_up(database_url, tmp_path / "kept")
    restore(database_url, tmp_path / "kept")
    assert names(engine) == {"alice"}


def test_a_backup_overwrites_nothing(engine: Engine, database_url: str, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a letter")
    with pytest.raises(InvalidInput, match="name a new file"):
        back_up(database_url, tmp_path / "kept")
    assert (tmp_path / "kept").read_text() == "a letter"


@pytest.mark.parametrize("content", [b"", b"a letter", b"SQLite format 3\x00" + bytes(5_000), b"PGDMP" + bytes(100)])
def test_a_file_that_is_no_backup_changes_nothing(
    engine: Engine, database_url: str, tmp_path: Path, content: bytes
) -> None:
    account_named(engine, "alice", NOW)
    (tmp_path / "kept").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"not a backup of this service|another database"):
        restore(database_url, tmp_path / "kept")
    assert names(engine) == {"alice"}


def test_a_backup_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "kept") as newer:
        newer.execute("CREATE TABLE alembic_version (version_num TEXT)")
        newer.execute("INSERT INTO alembic_version VALUES ('9999')")
    newer.close()
    with pytest.raises(InvalidInput, match="newer version"):
        restore(f"sqlite:///{tmp_path}/advisor.db", tmp_path / "kept")
    assert not (tmp_path / "advisor.db").exists()


def test_a_backup_of_a_database_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match="no database"):
        back_up(f"sqlite:///{tmp_path}/none.db", tmp_path / "kept")
    assert list(tmp_path.iterdir()) == []


def test_a_backup_is_brought_back_where_there_is_no_database_yet(
    engine: Engine, database_url: str, tmp_path: Path
) -> None:
    if not database_url.startswith("sqlite"):
        return
    account_named(engine, "alice", NOW)
    back_up(database_url, tmp_path / "kept")
    new = f"sqlite:///{tmp_path}/new/advisor.db"
    restore(new, tmp_path / "kept")
    made = make_engine(new)
    assert names(made) == {"alice"}
    made.dispose()
