"""Rows of `validation`: requests to have an advice measured. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Engine, insert, or_, select, union, update
from sqlalchemy.exc import IntegrityError

from service.store.measuring import runs
from service.store.measuring.hosts import StoredHost
from service.store.measuring.runs import Eligible, StoredRun
from service.store.queries import by_id, changed, column, one, rows, several
from service.store.tables import account, host, run, run_host
from service.store.tables import validation as table
from service.store.viewers import Viewer
from service.wire.measuring.runs import Mode, ValidationRequest

_MOST_HOSTS = 500


class StoredValidation(msgspec.Struct, frozen=True, kw_only=True):
    """One validation. `refused`: reasons why some configs are not measured."""

    id: str
    advice_id: str
    account_id: str
    mode: Mode
    request: ValidationRequest
    refused: list[str]
    idempotency_key: str | None
    cancelled_at: datetime | None = None
    created_at: datetime


class LimitReached(Exception):
    """The account has too many open validations."""


def add(
    engine: Engine, row: StoredValidation, asked: Sequence[tuple[StoredRun, Sequence[Eligible]]],
    most_open: int | None = None,
) -> bool:  # fmt: skip
    """Commit a validation with its runs, all or nothing. Return False if its idempotency key was used before.

    Raises LimitReached if `most_open` others of the account are open on others' hosts. An account's requests are
    counted one at a time, else many at once would all find room.
    """
    try:
        with engine.begin() as connection:
            if most_open is not None:
                connection.execute(update(account).where(account.c.id == row.account_id).values(name=account.c.name))
                if runs.open_validations(connection, row.account_id) >= most_open:
                    raise LimitReached
            connection.execute(insert(table).values(msgspec.structs.asdict(row)))
            for one, hosts in asked:
                runs.insert_in(connection, one, hosts)
    except IntegrityError:
        if row.idempotency_key is None or with_key(engine, row.account_id, row.idempotency_key) is None:
            raise
        return False
    return True


def add_runs(engine: Engine, asked: Sequence[tuple[StoredRun, Sequence[Eligible]]]) -> bool:
    """Commit more runs of a validation; return False if one exists already, since another process was faster."""
    try:
        with engine.begin() as connection:
            for one, hosts in asked:
                runs.insert_in(connection, one, hosts)
    except IntegrityError:
        return False
    return True


def read(engine: Engine, validation_id: str) -> StoredValidation | None:
    return by_id(engine, select(table), table.c.id, validation_id, StoredValidation)


def is_seen_by(engine: Engine, row: StoredValidation, viewer: Viewer) -> bool:
    """Return whether a viewer may see a validation: its asker and operators always, the rest unless private hosts may
    take part or did, in which case only the owners of those."""
    if viewer.is_operator or viewer.account_id == row.account_id:
        return True
    of_it = select(run.c.id).where(run.c.validation_id == row.id)
    may = select(run_host.c.host_id).where(run_host.c.run_id.in_(of_it))
    held = select(run.c.host_id).where(run.c.validation_id == row.id, run.c.host_id.is_not(None))
    wanted = select(host.c.account_id).where(host.c.visibility == "private", host.c.id.in_(union(may, held)))
    owners = set(column(engine, wanted.distinct()))
    return not owners or viewer.account_id in owners


def with_key(engine: Engine, account_id: str, key: str) -> StoredValidation | None:
    same = (table.c.account_id == account_id, table.c.idempotency_key == key)
    return one(engine, select(table).where(*same), StoredValidation)


def of_advice(engine: Engine, advice_id: str) -> list[StoredValidation]:
    """Return the validations of an advice, oldest first."""
    wanted = select(table).where(table.c.advice_id == advice_id).order_by(table.c.created_at, table.c.id)
    return several(engine, wanted, StoredValidation)


def tunings_since(engine: Engine, since: datetime) -> list[str]:
    """Return the tunings asked for since then that were not cancelled."""
    wanted = select(table.c.id).where(table.c.mode == "tune", table.c.cancelled_at.is_(None))
    return column(engine, wanted.where(table.c.created_at >= since).limit(_MOST_HOSTS))


def cancel(engine: Engine, validation_id: str, now: datetime) -> None:
    changed(engine, update(table).where(table.c.id == validation_id).values(cancelled_at=now))
    runs.cancel(engine, validation_id, now)


def hosts_for(engine: Engine, account_id: str | None) -> list[StoredHost]:
    """Return the hosts that may measure for an account, its own first: public ones, and its own unrevoked ones."""
    mine = host.c.account_id == account_id
    public = (host.c.visibility == "public") & host.c.state.in_(("active", "paused"))
    wanted = select(host).join(account, account.c.id == host.c.account_id).where(account.c.banned_at.is_(None))
    wanted = wanted.where(or_(public, mine), host.c.state != "revoked", host.c.probe.is_not(None))
    return several(engine, wanted.order_by(~mine, host.c.created_at, host.c.id).limit(_MOST_HOSTS), StoredHost)


def pseudonyms(engine: Engine, host_ids: Sequence[str]) -> dict[str, str]:

    wanted = select(host.c.id, host.c.pseudonym).where(host.c.id.in_(host_ids))
    return {row.id: row.pseudonym for row in rows(engine, wanted)} if host_ids else {}
