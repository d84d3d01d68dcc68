"""`migrate()`: brings a database to the present tables."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

_LOCK = 7_224_310_416  # any number that only this service takes


def migrate(engine: Engine) -> None:
    """Bring the database to the newest tables; nothing happens when it is there already.

    Two processes may migrate at once: PostgreSQL makes the second one wait, SQLite has one writer. Raises
    DatabaseUnavailable when no database answers.
    """
    with engine.execution_options(sqlite_begin="IMMEDIATE").begin() as connection:
        _lock(connection)
        command.upgrade(configuration(connection), "head")


def revisions() -> frozenset[str]:
    """Return the revisions of the tables that this version knows."""
    scripts = ScriptDirectory(str(Path(__file__).parent))
    return frozenset(script.revision for script in scripts.walk_revisions())


def newest() -> str:
    """Return the revision of the present tables."""
    head = ScriptDirectory(str(Path(__file__).parent)).get_current_head()
    return head or ""


def configuration(connection: Connection) -> Config:
    """Return Alembic's configuration for the migrations of this folder, run on `connection`."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
