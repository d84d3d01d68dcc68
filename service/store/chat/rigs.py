"""Rows of `rig`: the hardware that a person had us remember. Each function is one transaction."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Engine, delete, insert, select

from service.store.queries import value
from service.store.tables import account, rig


def save(engine: Engine, account_id: str, hardware: str, now: datetime) -> None:
    """Keep an account's hardware in place of what was kept before."""
    with engine.begin() as connection:
        connection.execute(delete(rig).where(rig.c.account_id == account_id))
        connection.execute(insert(rig).values(account_id=account_id, hardware=hardware, saved_at=now))


def of_account(engine: Engine, name: str) -> str | None:
    """Return the hardware that the account `name` had us remember."""
    found = select(rig.c.hardware).join(account).where(account.c.name == name)
    return value(engine, found)
