"""Rows of `job`: when each scheduled job is due and which process runs it, decided by one conditional UPDATE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec
from sqlalchemy import Engine, case, insert, or_, select, update

from service.store.engines import glance, locked
from service.store.queries import changed, converted
from service.store.tables import job as table


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one job. `held_until`: while that is in the future, some process runs it."""

    name: str
    due_at: datetime
    held_until: datetime | None
    succeeded_at: datetime | None
    failed_at: datetime | None


def states(engine: Engine) -> dict[str, JobState]:
    """Return every job that was ever scheduled, by name. Raises DatabaseUnavailable."""
    columns = [table.c[name] for name in JobState.__struct_fields__]
    with glance(engine) as connection:
        rows = connection.execute(select(*columns)).all()
    return {row.name: converted(row, JobState) for row in rows}


def ensure(engine: Engine, due: Mapping[str, datetime]) -> None:
    """Add the jobs that have no row yet, due at these times."""
    with locked(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("LOCK TABLE job IN SHARE ROW EXCLUSIVE MODE")
        known = set(connection.scalars(select(table.c.name)))
        missing = [{"name": name, "due_at": at} for name, at in due.items() if name not in known]
        if missing:
            connection.execute(insert(table), missing)


def claim(engine: Engine, name: str, holder: str, now: datetime, until: datetime) -> bool:
    """Claim a due job that nobody holds; return whether `holder` has it now."""
    free = or_(table.c.held_until.is_(None), table.c.held_until < now)
    change = update(table).where(table.c.name == name, table.c.due_at <= now, free)
    return changed(engine, change.values(holder=holder, held_until=until)) == 1


def renew(engine: Engine, names: Iterable[str], holder: str, until: datetime) -> None:
    """Extend the leases on jobs that `holder` still runs."""
    change = update(table).where(table.c.name.in_(list(names)), table.c.holder == holder)
    changed(engine, change.values(held_until=until))


def finish(
    engine: Engine, name: str, holder: str, claimed_at: datetime, now: datetime, due_at: datetime, *, succeeded: bool
) -> None:
    """Release a job and set when it is due again; do nothing if another process took it meanwhile.

    If it was hastened while it ran, after `claimed_at`, it stays due, since this run may lack the cause for that.
    """
    ended = {"succeeded_at" if succeeded else "failed_at": now}
    due = case((table.c.due_at > claimed_at, table.c.due_at), else_=due_at)
    change = update(table).where(table.c.name == name, table.c.holder == holder)
    changed(engine, change.values(holder=None, held_until=None, due_at=due, **ended))


def hasten(engine: Engine, name: str, now: datetime) -> bool:
    """Make a job due now; return whether there is one of this name."""
    return changed(engine, update(table).where(table.c.name == name).values(due_at=now)) == 1
