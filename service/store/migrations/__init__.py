"""`migrate()`: brings a database to the present tables. What a migration may do is said in CONTRIBUTING.md.

Alembic is imported when needed: a worker never needs it, and would take a fifth longer to start.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text

from service.errors import DatabaseUnavailable
from service.logs import Log
from service.store.engines import locked, make_engine

if TYPE_CHECKING:
    from alembic.config import Config

log = Log("database")

_LOCK = 7_224_310_416  # any number that only this service takes
_IN_THE_WAY = ("55P03", "40P01")  # SQLSTATE: a lock that was not to be had in time, a deadlock
_BUSY_SECONDS, _BUSY_PAUSE = 60.0, 0.1


def migrate(engine: Engine) -> None:
    """Bring the database to the newest tables; nothing happens when it is there already, or is newer than this code.

    Two processes may migrate at once: PostgreSQL makes the second one wait, SQLite has one writer. Others may work on
    the tables meanwhile. Raises DatabaseUnavailable when no database answers.
    """
    last = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            if _step(engine):
                return
        except DatabaseUnavailable as error:
            if getattr(error.__cause__, "sqlstate", None) not in _IN_THE_WAY or time.monotonic() > last:
                raise
            time.sleep(_BUSY_PAUSE)


@contextmanager
def migrated(url: str) -> Iterator[Engine]:
    """Open the database at `url` for the block, with its tables brought up to date. Raises as `migrate`."""
    engine = make_engine(url)
    try:
        migrate(engine)
        yield engine
    finally:
        engine.dispose()


def _step(engine: Engine) -> bool:
    """Make the next migration in a transaction of its own, which holds few locks; return whether there was none."""
    from alembic import command
    from alembic.runtime.migration import MigrationContext

    with locked(engine) as connection:
        _lock(connection)
        found = MigrationContext.configure(connection).get_current_revision()
        if is_newer(found):
            log.warning("database.newer", detail=f"it is of {found}")
        elif found != newest():
            command.upgrade(configuration(connection), "head" if found is None else "+1")
            return False
        return True


def is_newer(revision: str | None) -> bool:
    """Return whether tables are of a later version than this code knows: it works with them, for they only grow."""
    return revision is not None and revision not in revisions()


def is_usable(revision: str | None) -> bool:
    """Return whether this code works with tables of `revision` (None: there are none) as they are."""
    return revision == newest() or is_newer(revision)


@cache
def revisions() -> frozenset[str]:
    """Return the revisions of the tables that this version knows."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(Path(__file__).parent))
    return frozenset(script.revision for script in scripts.walk_revisions())


@cache
def newest() -> str:
    """Return the revision of the present tables."""
    from alembic.script import ScriptDirectory

    head = ScriptDirectory(str(Path(__file__).parent)).get_current_head()
    return head or ""


def configuration(connection: Connection) -> Config:
    """Return Alembic's configuration for the migrations of this folder, run on `connection`."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL lock_timeout = 0"))  # another process may be at it for long
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        # What works on a table goes first: in a deadlock PostgreSQL would end one of the two after a second.
        connection.execute(text("SET LOCAL lock_timeout = '300ms'"))
