"""Rows of `removal_request`: requests to remove a result, and their outcome."""

from __future__ import annotations

import secrets
from datetime import datetime

from sqlalchemy import Connection, Engine, func, insert, select, update

from service.store.operations.tables import removal_request as table
from service.store.queries import changed, shown, value
from service.store.results.moderation import ABOUT
from service.store.tables import audit, result
from service.wire.results.moderation import OpenRemovalRequest

_MOST = 200


def add(engine: Engine, result_id: str, account_id: str | None, text: str, contact: str | None, now: datetime) -> str:
    """Store a request; return its id."""
    row = {"id": secrets.token_urlsafe(16), "result_id": result_id, "account_id": account_id, "text": text}
    changed(engine, insert(table).values(**row, contact=contact, created_at=now))
    return str(row["id"])


def open_requests(engine: Engine) -> list[OpenRemovalRequest]:
    """Return the oldest 200 undecided requests."""
    wanted = select(table, table.c.result_id.label("result"), result.c.origin, *ABOUT)
    wanted = wanted.join(result, result.c.id == table.c.result_id).where(table.c.closed_at.is_(None))
    return shown(engine, wanted.order_by(table.c.created_at, table.c.id).limit(_MOST), OpenRemovalRequest)


def close(
    connection: Connection, by: str, now: datetime, *, removed: bool, result_id: str = "", request_id: str = ""
) -> int:
    """Close a result's open requests, or one by its id, and delete contacts; return how many."""
    which = table.c.id == request_id if request_id else table.c.result_id == result_id
    values = {"closed_at": now, "closed_by": by, "removed": removed, "contact": None}
    return int(connection.execute(update(table).where(which, table.c.closed_at.is_(None)).values(**values)).rowcount)


def last_removal(engine: Engine) -> datetime | None:
    """Return when an operator last removed a result: earlier dumps may still contain it."""
    return value(engine, select(func.max(audit.c.at)).where(audit.c.action == "remove"))
