"""Rows of `result_change`: what submitters changed of their results. Each function is part of a transaction, or one."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, delete, insert, select

from service.store.queries import several
from service.store.tables import result_change as table

MOST_CHANGES = 100
"""Kept of one result: a submitter who corrects it more often sends it again."""


class StoredChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change: `before` has what was changed, as it was, in words."""

    result_id: str
    at: datetime
    what: str
    before: dict[str, str]


def add_in(connection: Connection, change: StoredChange) -> None:
    """Add a change to a transaction."""
    row: dict[str, Any] = msgspec.structs.asdict(change) | {"id": secrets.token_urlsafe(16)}
    connection.execute(insert(table).values(row))


def forget_in(connection: Connection, result_id: str) -> None:
    """Delete what a result was before, within a transaction."""
    connection.execute(delete(table).where(table.c.result_id == result_id))


def of_result(engine: Engine, result_id: str) -> list[StoredChange]:
    """Return the changes of a result, the oldest first."""
    wanted = select(table).where(table.c.result_id == result_id).order_by(table.c.at, table.c.id).limit(MOST_CHANGES)
    return several(engine, wanted, StoredChange)
