"""Reads the state of the database and of the work that waits in it; changes nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from sqlalchemy import ColumnElement, Engine, Table, func, inspect, select, text

from service.store.advice import queue
from service.store.queries import rows
from service.store.tables import advice, host, interaction, removal_request, run

_DAY = timedelta(days=1)
_UNFINISHED = ("queued", "running")


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """Unfinished work. `stuck`: advices unfinished for too long; `silent`: runs whose lease is over."""

    waiting: int
    stuck: int
    failed_today: int
    runs: int
    silent: int


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting work by state, the age of the oldest, and how many hosts called lately."""

    advices: dict[str, int]
    lanes: dict[str, int]
    oldest_advice_seconds: float
    runs: dict[str, int]
    oldest_run_seconds: float
    hosts_online: int
    questions: int
    question_overdue_seconds: float
    removal_requests: int
    oldest_removal_request_seconds: float


def exists(engine: Engine) -> bool:
    """Return whether the database exists; connecting to a missing SQLite database would create it."""
    return engine.dialect.name != "sqlite" or Path(engine.url.database or "").is_file()


def revision(engine: Engine) -> str | None:
    """Return the revision of the tables, None if there are none. Raises DatabaseUnavailable."""
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
        return found


def damage(engine: Engine) -> str | None:
    """Return SQLite's complaint about its file in one line, None if it is sound, and for PostgreSQL.

    Reads the whole file. Raises DatabaseUnavailable if it cannot even be read.
    """
    if engine.dialect.name != "sqlite":
        return None
    with engine.connect() as connection:
        found = str(connection.scalar(text("PRAGMA quick_check(1)")))
    return None if found == "ok" else " ".join(found.split())[:200]


def n_bytes(engine: Engine) -> int:
    """Return the database's size on disk in bytes. Raises DatabaseUnavailable."""
    if engine.dialect.name == "sqlite":
        return Path(engine.url.database or "").stat().st_size
    with engine.connect() as connection:
        return int(connection.scalar(text("SELECT pg_database_size(current_database())")) or 0)


def backlog(engine: Engine, now: datetime, online_since: datetime) -> Backlog:
    """Return the waiting work, by a handful of indexed queries. Raises DatabaseUnavailable."""
    online = select(func.count()).where(host.c.state == "active", host.c.seen_at >= online_since)
    with engine.connect() as connection:

        def by_state(table: Table, *states: str) -> dict[str, int]:
            wanted = select(table.c.state, func.count()).where(table.c.state.in_(states)).group_by(table.c.state)
            return {str(state): n for state, n in connection.execute(wanted)}

        def age(column: ColumnElement[datetime], *where: ColumnElement[bool]) -> float:
            oldest = connection.scalar(select(func.min(column)).where(*where))
            return max(0.0, (now - oldest).total_seconds()) if oldest else 0.0

        return Backlog(
            advices=by_state(advice, *_UNFINISHED),
            lanes=queue.waiting(connection),
            oldest_advice_seconds=age(advice.c.created_at, advice.c.state == "queued"),
            runs=by_state(run, "queued", "leased", "running"),
            oldest_run_seconds=age(run.c.created_at, run.c.state == "queued"),
            hosts_online=connection.scalar(online) or 0,
            questions=connection.scalar(select(func.count()).where(interaction.c.due_at.is_not(None))) or 0,
            question_overdue_seconds=age(interaction.c.due_at),
            removal_requests=connection.scalar(select(func.count()).where(removal_request.c.closed_at.is_(None))) or 0,
            oldest_removal_request_seconds=age(removal_request.c.created_at, removal_request.c.closed_at.is_(None)),
        )


def agents(engine: Engine, since: datetime) -> dict[str, int]:
    """Return how many hosts were seen since then, by the version of their agent."""
    version = host.c.probe["agent"].as_string()
    wanted = select(version, func.count()).where(host.c.seen_at >= since, host.c.state != "revoked")
    return {str(found or "unknown"): n for found, n in rows(engine, wanted.group_by(version))}


def work(engine: Engine, now: datetime, long_ago: datetime) -> Unfinished:
    """Return the unfinished work; advices created before `long_ago` count as stuck. Raises DatabaseUnavailable."""
    unfinished = advice.c.state.in_(_UNFINISHED)
    held = run.c.state.in_(("leased", "running"))
    with engine.connect() as connection:

        def count(table: object, *where: object) -> int:
            return connection.scalar(select(func.count()).select_from(table).where(*where)) or 0  # type: ignore[arg-type]

        return Unfinished(
            waiting=count(advice, unfinished),
            stuck=count(advice, unfinished, advice.c.created_at < long_ago),
            failed_today=count(advice, advice.c.state == "failed", advice.c.updated_at > now - _DAY),
            runs=count(run, run.c.state == "queued"),
            silent=count(run, held, run.c.leased_until < now),
        )
