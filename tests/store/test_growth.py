"""Old and new code work on one database at a time: migrations only add, and the old code goes on meanwhile."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command, op
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, MetaData, Table

from service.store import migrations
from service.store.engines import make_engine
from service.store.migrations import is_newer, is_usable, migrate
from service.store.operations import health

# No release has older tables. What comes after them must be additive: see CONTRIBUTING.md.
FIRST_RELEASE = "0003"
SCRIPTS = sorted(
    ScriptDirectory(str(Path(migrations.__file__).parent)).walk_revisions(), key=lambda script: script.revision
)
LATER = [script.module for script in SCRIPTS if script.revision > FIRST_RELEASE]

_REFERENCE = re.compile(r"REFERENCES \"?(\w+)\"?[^,]*")
_CREATE_TABLE = re.compile(r"CREATE TABLE \"?(\w+)\"?")
_CREATE_INDEX = re.compile(r"CREATE (UNIQUE )?INDEX \"?\w+\"? ON \"?(\w+)\"?")
_ADD_COLUMN = re.compile(r"ALTER TABLE \"?(\w+)\"? ADD COLUMN (.*)", re.DOTALL)
_OF_A_TABLE = re.compile(r"(?:ALTER|DROP) TABLE \"?(\w+)\"?")


def statements(upgrade: Callable[[], None], dialect: str) -> list[str]:
    """Return the SQL that a migration would run."""
    written = io.StringIO()
    context = MigrationContext.configure(dialect_name=dialect, opts={"as_sql": True, "output_buffer": written})
    with Operations.context(context):
        upgrade()
    return [" ".join(text.split()) for text in written.getvalue().split(";") if text.strip()]


def faults(sql: list[str]) -> Iterator[str]:
    """Yield the statements that code of the version before may not survive."""
    new = {found[1] for text in sql if (found := _CREATE_TABLE.match(text))}
    for text in sql:
        table = _OF_A_TABLE.match(text)
        if not (table and table[1] in new) and not _only_adds(text, new):
            yield text


def _only_adds(text: str, new: set[str]) -> bool:
    # The old code deletes rows without knowing of those that refer to them.
    if any(ref[1] not in new and "ON DELETE" not in ref[0] for ref in _REFERENCE.finditer(text)):
        return False
    if index := _CREATE_INDEX.match(text):
        return not index[1] or index[2] in new
    if column := _ADD_COLUMN.match(text):
        return ("NOT NULL" not in column[2] or "DEFAULT" in column[2]) and "UNIQUE" not in column[2]
    return text.startswith(("CREATE TABLE ", "UPDATE ", "INSERT "))


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_migrations_only_add(dialect: str) -> None:
    found = {module.revision: list(faults(statements(module.upgrade, dialect))) for module in LATER}
    assert not any(found.values()), found


def _adds() -> None:
    op.create_table("visit", sa.Column("id", sa.Integer), sa.Column("of", sa.String(22)))
    op.create_index("visit_of", "visit", ["of"], unique=True)
    op.drop_index("visit_of", "visit")
    op.add_column("host", sa.Column("visits", sa.Integer, server_default="0", nullable=False))
    op.add_column("host", sa.Column("seen", sa.String(22)))
    op.create_index("host_seen", "host", ["seen"])


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_what_the_rule_lets_pass(dialect: str) -> None:
    assert [text for text in faults(statements(_adds, dialect)) if not text.startswith("DROP INDEX")] == []


@pytest.mark.parametrize(
    "breaks",
    [
        lambda: op.drop_table("host"),
        lambda: op.drop_column("host", "name"),
        lambda: op.alter_column("host", "name", new_column_name="title"),
        lambda: op.rename_table("host", "machine"),
        lambda: op.add_column("host", sa.Column("visits", sa.Integer, nullable=False)),
        lambda: op.create_index("host_name", "host", ["name"], unique=True),
        lambda: op.create_check_constraint("short", "host", "length(name) < 9"),
        lambda: op.create_table("visit", sa.Column("of", sa.String(22), sa.ForeignKey("host.id"))),
        lambda: op.execute("DELETE FROM host"),
    ],
)
def test_what_the_rule_refuses(breaks: Callable[[], None]) -> None:
    assert list(faults(statements(breaks, "postgresql")))


def test_tables_of_a_later_version_are_used_as_they_are(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(sa.text("ALTER TABLE advice ADD COLUMN of_the_future INTEGER"))
    migrate(engine)
    assert health.revision(engine) == "9999"
    assert is_newer("9999")
    assert is_usable("9999")
    assert not is_usable("0001")
    assert not is_usable(None)


def at_revision(url: str, revision: str) -> Engine:
    engine = make_engine(url)
    with engine.execution_options(sqlite_begin="IMMEDIATE").begin() as connection:
        command.upgrade(migrations.configuration(connection), revision)
    return engine


class OldCode:
    """Code of the version before: it knows the tables as they were, and works on each of them without a pause."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        old = MetaData()
        old.reflect(engine)
        # `header` went before the first release.
        self._tables = [table for table in old.sorted_tables if table.name not in ("alembic_version", "header")]
        self._allowed = {table.name: dict(_allowed(engine, table)) for table in self._tables}
        self.rounds, self.errors = 0, list[Exception]()

    def work(self) -> None:
        """Insert, read, change and delete a row of each table."""
        with self._engine.begin() as connection:
            rows = {table: self._insert(connection, table) for table in self._tables}
            for table, row in rows.items():
                connection.execute(table.select().limit(3)).all()
                connection.execute(table.update().where(self._is(table, row)).values(row))
            for table, row in reversed(rows.items()):
                connection.execute(table.delete().where(self._is(table, row)))
        self.rounds += 1

    def _insert(self, connection: Connection, table: Table) -> dict[str, Any]:
        row = {column.name: _value(column, self.rounds) for column in table.columns if not column.nullable}
        row |= {name: value for name, value in self._allowed[table.name].items() if name in row}
        connection.execute(table.insert().values(row))
        return row

    @staticmethod
    def _is(table: Table, row: dict[str, Any]) -> Any:
        return sa.and_(*(column == row[column.name] for column in table.primary_key.columns))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Work in a thread for the length of a block, at least once before it and once after it."""
        ended = threading.Event()

        def loop() -> None:
            try:
                while not ended.is_set():
                    self.work()
            except Exception as error:
                self.errors.append(error)

        self.work()
        thread = threading.Thread(target=loop)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(60)
        self.work()


def _allowed(engine: Engine, table: Table) -> Iterator[tuple[str, str]]:
    """Yield (column, one of its values) for each column of which only some values are allowed."""
    for check in sa.inspect(engine).get_check_constraints(table.name):
        column, value = re.search(r"\w+", check["sqltext"]), re.search(r"'([^']*)'", check["sqltext"])
        if column and value:
            yield column[0], value[1]


def _value(column: sa.Column[Any], number: int) -> Any:
    kind = column.type
    if isinstance(kind, sa.JSON):
        return {}
    if isinstance(kind, sa.String):
        return f"r{number}"[: kind.length or 20]
    if isinstance(kind, sa.DateTime):
        return datetime.now(UTC)
    return kind.python_type(number + 100)


@pytest.mark.full
@pytest.mark.parametrize("start", [script.revision for script in SCRIPTS[:-1]])
def test_the_old_code_works_on_while_its_tables_are_brought_up(database_url: str, start: str) -> None:
    engine, newer = at_revision(database_url, start), make_engine(database_url)
    old = OldCode(engine)
    with old.at_work():
        migrate(newer)
    assert old.errors == []
    assert health.revision(newer) == migrations.newest()
    assert old.rounds > 2
    engine.dispose()
    newer.dispose()
