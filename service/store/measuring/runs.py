"""Rows of `run`: queued, leased, running, final. Each function is one transaction; the database alone decides who runs.

A lease is one statement on both databases: PostgreSQL skips rows that another lease holds, and the outer `state` makes
it safe where the inner SELECT locks nothing (SQLite).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Engine,
    Select,
    and_,
    bindparam,
    case,
    func,
    insert,
    literal,
    or_,
    select,
    union,
    update,
)

from service.engine.hardware import Hardware
from service.engine.measured.classify import Failure
from service.engine.measured.identity import MatchKind, ModelIdentity
from service.engine.measured.roofline import Prediction
from service.engine.measured.rows import MeasuredRow
from service.store.engines import glance, locked
from service.store.queries import by_id, changed, column, converted, rows, several, value
from service.store.results import results
from service.store.results.results import StoredResult
from service.store.tables import account, host, run_host, validation
from service.store.tables import run as table
from service.structs import made_from
from service.wire.measuring.agent import RunOutline
from service.wire.measuring.runs import RunKind, RunState


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms on which a host may take a run: the machine it described when the run was planned.

    `most_tg`, `most_pp`: tokens per second that the run's cards and the CPU cannot exceed; `max_minutes`: its owner's
    limit on a run.
    """

    hardware: Hardware
    most_tg: float
    most_pp: float
    max_minutes: int


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds, files and accounts for a leased run, fixed at its lease, whatever its host says afterwards.

    `gpus`: indices of its cards in the host's own list; `owner_id`: the host's account.
    """

    host_id: str
    owner_id: str
    hardware_key: str
    terms: Terms
    match: MatchKind
    gpus: tuple[int, ...]
    leased_at: datetime


MAX_ATTEMPTS = 3
MAX_ROWS = 1000  # the limit of a report
_MAY_PASS = and_(table.c.state == "failed", table.c.result_id.is_(None), table.c.kind == "config")
_HELD = table.c.state.in_(("leased", "running"))
OPEN = ("queued", "leased", "running")
_FAIR_OVER = timedelta(days=1)
_USUAL_SECONDS = 600.0
_GONE = "every host that could measure it was revoked or stopped answering"
_LOST = Failure(kind="stopped", transient=False, text=_GONE)
_NOBODY = Failure(kind="stopped", transient=False, text="no host took it within the time that a run waits")


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    id: str
    validation_id: str
    account_id: str
    kind: RunKind
    config_id: str | None
    position: int
    variant: str
    cell: str
    outline: RunOutline
    prediction: Prediction
    identity: ModelIdentity
    dropped: list[str] = []
    changed: str | None = None
    state: RunState = "queued"
    attempt: int = 0
    fence: int = 0
    host_id: str | None = None
    leased_at: datetime | None = None
    leased_until: datetime | None = None
    progress: str | None = None
    rows: list[MeasuredRow] = []
    failure: Failure | None = None
    report_key: str | None = None
    result_id: str | None = None
    previous: bool = False
    gpu_seconds: float = 0.0
    created_at: datetime
    request_id: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    record: RunRecord | None = None


class Eligible(msgspec.Struct, frozen=True, kw_only=True):
    """A host that may take a run, with its own details: cards in the run's order, builds that know the flags.

    `hardware_key`, `terms`: its machine when the run was planned; None only in runs of older versions.
    """

    host_id: str
    match: MatchKind
    gpus: tuple[int, ...]
    engine_builds: tuple[str, ...]
    hardware_key: str | None = None
    terms: Terms | None = None


def _may_take() -> ColumnElement[bool]:
    """Return the condition that a host may take a run at all, in a query that joins `run_host` and `host`.

    It is still the machine that the run was planned for, and has not dropped the run, or MAX_ATTEMPTS times if it is
    the asker's own.
    """
    attempts = case((host.c.account_id == table.c.account_id, MAX_ATTEMPTS), else_=1)
    return and_(run_host.c.hardware_key == host.c.hardware_key, run_host.c.dropped < attempts)


def _is_due(now: datetime | BindParameter[Any]) -> ColumnElement[bool]:
    return or_(run_host.c.not_before.is_(None), run_host.c.not_before <= now)


# Built once: hundreds of waiting hosts run this again and again.
_WAITS = select(run_host.c.host_id).distinct().join(table, run_host.c.run_id == table.c.id)
_WAITS = _WAITS.join(host, host.c.id == run_host.c.host_id)
_WAITS = _WAITS.where(run_host.c.host_id.in_(bindparam("asked", expanding=True)), table.c.state == "queued")
_WAITS = _WAITS.where(_may_take(), _is_due(bindparam("now")))


_HOLDS = select(table.c.host_id).where(table.c.host_id.in_(bindparam("asked", expanding=True)), _HELD)
_CONCERNED = union(_WAITS, _HOLDS)


def concerned(engine: Engine, host_ids: Sequence[str], now: datetime) -> list[str]:
    """Return those of these hosts that a run waits for, and those that hold one."""
    with glance(engine) as connection:
        return list(connection.scalars(_CONCERNED, {"asked": host_ids, "now": now}))


def waiting_for(engine: Engine, host_ids: Sequence[str], now: datetime) -> list[str]:
    """Return those of these hosts that a run waits for."""
    with glance(engine) as connection:
        return list(connection.scalars(_WAITS, {"asked": host_ids, "now": now}))


def insert_in(connection: Connection, row: StoredRun, hosts: Sequence[Eligible]) -> None:
    connection.execute(insert(table).values(msgspec.structs.asdict(row)))
    if hosts:
        connection.execute(insert(run_host), [{"run_id": row.id, **msgspec.structs.asdict(host)} for host in hosts])


def of_validation(engine: Engine, validation_id: str) -> list[StoredRun]:
    """Return a validation's runs in order."""
    wanted = select(table).where(table.c.validation_id == validation_id).order_by(table.c.position, table.c.id)
    return several(engine, wanted, StoredRun)


def read(engine: Engine, run_id: str) -> StoredRun | None:
    return by_id(engine, select(table), table.c.id, run_id, StoredRun)


def matches(engine: Engine, run_ids: Sequence[str]) -> dict[tuple[str, str], MatchKind]:
    """Return how well hosts match these runs, by (run, host)."""
    wanted = select(run_host.c.run_id, run_host.c.host_id, run_host.c.match).where(run_host.c.run_id.in_(run_ids))
    return {(row.run_id, row.host_id): row.match for row in rows(engine, wanted)} if run_ids else {}


def eligible(engine: Engine, run_id: str) -> list[Eligible]:
    return several(engine, select(run_host).where(run_host.c.run_id == run_id), Eligible)


def lease(
    engine: Engine, host_id: str, owner_id: str, now: datetime, until: datetime, allowance: float
) -> tuple[StoredRun, Eligible] | None:
    """Lease the next run to a host: its owner's own first, then of whoever used the fewest GPU-seconds on others' hosts
    in a day, then the oldest. None if there is none.

    `allowance`: GPU-seconds a day after which an account gets no more time on others' hosts.
    """
    with glance(engine) as connection:
        if connection.scalar(_WAITS, {"asked": [host_id], "now": now}) is None:
            return None
    own = table.c.account_id == owner_id
    used = _used(table.c.account_id, now - _FAIR_OVER).correlate(table).scalar_subquery()
    fair = (case((own, 0), else_=1), used, table.c.created_at, table.c.position, table.c.id)
    waiting = select(table.c.id).join(run_host, run_host.c.run_id == table.c.id)
    waiting = waiting.join(host).join(account, account.c.id == table.c.account_id)
    waiting = waiting.where(run_host.c.host_id == host_id, table.c.state == "queued", *_still_for(owner_id))
    waiting = waiting.where(_may_take(), _is_due(now))
    waiting = waiting.where(own | (used < allowance)).order_by(*fair).limit(1)
    taken = update(table).where(
        table.c.id == waiting.with_for_update(skip_locked=True, of=table).scalar_subquery(), table.c.state == "queued"
    )
    values = {"state": "leased", "host_id": host_id, "fence": table.c.fence + 1, "leased_until": until, "rows": []}
    begun = func.coalesce(table.c.started_at, now)
    with engine.begin() as connection:
        row = connection.execute(
            taken.values(**values, leased_at=now, started_at=begun).returning(*table.c)
        ).one_or_none()
        return None if row is None else _recorded(connection, converted(row, StoredRun), host_id, owner_id, now)


def _recorded(
    connection: Connection, run: StoredRun, host_id: str, owner_id: str, now: datetime
) -> tuple[StoredRun, Eligible]:
    """Fix the run's record at its lease, when the host is known to be the machine of its terms."""
    same = (run_host.c.run_id == run.id, run_host.c.host_id == host_id)
    own = converted(connection.execute(select(run_host).where(*same)).one(), Eligible)
    if own.terms is None or own.hardware_key is None:
        raise ValueError(f"run {run.id} was leased without terms")
    record = made_from(RunRecord, own, owner_id=owner_id, leased_at=now)
    connection.execute(update(table).where(table.c.id == run.id).values(record=record))
    return msgspec.structs.replace(run, record=record), own


def _still_for(owner_id: str) -> tuple[ColumnElement[bool], ...]:
    """Return conditions that may have changed since a run was matched with a host, or while the host waited."""
    open_to_all = or_(table.c.account_id == owner_id, host.c.visibility == "public")
    return host.c.state == "active", open_to_all, account.c.banned_at.is_(None)


def _used(account_id: ColumnElement[str], since: datetime) -> Select[float]:
    """Return the GPU-seconds that an account used on others' hosts since then; an unfinished run counts as usual."""
    other = table.alias("other")
    under_way = case((other.c.state.in_(("leased", "running")), _USUAL_SECONDS), else_=0.0)
    spent = select(func.coalesce(func.sum(other.c.gpu_seconds + under_way), 0.0))
    spent = spent.join(host, host.c.id == other.c.host_id).where(host.c.account_id != other.c.account_id)
    return spent.where(other.c.account_id == account_id, other.c.ended_at.is_(None) | (other.c.ended_at > since))


def renew(
    engine: Engine, run_id: str, host_id: str, fence: int, until: datetime, progress: str, rows: Sequence[MeasuredRow]
) -> StoredRun | None:
    """Extend a lease and add rows. Return None if the lease does not hold the run any more."""
    with locked(engine) as connection:
        held = connection.execute(select(table).where(*_held_by(run_id, host_id, fence))).one_or_none()
        if held is None:
            return None
        known = converted(held, StoredRun)
        added = [*known.rows, *(row for row in rows if row not in known.rows)][:MAX_ROWS]
        values = {"state": "running", "leased_until": until, "progress": progress[:200], "rows": added}
        connection.execute(update(table).where(table.c.id == run_id).values(values))
        return msgspec.structs.replace(known, state="running", rows=added, progress=progress)


def finish(
    connection: Connection, run_id: str, host_id: str, fence: int, report_key: str, values: Mapping[str, object],
    result: StoredResult | None, log: str,
) -> bool:  # fmt: skip
    """End a lease with a report and store its result, in one transaction. Return False if the lease is not current."""
    change = update(table).where(*_held_by(run_id, host_id, fence))
    stored = {**values, "report_key": report_key, "leased_until": None}
    if connection.execute(change.values(stored)).rowcount != 1:
        return False
    if result is not None:
        results.insert_in(connection, result, log)
    return True


def release(engine: Engine, host_id: str, now: datetime) -> int:
    """Take back the runs of a host that asks for another one, and so has lost them; return how many."""
    return _take_back(engine, and_(_HELD, table.c.host_id == host_id), now)


def expire(engine: Engine, now: datetime, waits_since: datetime) -> int:
    """Take back runs whose lease is over, and fail those that nobody took since `waits_since`; return how many."""
    nobody = and_(table.c.state == "queued", table.c.created_at < waits_since)
    count = 0
    if _any(engine, nobody):
        with engine.begin() as connection:
            ended = {"state": "failed", "failure": _NOBODY, "ended_at": now}
            count = connection.execute(update(table).where(nobody).values(ended)).rowcount
    return int(count) + _take_back(engine, and_(_HELD, table.c.leased_until < now), now)


def _any(engine: Engine, which: ColumnElement[bool]) -> bool:
    """Whether there is such a run: a read, so that hundreds of hosts that ask neither write nor wait."""
    with glance(engine) as connection:
        return connection.scalar(select(table.c.id).where(which).limit(1)) is not None


def _take_back(engine: Engine, which: ColumnElement[bool], now: datetime) -> int:
    """Take runs back from hosts that dropped them; those that no other host may take fail."""
    if not _any(engine, which):
        return 0
    again: dict[str, object] = {"state": "queued", "leased_until": None, "progress": None, "rows": []}
    given_up = {"state": "failed", "leased_until": None, "failure": _LOST, "ended_at": now}
    with locked(engine) as connection:
        held = connection.execute(select(table.c.id, table.c.host_id).where(which).with_for_update(skip_locked=True))
        dropped = held.all()
        for run_id, host_id in dropped:
            count_drop(connection, run_id, host_id)
            values = again if is_open_to_others(connection, run_id) else given_up
            change = update(table).where(table.c.id == run_id, _HELD)
            connection.execute(change.values(**values, attempt=table.c.attempt + 1))
    return len(dropped)


def count_drop(connection: Connection, run_id: str, host_id: str, *, for_good: bool = False) -> None:
    """Record in a transaction that a host returned no result for a run; `for_good`: it never will."""
    same = (run_host.c.run_id == run_id, run_host.c.host_id == host_id)
    times = MAX_ATTEMPTS if for_good else run_host.c.dropped + 1
    connection.execute(update(run_host).where(*same).values(dropped=times))


def put_off(connection: Connection, run_id: str, host_id: str, until: datetime) -> None:
    """Stop offering a run to a host until `until`, within a transaction."""
    same = (run_host.c.run_id == run_id, run_host.c.host_id == host_id)
    connection.execute(update(run_host).where(*same).values(not_before=until))


def is_open_to_others(connection: Connection, run_id: str) -> bool:
    """Return, within a transaction, whether any host may still take a run."""
    wanted = select(table.c.id).join(run_host, run_host.c.run_id == table.c.id).join(host)
    wanted = wanted.where(table.c.id == run_id, _may_take(), host.c.state != "revoked")
    return connection.scalar(wanted.limit(1)) is not None


def failed(engine: Engine, ids: Sequence[str], since: datetime | None) -> list[str]:
    """Return the ids of runs whose failure was transient: among `ids`, or all that ended since then.

    A permanent failure is a result. A failed step of a tuning stays, since later steps were chosen without it.
    """
    which = table.c.id.in_(ids) if since is None else table.c.ended_at >= since
    wanted = select(table.c.id).join(validation, validation.c.id == table.c.validation_id).where(which, _MAY_PASS)
    return column(engine, wanted.where(validation.c.cancelled_at.is_(None)).order_by(table.c.id))


def requeue(engine: Engine, run_id: str, now: datetime) -> bool:
    """Queue a failed run again as if it were new; return False if that was done before."""
    again: dict[str, object] = {"state": "queued", "attempt": 0, "rows": [], "created_at": now}
    held = ("host_id", "report_key", "progress", "leased_at", "leased_until", "record")
    nothing = ("failure", "started_at", "ended_at", *held)
    change = update(table).where(table.c.id == run_id, _MAY_PASS).values(again | dict.fromkeys(nothing))
    fresh = update(run_host).where(run_host.c.run_id == run_id).values(dropped=0, not_before=None)
    with engine.begin() as connection:
        if connection.execute(change).rowcount != 1:
            return False
        connection.execute(fresh)
        return True


def cancel(engine: Engine, validation_id: str, now: datetime) -> int:
    """Cancel a validation's unfinished runs; a host that holds one is told at its next call."""
    open_ones = (table.c.validation_id == validation_id, table.c.state.in_(OPEN))
    return changed(engine, update(table).where(*open_ones).values(state="cancelled", ended_at=now))


def gpu_seconds(engine: Engine, account_id: str, since: datetime) -> float:
    """Return the GPU-seconds that an account used on others' hosts since then."""
    return float(value(engine, _used(literal(account_id), since)) or 0)


def open_validations(connection: Connection, account_id: str) -> int:
    """Return how many of an account's validations have unfinished runs that are for others' hosts."""
    count = select(func.count(table.c.validation_id.distinct())).join(run_host, run_host.c.run_id == table.c.id)
    count = count.join(host, host.c.id == run_host.c.host_id).where(host.c.account_id != account_id)
    return int(connection.scalar(count.where(table.c.account_id == account_id, table.c.state.in_(OPEN))) or 0)


def _held_by(run_id: str, host_id: str, fence: int) -> tuple[ColumnElement[bool], ...]:
    return table.c.id == run_id, table.c.host_id == host_id, table.c.fence == fence, _HELD
