"""Rows of `advice`: reading, pinning, requeueing, removal. `service.store.advice.queue` has how they wait and end.

Each function is one transaction. A body is stored compressed: 88 KB of JSON take 10.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from sqlalchemy import Engine, Row, Select, bindparam, delete, select, update

from service.engine.advice import AdviceBody, Versions
from service.store.engines import glance
from service.store.queries import accepted, changed, column, is_id
from service.store.tables import advice as table
from service.store.tables import validation
from service.wire.advice.advice import AdviceEvent, AdviceRequest

State = Literal["queued", "running", "ready", "failed"]
_IN_FLIGHT = table.c.state.in_(("queued", "running"))
_PROGRESS_LENGTH = 200
_A_DAY = timedelta(days=1)
_LEVEL = 6
_ENCODER = msgspec.json.Encoder()
# Built once, because they are run all the time.
READY = select(table.c.id).where(
    table.c.key == bindparam("asked"),
    table.c.state == "ready",
    table.c.packed.is_not(None) | table.c.body.is_not(None),
    ~select(validation.c.id).where(validation.c.advice_id == table.c.id).exists(),
)
READY = READY.order_by(table.c.created_at.desc()).limit(1)
_PROGRESS = select(table.c.id, table.c.state, table.c.progress)
_PROGRESS = _PROGRESS.where(table.c.id.in_(bindparam("asked", expanding=True)))


class StoredAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `request` is canonical; `body` is set when ready, unless dropped, and `problem` when failed.

    The table's comment explains `payer`, `cost`, `budget`, `job`, `account`, `read_on` and `first_versions`.
    """

    id: str
    request_key: str
    key: str | None = None
    state: State
    repo: str
    revision: str | None = None
    request: AdviceRequest
    body: AdviceBody | None = None
    problem: dict[str, Any] | None = None
    progress: str | None = None
    attempts: int = 0
    delete_key_hash: str
    created_at: datetime
    updated_at: datetime
    request_id: str | None = None
    payer: str | None = None
    cost: float | None = None
    budget: float | None = None
    job: str | None = None
    account: bool | None = None
    read_on: datetime | None = None
    first_versions: Versions | None = None

    @property
    def is_dropped(self) -> bool:
        """Whether its answer was computed but is no longer stored."""
        return self.state == "ready" and self.body is None


def read(engine: Engine, advice_id: str) -> StoredAdvice | None:
    return _one(engine, select(table).where(table.c.id == advice_id)) if is_id(advice_id) else None


def in_flight(engine: Engine, request_key: str) -> StoredAdvice | None:
    """Return the row that is waiting or being computed for this request."""
    return _one(engine, select(table).where(table.c.request_key == request_key, _IN_FLIGHT))


def ready_under(engine: Engine, key: str) -> str | None:
    """Return the id of the newest finished row with this key that nobody has had measured.

    Measuring an advice changes it, on whoever's machine, so from then on it belongs to its asker.
    """
    with glance(engine) as connection:
        return connection.scalar(READY, {"asked": key})


def progress_of(engine: Engine, ids: Sequence[str]) -> dict[str, AdviceEvent]:
    """Return the progress of rows by id, without their bodies; missing rows are left out."""
    with glance(engine) as connection:
        return {row.id: AdviceEvent(*row) for row in connection.execute(_PROGRESS, {"asked": list(filter(is_id, ids))})}


def note_read(engine: Engine, row: StoredAdvice, now: datetime) -> None:
    """Record that a body was read, at most once a day."""
    if row.read_on is not None and now - row.read_on >= _A_DAY:
        changed(engine, update(table).where(table.c.id == row.id).values(read_on=now))


def pin(engine: Engine, advice_id: str, revision: str, key: str) -> None:
    """Record the commit that a row is computed for, and the key that results."""
    _change(engine, advice_id, revision=revision, key=key)


def note_progress(engine: Engine, advice_id: str, progress: str, now: datetime) -> None:
    """Store a row's latest step, so that it can be read without Redis."""
    _change(engine, advice_id, progress=progress[:_PROGRESS_LENGTH], updated_at=now)


def failed(engine: Engine, ids: Sequence[str], since: datetime | None) -> list[str]:
    """Return the ids of failed rows: among `ids`, or if `since` is given, all that failed since then."""
    which = table.c.id.in_(ids) if since is None else table.c.updated_at >= since
    return column(engine, select(table.c.id).where(table.c.state == "failed", which).order_by(table.c.id))


def requeue(engine: Engine, advice_id: str, now: datetime) -> bool:
    """Queue a failed row again; return False if it is not failed, or its request is in flight as another row."""
    again = {"state": "queued", "problem": None, "attempts": 0, "updated_at": now}
    return accepted(engine, update(table).where(table.c.id == advice_id, table.c.state == "failed").values(again))


def remove(engine: Engine, advice_id: str) -> bool:
    """Delete a row; return False if there is none."""
    return changed(engine, delete(table).where(table.c.id == advice_id)) == 1


def _change(engine: Engine, advice_id: str, **values: object) -> None:
    changed(engine, update(table).where(table.c.id == advice_id, _IN_FLIGHT).values(**values))


def _one(engine: Engine, query: Select[Any]) -> StoredAdvice | None:
    with engine.connect() as connection:
        return decoded(connection.execute(query).one_or_none())


def packed(body: AdviceBody) -> bytes:
    return zlib.compress(_ENCODER.encode(body), _LEVEL)


def decoded(row: Row[Any] | None) -> StoredAdvice | None:
    """Return a table row as a Struct, whether its body is stored compressed or as older versions did."""
    if row is None:
        return None
    known = {name: getattr(row, name) for name in StoredAdvice.__struct_fields__}
    if row.packed is not None:
        known["body"] = msgspec.json.decode(zlib.decompress(row.packed))
    return msgspec.convert(known, StoredAdvice)
