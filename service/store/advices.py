"""Rows of `advice`: made, claimed, moved on, finished. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from sqlalchemy import Engine, Row, Select, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from service.engine.advice import AdviceBody
from service.store.engines import glance
from service.store.tables import advice as table
from service.store.tables import validation
from service.wire.advice import AdviceEvent, AdviceRequest

State = Literal["queued", "running", "ready", "failed"]
_IN_FLIGHT = table.c.state.in_(("queued", "running"))
_PROGRESS_LENGTH = 200
# Made once, for they are asked all the time.
_READY = select(table.c.id).where(
    table.c.key == bindparam("asked"),
    table.c.state == "ready",
    ~select(validation.c.id).where(validation.c.advice_id == table.c.id).exists(),
)
_READY = _READY.order_by(table.c.created_at.desc()).limit(1)
_PROGRESS = select(table.c.id, table.c.state, table.c.progress).where(table.c.id == bindparam("asked"))


class StoredAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `request` is canonical; `body` is set when ready, `problem` when failed."""

    id: str
    request_key: str
    key: str | None
    state: State
    repo: str
    revision: str | None
    request: AdviceRequest
    body: AdviceBody | None
    problem: dict[str, Any] | None
    progress: str | None
    attempts: int
    delete_key_hash: str
    created_at: datetime
    updated_at: datetime
    request_id: str | None = None


def add(engine: Engine, row: StoredAdvice) -> bool:
    """Commit a new row. False when one with the same `request_key` is already in flight."""
    try:
        with engine.begin() as connection:
            connection.execute(insert(table).values(msgspec.structs.asdict(row)))
    except IntegrityError:
        return False
    return True


def read(engine: Engine, advice_id: str) -> StoredAdvice | None:
    """Return the row with this id."""
    return _one(engine, select(table).where(table.c.id == advice_id))


def in_flight(engine: Engine, request_key: str) -> StoredAdvice | None:
    """Return the row that is being computed for this request."""
    return _one(engine, select(table).where(table.c.request_key == request_key, _IN_FLIGHT))


def ready_under(engine: Engine, key: str) -> str | None:
    """Return the id of the newest finished row with this key that nobody has had measured.

    What was measured for an advice changes it, whoever's machine that was: from then on it is the asker's own.
    """
    with glance(engine) as connection:
        return connection.scalar(_READY, {"asked": key})


def progress_of(engine: Engine, advice_id: str) -> AdviceEvent | None:
    """Return how far a row is, without what there is to answer."""
    with glance(engine) as connection:
        found = connection.execute(_PROGRESS, {"asked": advice_id}).one_or_none()
    return None if found is None else AdviceEvent(*found)


def unfinished(engine: Engine, limit: int = 1000) -> list[str]:
    """Return the ids of rows that still have to be computed, oldest first."""
    found = select(table.c.id).where(_IN_FLIGHT).order_by(table.c.created_at).limit(limit)
    with engine.connect() as connection:
        return list(connection.scalars(found))


def count_unfinished(engine: Engine) -> int:
    """Return how many rows still have to be computed."""
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(table).where(_IN_FLIGHT)) or 0


def start(engine: Engine, advice_id: str, now: datetime) -> StoredAdvice | None:
    """Mark a row in flight as running, count the attempt, and return it; None when there is nothing left to do."""
    change = update(table).where(table.c.id == advice_id, _IN_FLIGHT)
    change = change.values(state="running", attempts=table.c.attempts + 1, updated_at=now)
    with engine.begin() as connection:
        return _decode(connection.execute(change.returning(*table.c)).one_or_none())


def pin(engine: Engine, advice_id: str, revision: str, key: str) -> None:
    """Note the commit that a row is computed for, and the key that this gives it."""
    _change(engine, advice_id, revision=revision, key=key)


def note_progress(engine: Engine, advice_id: str, progress: str, now: datetime) -> None:
    """Keep the last step of a row, so that whoever asks next sees it without Redis."""
    _change(engine, advice_id, progress=progress[:_PROGRESS_LENGTH], updated_at=now)


def finish(engine: Engine, advice_id: str, body: AdviceBody, now: datetime) -> bool:
    """Store what was computed. False when the row is finished already or gone: the first one to finish wins."""
    return _change(engine, advice_id, state="ready", body=body, progress=None, updated_at=now)


def fail(engine: Engine, advice_id: str, problem: dict[str, Any], now: datetime) -> bool:
    """Store why a row cannot be computed. False when it is finished already or gone."""
    return _change(engine, advice_id, state="failed", problem=problem, progress=None, updated_at=now)


def failed(engine: Engine, ids: Sequence[str], since: datetime | None) -> list[str]:
    """Return the ids of failed rows: of `ids`, and where `since` is given of all that failed since then."""
    which = table.c.id.in_(ids) if since is None else table.c.updated_at >= since
    with engine.connect() as connection:
        return list(connection.scalars(select(table.c.id).where(table.c.state == "failed", which).order_by(table.c.id)))


def requeue(engine: Engine, advice_id: str, now: datetime) -> bool:
    """Queue a failed row again; False when it is not failed any more, or its request is in flight under another row."""
    again = {"state": "queued", "problem": None, "attempts": 0, "updated_at": now}
    change = update(table).where(table.c.id == advice_id, table.c.state == "failed").values(again)
    try:
        with engine.begin() as connection:
            return connection.execute(change).rowcount == 1
    except IntegrityError:
        return False


def remove(engine: Engine, advice_id: str) -> bool:
    """Delete a row; False when there was none."""
    with engine.begin() as connection:
        return connection.execute(delete(table).where(table.c.id == advice_id)).rowcount == 1


def _change(engine: Engine, advice_id: str, **values: object) -> bool:
    change = update(table).where(table.c.id == advice_id, _IN_FLIGHT).values(**values)
    with engine.begin() as connection:
        return connection.execute(change).rowcount == 1


def _one(engine: Engine, query: Select[Any]) -> StoredAdvice | None:
    with engine.connect() as connection:
        return _decode(connection.execute(query).one_or_none())


def _decode(row: Row[Any] | None) -> StoredAdvice | None:
    return None if row is None else msgspec.convert(row, StoredAdvice, from_attributes=True)
