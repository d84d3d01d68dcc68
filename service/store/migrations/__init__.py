"""`migrate()` brings a database's tables up to date. CONTRIBUTING.md says what a migration may do.

Alembic is imported when needed: workers never need it, and would take a fifth longer to start.
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

_LOCK = 7_224_310_416  # an arbitrary number that only this service uses
_IN_THE_WAY = ("55P03", "40P01")  # SQLSTATE of a lock timeout, of a deadlock
_BUSY_SECONDS, _BUSY_PAUSE = 60.0, 0.1


def migrate(engine: Engine) -> None:
    """Bring the database to the newest tables; do nothing if it has them, or newer ones than this code knows.

    Two processes may migrate at once: PostgreSQL makes the second one wait, SQLite has one writer. Others may use the
    tables meanwhile. Raises DatabaseUnavailable if the database does not answer.
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
    """Run the next migration in a transaction of its own, which holds few locks; return True if there was none."""
    from alembic import command
    from alembic.runtime.migration import MigrationContext

    with locked(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL lock_timeout = 0"))  # another process may be migrating for long
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            # Ordinary work on a table takes precedence: in a deadlock PostgreSQL would end either side after a second.
            connection.execute(text("SET LOCAL lock_timeout = '300ms'"))
        found = MigrationContext.configure(connection).get_current_revision()
        if is_newer(found):
            log.warning("database.newer", detail=f"it is of {found}")
        elif found != newest():
            if found is None:
                log.info("database.made", detail=f"{engine.url.render_as_string()} had no tables")
            command.upgrade(configuration(connection), "head" if found is None else "+1")
            return False
        return True


def is_newer(revision: str | None) -> bool:
    """Return whether tables are newer than this code, which still works with them, since tables only grow."""
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
