"""Decides whose advice is next: start-time fair queueing in the database (Goyal, Vin and Cheng, 1996).

Each payer with open advices has a row in `share`: the CPU seconds it has used, on a common virtual clock. An advice is
charged to its payer by its estimate when it starts, and corrected to its real cost when it ends. The next to start is
the oldest advice of the payer that has used the least. The clock stands where the payer that was served last stood, and
a new payer begins there: nobody saves up shares while away, and nobody waits behind more than one advice of any other
client that has used as much.

Advices that cost more than SHORT_SECONDS are in the long lane, which never has all workers. Each function is one
transaction; those that decide run one at a time.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from enum import Enum
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, Row, delete, func, insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from service.engine.advice import AdviceBody
from service.store.advice.advices import StoredAdvice, decoded, packed
from service.store.engines import locked
from service.store.queries import rows
from service.store.tables import advice, share

SHORT_SECONDS = 5.0  # CPU seconds that most advices stay under (docs/scaling.md)
_CLOCK = "clock"  # the row of `share` for the clock
_ORDER = 7_224_310_417  # an arbitrary number that no other lock uses
_OPEN = ("queued", "running")
_OF_PAYER = func.coalesce(share.c.used, 0.0)


class Added(Enum):
    """The outcome of adding an advice."""

    QUEUED = "queued"
    SAME_IN_FLIGHT = "the same request is in flight"
    CLIENT_FULL = "its payer has as many open as one may"
    ALL_FULL = "as many are open as there may be"


def _in_order(engine: Engine) -> AbstractContextManager[Connection]:
    """Begin a transaction that excludes all others of the queue, since its writes depend on its reads."""
    return locked(engine, _ORDER)


def add(engine: Engine, row: StoredAdvice, most_of_payer: int, most: int) -> Added:
    """Commit a new row, unless its payer has `most_of_payer` open, or all payers together have `most`."""
    try:
        with _in_order(engine) as connection:
            if _n_open(connection) >= most:
                return Added.ALL_FULL
            of_payer = _n_open(connection, row.payer) if row.payer else 0
            if of_payer >= most_of_payer:
                return Added.CLIENT_FULL
            if row.payer and not of_payer:
                _begin_at_clock(connection, row.payer)
            connection.execute(insert(advice).values(msgspec.structs.asdict(row)))
    except IntegrityError:
        return Added.SAME_IN_FLIGHT
    return Added.QUEUED


def begin_again(engine: Engine, advice_id: str, payer: str, cost: float, budget: float, now: datetime) -> bool:
    """Queue an advice whose body was dropped; return False if it is queued already, or its request is in flight."""
    dropped = (advice.c.id == advice_id, advice.c.state == "ready", advice.c.packed.is_(None), advice.c.body.is_(None))
    again = {"state": "queued", "payer": payer, "cost": cost, "budget": budget, "attempts": 0, "updated_at": now}
    try:
        with _in_order(engine) as connection:
            if not _n_open(connection, payer):
                _begin_at_clock(connection, payer)
            return connection.execute(update(advice).where(*dropped).values(again)).rowcount == 1
    except IntegrityError:
        return False


def share_with(engine: Engine, advice_id: str, payer: str) -> bool:
    """Charge a queued advice to another payer that asks for the same, if that brings it forward; return whether."""
    with _in_order(engine) as connection:
        found = select(_OF_PAYER).select_from(advice.outerjoin(share, share.c.payer == advice.c.payer))
        used = connection.scalar(found.where(advice.c.id == advice_id, advice.c.state == "queued"))
        if used is None:
            return False
        if not _n_open(connection, payer):
            _begin_at_clock(connection, payer)
        if _used(connection, payer) >= used:
            return False
        connection.execute(update(advice).where(advice.c.id == advice_id).values(payer=payer))
        return True


def start(engine: Engine, job: str, now: datetime, long_at_once: int) -> StoredAdvice | None:
    """Mark the next advice as running in `job`, count the attempt, and return it; None if none may start.

    An advice that this job was interrupted at comes first; otherwise the next by share, a long one only while fewer
    than `long_at_once` long ones run.
    """
    with _in_order(engine) as connection:
        chosen = _interrupted(connection, job) or _next(connection, long_at_once)
        if chosen is None:
            return None
        if chosen.payer:
            used = _used(connection, chosen.payer)
            _set(connection, chosen.payer, used + (chosen.cost or 0.0))
            if used > _used(connection, _CLOCK):
                _set(connection, _CLOCK, used)
        change = update(advice).where(advice.c.id == chosen.id)
        change = change.values(state="running", job=job, attempts=advice.c.attempts + 1, updated_at=now)
        return decoded(connection.execute(change.returning(*advice.c)).one_or_none())


def finish(engine: Engine, advice_id: str, body: AdviceBody, spent: float, now: datetime) -> bool:
    """Store a body that took `spent` CPU seconds. Return False if the row is gone or finished: the first one wins."""
    made_with = func.coalesce(advice.c.first_versions, literal(body.versions, advice.c.first_versions.type))
    kept = {"packed": packed(body), "read_on": now, "first_versions": made_with}
    return _end(engine, advice_id, spent, state="ready", updated_at=now, **kept)


def fail(engine: Engine, advice_id: str, problem: dict[str, Any], spent: float, now: datetime) -> bool:
    """Store why a row failed. Return False if the row is gone or finished."""
    return _end(engine, advice_id, spent, state="failed", problem=problem, updated_at=now)


def _end(engine: Engine, advice_id: str, spent: float, **values: object) -> bool:
    """End an advice, correct its payer's charge, and forget the payer."""
    this = (advice.c.id == advice_id, advice.c.state.in_(_OPEN))
    with _in_order(engine) as connection:
        row = connection.execute(select(advice.c.payer, advice.c.cost).where(*this)).one_or_none()
        if row is None:
            return False
        more = share.c.used + spent - (row.cost or 0.0)
        connection.execute(update(share).where(share.c.payer == row.payer).values(used=more))
        ended = {"payer": None, "cost": None, "budget": None, "job": None, "progress": None}
        connection.execute(update(advice).where(*this).values(ended | values))
        return True


def calls(engine: Engine, limit: int = 1000) -> list[str]:
    """Return the names of the jobs needed to compute every open advice: first those of running ones, then one for each
    that waits, oldest first.

    Any job starts the next advice by share, whatever its name; an interrupted one resumes its own.
    """
    found = select(advice.c.id, advice.c.state, advice.c.job).where(advice.c.state.in_(_OPEN))
    several = rows(engine, found.order_by(advice.c.created_at).limit(limit))
    running = dict.fromkeys(row.job or row.id for row in several if row.state == "running")
    return [*running, *(another(row.id) if row.id in running else row.id for row in several if row.state == "queued")]


def another(name: str) -> str:
    """Return the name of a second job for an advice, for when the job of its own name is busy with another one."""
    return f"{name}-again"


def forget_settled(engine: Engine) -> None:
    """Remove payers that have nothing open and are not ahead of the clock, or all of them once nothing is open."""
    with _in_order(engine) as connection:
        if not _n_open(connection):
            connection.execute(delete(share))
            return
        clock = _used(connection, _CLOCK)
        open_ones = select(advice.c.payer).where(advice.c.state.in_(_OPEN), advice.c.payer.is_not(None))
        done = delete(share).where(share.c.payer != _CLOCK, share.c.used <= clock, share.c.payer.not_in(open_ones))
        connection.execute(done)


def waiting(connection: Connection) -> dict[str, int]:
    """Return how many advices wait in the `short` and in the `long` lane."""
    count = select(func.count()).select_from(advice).where(advice.c.state == "queued")
    long = connection.scalar(count.where(advice.c.cost > SHORT_SECONDS)) or 0
    return {"short": (connection.scalar(count) or 0) - long, "long": long}


def _interrupted(connection: Connection, job: str) -> Row[Any, Any, Any] | None:
    """Return the advice at which this job was interrupted; in rows of older versions, the one it is named after."""
    own = (advice.c.job == job) | (advice.c.job.is_(None) & (advice.c.id == job))
    wanted = select(advice.c.id, advice.c.payer, advice.c.cost).where(advice.c.state == "running", own)
    return connection.execute(wanted.limit(1)).one_or_none()


def _next(connection: Connection, long_at_once: int) -> Row[Any, Any, Any] | None:
    wanted = select(advice.c.id, advice.c.payer, advice.c.cost)
    wanted = wanted.select_from(advice.outerjoin(share, share.c.payer == advice.c.payer))
    wanted = wanted.where(advice.c.state == "queued").order_by(_OF_PAYER, advice.c.created_at, advice.c.id).limit(1)
    long = advice.c.cost > SHORT_SECONDS
    running = select(func.count()).select_from(advice).where(advice.c.state == "running", long)
    if (connection.scalar(running) or 0) >= long_at_once:
        wanted = wanted.where(advice.c.cost.is_(None) | ~long)
    return connection.execute(wanted).one_or_none()


def _begin_at_clock(connection: Connection, payer: str) -> None:
    _set(connection, payer, max(_used(connection, payer), _used(connection, _CLOCK)))


def _used(connection: Connection, payer: str) -> float:
    return connection.scalar(select(share.c.used).where(share.c.payer == payer)) or 0.0


def _set(connection: Connection, payer: str, used: float) -> None:
    if not connection.execute(update(share).where(share.c.payer == payer).values(used=used)).rowcount:
        connection.execute(insert(share).values(payer=payer, used=used))


def _n_open(connection: Connection, payer: str | None = None) -> int:
    count = select(func.count()).select_from(advice).where(advice.c.state.in_(_OPEN))
    return connection.scalar(count if payer is None else count.where(advice.c.payer == payer)) or 0
