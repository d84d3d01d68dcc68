"""Rows of `result`: what was measured. Each function is one transaction."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, Row, insert, select

from service.engine.config import Engine as EngineName
from service.engine.hardware import Hardware
from service.engine.measured import Failure, MeasuredRow, Prediction
from service.engine.run_flags import RunFlags
from service.store.tables import result as table
from service.wire.results import ResultModel, Seen
from service.wire.runs import TrustTier

MOST_LOG = 1 << 20  # characters of a log, when it is read again
_COLUMNS = [column for column in table.c if column.name != "log"]


class StoredResult(msgspec.Struct, frozen=True, kw_only=True):
    """One result, without its log. `model`: of which files; `seen`: what was printed and sampled beside the rows."""

    id: str
    account_id: str | None
    host_id: str | None
    cell: str
    hardware_key: str
    engine: EngineName
    build: str | None
    repo: str
    variant: str
    model: ResultModel
    flags: RunFlags
    hardware: Hardware
    rows: list[MeasuredRow]
    failure: Failure | None
    seen: Seen
    prediction: Prediction | None
    confirmed: bool
    tier: TrustTier
    measured_at: datetime


def insert_in(connection: Connection, row: StoredResult, log: str) -> None:
    """Add a result to a transaction, its log compressed."""
    packed = zlib.compress(log.encode()) if log else None
    connection.execute(insert(table).values(**msgspec.structs.asdict(row), log=packed))


def read(engine: Engine, result_id: str) -> StoredResult | None:
    """Return the result with this id."""
    with engine.connect() as connection:
        row = connection.execute(select(*_COLUMNS).where(table.c.id == result_id)).one_or_none()
    return None if row is None else _decoded(row)


def read_log(engine: Engine, result_id: str) -> str:
    """Return the log of a result, empty where there is none."""
    with engine.connect() as connection:
        packed = connection.scalar(select(table.c.log).where(table.c.id == result_id))
    return zlib.decompressobj().decompress(packed, 4 * MOST_LOG).decode(errors="replace")[:MOST_LOG] if packed else ""


def of_ids(engine: Engine, ids: Sequence[str]) -> dict[str, StoredResult]:
    """Return the results with these ids, by id."""
    with engine.connect() as connection:
        rows = connection.execute(select(*_COLUMNS).where(table.c.id.in_(ids))).all() if ids else []
    return {row.id: _decoded(row) for row in rows}


def of_cells(engine: Engine, cells: Sequence[str], since: datetime) -> list[StoredResult]:
    """Return the results of these cells that were measured since then, the newest first."""
    wanted = select(*_COLUMNS).where(table.c.cell.in_(cells), table.c.measured_at >= since)
    with engine.connect() as connection:
        rows = connection.execute(wanted.order_by(table.c.measured_at.desc()).limit(200)).all() if cells else []
    return [_decoded(row) for row in rows]


def previous(engine: Engine, cell: str, hardware_key: str, since: datetime) -> StoredResult | None:
    """Return the newest result of a cell on such a rig that was measured since then."""
    same = (table.c.cell == cell, table.c.hardware_key == hardware_key, table.c.measured_at >= since)
    with engine.connect() as connection:
        query = select(*_COLUMNS).where(*same).order_by(table.c.measured_at.desc()).limit(1)
        row = connection.execute(query).one_or_none()
    return None if row is None else _decoded(row)


def _decoded(row: Row[Any]) -> StoredResult:
    return msgspec.convert(row, StoredResult, from_attributes=True)
