"""What the database says of itself and of the work that waits in it. Nothing here changes anything."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from sqlalchemy import Engine, func, inspect, select, text

from service.store.tables import advice, host, run

_DAY = timedelta(days=1)
_UNFINISHED = ("queued", "running")


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What waits: advices and runs. `stuck`: advices unfinished for long; `silent`: runs whose lease is over."""

    waiting: int
    stuck: int
    failed_today: int
    runs: int
    silent: int


def exists(engine: Engine) -> bool:
    """Return whether there is a database to ask: to open a SQLite that is not there would make one."""
    return engine.dialect.name != "sqlite" or Path(engine.url.database or "").is_file()


def revision(engine: Engine) -> str | None:
    """Return the revision of the tables, None where there are none. Raises DatabaseUnavailable."""
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
        return found


def n_bytes(engine: Engine) -> int:
    """Return the bytes that the database takes on its disk. Raises DatabaseUnavailable."""
    if engine.dialect.name == "sqlite":
        return Path(engine.url.database or "").stat().st_size
    with engine.connect() as connection:
        return int(connection.scalar(text("SELECT pg_database_size(current_database())")) or 0)


def agents(engine: Engine, since: datetime) -> dict[str, int]:
    """Return how many machines were seen since then, by the version of their program."""
    version = host.c.probe["agent"].as_string()
    wanted = select(version, func.count()).where(host.c.seen_at >= since, host.c.state != "revoked")
    with engine.connect() as connection:
        return {str(found or "unknown"): n for found, n in connection.execute(wanted.group_by(version))}


def work(engine: Engine, now: datetime, long_ago: datetime) -> Work:
    """Return what waits; `long_ago`: an advice that was asked for before it should be ready. Raises
    DatabaseUnavailable."""
    unfinished = advice.c.state.in_(_UNFINISHED)
    held = run.c.state.in_(("leased", "running"))
    with engine.connect() as connection:

        def count(table: object, *where: object) -> int:
            return connection.scalar(select(func.count()).select_from(table).where(*where)) or 0  # type: ignore[arg-type]

        return Work(
            waiting=count(advice, unfinished),
            stuck=count(advice, unfinished, advice.c.created_at < long_ago),
            failed_today=count(advice, advice.c.state == "failed", advice.c.updated_at > now - _DAY),
            runs=count(run, run.c.state == "queued"),
            silent=count(run, held, run.c.leased_until < now),
        )
