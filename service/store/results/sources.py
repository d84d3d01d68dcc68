"""Rows of `source`: services whose results were imported; and the imported results themselves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import BigInteger, Connection, Engine, Integer, String, delete, insert, select, update

from service.store.queries import one, several
from service.store.results import results
from service.store.results.results import StoredResult
from service.store.tables import result
from service.store.tables import source as table

_GONE = "its source no longer has it"
_MANY = 500


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Another service: its dumps' key, its address, and when its latest imported dump was made and imported."""

    key: str
    address: str
    made_at: datetime
    imported_at: datetime


def unfit(row: StoredResult) -> str | None:
    """Return which value of a result does not fit the database: the column of a text or number that is too long."""
    for column in result.c:
        value, kind = getattr(row, column.name, None), column.type
        if isinstance(value, str) and isinstance(kind, String) and len(value) > (kind.length or len(value)):
            return column.name
        bits = 63 if isinstance(kind, BigInteger) else 31
        if isinstance(value, int) and isinstance(kind, Integer) and abs(value) >= 1 << bits:
            return column.name
    return "a NUL in a text" if b"\\u0000" in msgspec.json.encode(row) else None


def read(engine: Engine, key: str) -> Source | None:
    return one(engine, select(table).where(table.c.key == key), Source)


def every(engine: Engine) -> list[Source]:
    """Return all sources, by address."""
    return several(engine, select(table).order_by(table.c.address, table.c.key), Source)


def put_in(connection: Connection, source: Source) -> None:
    values = msgspec.structs.asdict(source)
    if connection.execute(update(table).where(table.c.key == source.key).values(**values)).rowcount == 0:
        connection.execute(insert(table).values(**values))


def drop_in(connection: Connection, key: str) -> None:
    connection.execute(delete(table).where(table.c.key == key))


def add_in(connection: Connection, rows: Sequence[StoredResult]) -> int:
    """Add a source's results whose ids and figures are new, and update those that it changed; return how many are new.

    A result removed because its source no longer had it is restored with it; one deleted or hidden here stays so.
    """
    added = 0
    for first in range(0, len(rows), _MANY):
        these = rows[first : first + _MANY]
        ids, keys = [row.id for row in these], [row.rows_key for row in these]
        connection.execute(delete(result).where(result.c.id.in_(ids), result.c.state_reason == _GONE))
        here = results.of_ids_in(connection, ids)
        for row in these:
            old = here.get(row.id)
            if old is not None and old.source == row.source and _is_undecided(old):
                new = msgspec.structs.replace(row, created_at=old.created_at)
                if new != old:
                    results.change(connection, row.id, **msgspec.structs.asdict(new))
        same = select(result.c.rows_key).where(result.c.rows_key.in_(keys), results.is_known())
        known = set(connection.scalars(same))
        added += results.insert_missing(connection, [row for row in these if row.rows_key not in known])
    return added


def _is_undecided(row: StoredResult) -> bool:
    return row.state in ("shown", "quarantined") and not (row.state_reason or "").startswith(results.OPERATOR)


def remove_in(connection: Connection, key: str, kept: set[str]) -> int:
    """Remove a source's results except those with the ids `kept`, erasing their contents; return how many."""
    here = select(result.c.id).where(result.c.source == key, result.c.state != "deleted")
    gone = [one for one in connection.scalars(here).all() if one not in kept]
    for result_id in gone:
        results.erase(connection, result_id, _GONE, source_owner=None)
    return len(gone)
