"""Rows of `account`, `token` and `rig`. Each function is one transaction."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from service.store.queries import changed, column, converted, new_id, one, value
from service.store.tables import account, host, result, rig, token


class StoredAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One account."""

    id: str
    name: str
    pseudonym: str
    created_at: datetime
    trusted_at: datetime | None
    banned_at: datetime | None


class StoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """One token of an account, without its secret."""

    id: str
    account_id: str
    scopes: tuple[str, ...]
    created_at: datetime
    used_at: datetime | None
    revoked_at: datetime | None


def ensure(engine: Engine, name: str, pseudonyms: Iterable[str], now: datetime) -> StoredAccount:
    """Return the account of this name, created if there is none under the first free one of `pseudonyms`.

    Raises RuntimeError if none is free.
    """
    for pseudonym in pseudonyms:
        if (found := named(engine, name)) is not None:
            return found
        row: dict[str, Any] = {"id": new_id(), "name": name, "pseudonym": pseudonym, "created_at": now}
        with suppress(IntegrityError), engine.begin() as connection:  # another process may have been faster
            connection.execute(insert(account).values(row))
            return StoredAccount(**row, trusted_at=None, banned_at=None)
    raise RuntimeError("no pseudonym is free")


def named(engine: Engine, name: str) -> StoredAccount | None:
    return one(engine, select(account).where(account.c.name == name), StoredAccount)


def name_of(engine: Engine, account_id: str) -> str | None:
    return value(engine, select(account.c.name).where(account.c.id == account_id))


def forget(engine: Engine, account_id: str) -> None:
    """Delete an account with everything that is only its own, including its private hosts' results, since without the
    hosts nothing would keep those private. A banned account stays, with its ban and nothing else."""
    private = select(host.c.id).where(host.c.account_id == account_id, host.c.visibility == "private")
    with engine.begin() as connection:
        connection.execute(delete(result).where(result.c.host_id.in_(private)))
        gone = connection.execute(delete(account).where(account.c.id == account_id).returning(*account.c)).one_or_none()
        if gone is not None and gone.banned_at is not None:
            connection.execute(insert(account).values(**gone._mapping))


def add_token(engine: Engine, account_id: str, token_hash: str, scopes: tuple[str, ...], now: datetime) -> StoredToken:
    row = StoredToken(
        id=secrets.token_hex(8), account_id=account_id, scopes=scopes, created_at=now, used_at=None, revoked_at=None
    )
    changed(engine, insert(token).values(**msgspec.structs.asdict(row), token_hash=token_hash))
    return row


def with_token(engine: Engine, token_hash: str) -> tuple[StoredAccount, StoredToken] | None:
    """Return the token with this hash and its account; None if it is unknown or revoked, or the account banned."""
    good = (token.c.token_hash == token_hash, token.c.revoked_at.is_(None), account.c.banned_at.is_(None))
    with engine.connect() as connection:
        found = connection.execute(select(token).join(account).where(*good)).one_or_none()
        if found is None:
            return None
        owner = connection.execute(select(account).where(account.c.id == found.account_id)).one()
    return converted(owner, StoredAccount), converted(found, StoredToken)


def note_use(engine: Engine, token_id: str, now: datetime) -> None:
    changed(engine, update(token).where(token.c.id == token_id).values(used_at=now))


def tokens(engine: Engine) -> list[tuple[StoredAccount, StoredToken]]:
    """Return all tokens with their accounts, oldest first, revoked ones included."""
    with engine.connect() as connection:
        owners = {row.id: converted(row, StoredAccount) for row in connection.execute(select(account))}
        return [
            (owners[row.account_id], converted(row, StoredToken))
            for row in connection.execute(select(token).order_by("created_at"))
        ]


def good_tokens(engine: Engine, account_id: str) -> list[str]:
    """Return the ids of an account's tokens that are not revoked."""
    wanted = select(token.c.id).where(token.c.account_id == account_id, token.c.revoked_at.is_(None))
    return column(engine, wanted)


def revoke(engine: Engine, token_id: str, now: datetime) -> bool:
    """Revoke a token; return False if there is none, or it was revoked before."""
    change = update(token).where(token.c.id == token_id, token.c.revoked_at.is_(None)).values(revoked_at=now)
    return changed(engine, change) == 1


def save_rig(engine: Engine, account_id: str, hardware: str, now: datetime) -> None:
    """Store an account's hardware, replacing what was stored before."""
    with engine.begin() as connection:
        connection.execute(delete(rig).where(rig.c.account_id == account_id))
        connection.execute(insert(rig).values(account_id=account_id, hardware=hardware, saved_at=now))


def rig_of(engine: Engine, name: str) -> str | None:
    found = select(rig.c.hardware).join(account).where(account.c.name == name)
    return value(engine, found)
