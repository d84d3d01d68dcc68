"""Rows of `interaction`, questions to bots: add, claim, update, end. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Engine, delete, exists, func, insert, or_, select, update

from service.store.queries import accepted, changed, one, several, value
from service.store.tables import interaction as table
from service.wire.bots import Interaction, Visit

_earlier = table.alias("earlier")
_WAITS = exists().where(  # for the row's turn: an earlier one of the same person is not done
    table.c.visit["in_turn"].as_boolean(),
    _earlier.c.account == table.c.account,
    _earlier.c.created_at < table.c.created_at,
    _earlier.c.due_at.is_not(None),
    _earlier.c.visit["in_turn"].as_boolean(),
)


def add(engine: Engine, row: Interaction) -> bool:
    """Commit a new row; return False if its id exists, because the same question came twice."""
    return accepted(engine, insert(table).values(msgspec.structs.asdict(row)))


def read(engine: Engine, identity: str) -> Interaction | None:
    return one(engine, select(table).where(table.c.id == identity), Interaction)


def claim(engine: Engine, now: datetime, until: datetime, limit: int) -> list[Interaction]:
    """Claim due rows whose turn it is, oldest first: they become due again at `until`, even if the claimer dies."""
    due = select(table.c.id).where(table.c.due_at <= now, ~_WAITS)
    with engine.connect() as connection:  # most looks find nothing, and must not delay writers
        if connection.scalar(due.limit(1)) is None:
            return []
    first = due.order_by(table.c.due_at).limit(limit).with_for_update(skip_locked=True)
    taken = update(table).where(table.c.id.in_(first), table.c.due_at <= now)
    return several(engine, taken.values(due_at=until).returning(*table.c), Interaction)


def release(engine: Engine, identity: str, held: timedelta, now: datetime) -> None:
    """Make a row due that is held back for `held` after its creation; one that was claimed meanwhile stays claimed."""
    row = read(engine, identity)
    if row is None or row.due_at != row.created_at + held:
        return
    is_held = (table.c.id == identity) & (table.c.due_at == row.due_at)
    changed(engine, update(table).where(is_held).values(due_at=now))


def renew(engine: Engine, ids: Sequence[str], until: datetime) -> None:
    changed(engine, update(table).where(table.c.id.in_(ids), table.c.due_at.is_not(None)).values(due_at=until))


def keep(engine: Engine, identity: str, visit: Visit, due_at: datetime) -> None:
    """Store how far an answer is, and when to look again."""
    is_open = (table.c.id == identity) & table.c.due_at.is_not(None)
    changed(engine, update(table).where(is_open).values(visit=visit, due_at=due_at))


def end(engine: Engine, identity: str) -> None:
    """Mark a row as answered, deleting the question and the secrets of where the answer went."""
    changed(engine, update(table).where(table.c.id == identity).values(ask=None, reply=None, due_at=None))


def purge(engine: Engine, before: datetime) -> int:
    """Delete answered rows created before `before`; return how many."""
    return changed(engine, delete(table).where(table.c.due_at.is_(None), table.c.created_at < before))


def count_open(engine: Engine) -> int:
    return value(engine, select(func.count()).select_from(table).where(table.c.due_at.is_not(None))) or 0


def forget(engine: Engine, account: str, until: datetime) -> None:
    """Delete an account's questions, but for unanswered ones that were created after `until`."""
    is_past = or_(table.c.due_at.is_(None), table.c.created_at <= until)
    changed(engine, delete(table).where(table.c.account == account, is_past))
