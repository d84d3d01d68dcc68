"""Rows of `enrolment`, `host` and `host_session`. Each function is one transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, delete, exists, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from service.store.queries import by_id, changed, converted, one, rows, several, value
from service.store.results import board
from service.store.results.trust import writing
from service.store.tables import account, enrolment, host, host_session, run
from service.wire.measuring.hosts import HostState, Probe, Visibility

_WHO = (host.c.id, host.c.account_id, host.c.pseudonym, host.c.state)
_MOST_SHOWN = 500  # hosts in one list


class SignedHost(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a host whose signed call was verified, without its own description."""

    id: str
    account_id: str
    pseudonym: str
    state: HostState


class StoredHost(SignedHost, frozen=True, kw_only=True):
    """One host. `counter`: of its last signed call; `probe`: its latest description of itself."""

    public_key: str
    visibility: Visibility
    counter: int = 0
    probe: Probe | None = None
    hardware_key: str | None = None
    created_at: datetime
    approved_at: datetime | None = None
    seen_at: datetime | None = None


class StoredEnrolment(msgspec.Struct, frozen=True, kw_only=True):
    """A code that can still be used, with its owner and expiry."""

    account_id: str
    owner: str
    visibility: Visibility
    expires_at: datetime


class KnownKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key that verifies a host's calls, and what may forbid them."""

    public_key: str
    state: HostState
    banned_at: datetime | None


class KeyTaken(Exception):
    """A host with this public key is enrolled already."""


class PseudonymTaken(Exception):
    """Another host has this pseudonym."""


class Measured(msgspec.Struct, frozen=True):
    """A host's work: runs that ended, and GPU-seconds (cards times seconds)."""

    runs: int
    gpu_seconds: float


def add_enrolment(
    engine: Engine, code_hash: str, account_id: str, visibility: Visibility, now: datetime, expires_at: datetime
) -> None:
    """Commit a new code; delete codes that expired unused."""
    row = {"code_hash": code_hash, "account_id": account_id, "visibility": visibility}
    with engine.begin() as connection:
        connection.execute(delete(enrolment).where(enrolment.c.expires_at < now, enrolment.c.host_id.is_(None)))
        connection.execute(insert(enrolment).values(**row, created_at=now, expires_at=expires_at))


def read_enrolment(engine: Engine, code_hash: str, now: datetime) -> StoredEnrolment | None:
    """Return the unused code with this hash; None if there is none, or it has expired."""
    wanted = select(enrolment, account.c.name.label("owner")).join(account, account.c.id == enrolment.c.account_id)
    return one(engine, wanted.where(*_usable(code_hash, now), account.c.banned_at.is_(None)), StoredEnrolment)


def enrol(engine: Engine, code_hash: str, new: StoredHost, now: datetime) -> bool:
    """Commit a host and use up its code, both or neither; return False if the code is no longer valid.

    Raises KeyTaken, or PseudonymTaken, after which another pseudonym may succeed.
    """
    try:
        with engine.begin() as connection:
            connection.execute(insert(host).values(msgspec.structs.asdict(new)))
            used = update(enrolment).where(*_usable(code_hash, now)).values(host_id=new.id)
            if connection.execute(used).rowcount == 1:
                return True
            connection.rollback()
            return False
    except IntegrityError as error:
        raise (PseudonymTaken if "pseudonym" in str(error.orig) else KeyTaken) from error


def _usable(code_hash: str, now: datetime) -> tuple[Any, ...]:
    return enrolment.c.code_hash == code_hash, *_unused(now)


def _unused(now: datetime) -> tuple[Any, ...]:
    return enrolment.c.host_id.is_(None), enrolment.c.expires_at >= now


def read(engine: Engine, host_id: str) -> StoredHost | None:
    return by_id(engine, select(host), host.c.id, host_id, StoredHost)


def known_key(engine: Engine, host_id: str) -> KnownKey | None:
    """Return the key of a host, and whether the host still counts."""
    wanted = select(host.c.public_key, host.c.state, account.c.banned_at).join(account)
    return one(engine, wanted.where(host.c.id == host_id), KnownKey)


def seen_by(engine: Engine, account_id: str | None, host_id: str | None = None) -> list[StoredHost]:
    """Return the hosts that an account may see, its own first, then by age: all of its own, and public ones that were
    approved. With `host_id`, only that one."""
    approved = host.c.state.in_(("active", "paused")) & host.c.approved_at.is_not(None)
    mine = host.c.account_id == account_id
    wanted = select(host).join(account).where(or_(mine, approved & (host.c.visibility == "public")))
    wanted = wanted.where(account.c.banned_at.is_(None)).order_by((~mine), host.c.created_at, host.c.id)
    if host_id is not None:
        wanted = wanted.where(host.c.id == host_id)
    return several(engine, wanted.limit(_MOST_SHOWN), StoredHost)


def count_of(engine: Engine, account_id: str, now: datetime) -> int:
    """Return how many unrevoked hosts and valid codes an account has."""
    hosts = select(func.count()).where(host.c.account_id == account_id, host.c.state != "revoked")
    codes = select(func.count()).where(enrolment.c.account_id == account_id, *_unused(now))
    return (value(engine, hosts) or 0) + (value(engine, codes) or 0)


def measured(engine: Engine) -> dict[str, Measured]:
    """Return each host's work, by id."""
    query = select(run.c.host_id, func.count(), func.sum(run.c.gpu_seconds)).group_by(run.c.host_id)
    ended = query.where(run.c.host_id.is_not(None), run.c.state.in_(("succeeded", "failed")))
    return {row[0]: Measured(row[1], float(row[2])) for row in rows(engine, ended)}


def given(engine: Engine, account_id: str) -> dict[tuple[str, bool], Measured]:
    """Return the work of an account's hosts, by (host, whether it was for another account)."""
    other = (run.c.account_id != account_id).label("other")
    query = select(run.c.host_id, other, func.count(), func.sum(run.c.gpu_seconds))
    query = query.join(host, host.c.id == run.c.host_id)
    query = query.where(host.c.account_id == account_id, run.c.state.in_(("succeeded", "failed")), ~run.c.previous)
    query = query.group_by(run.c.host_id, other)
    return {(row[0], bool(row[1])): Measured(row[2], float(row[3])) for row in rows(engine, query)}


def received(engine: Engine, account_id: str) -> Measured:
    """Return the work of other people's hosts for an account."""
    query = select(func.count(), func.coalesce(func.sum(run.c.gpu_seconds), 0.0)).join(host, host.c.id == run.c.host_id)
    query = query.where(run.c.account_id == account_id, host.c.account_id != account_id, ~run.c.previous)
    with engine.connect() as connection:
        row = connection.execute(query.where(run.c.state.in_(("succeeded", "failed")))).one()
    return Measured(row[0], float(row[1]))


def count_up(
    engine: Engine, host_id: str, counter: int, now: datetime, session: str | None = None
) -> SignedHost | None:
    """Record a signed call and return its host, in one statement.

    `session`: the hash of the call's session token, None for a call that needs none. Returns None when `counter` is not
    above that of an earlier call (a replay, or out of order), the session is over or another host's, the host is
    revoked, or its owner banned.
    """
    banned = exists().where(account.c.id == host.c.account_id, account.c.banned_at.is_not(None))
    good = [host.c.id == host_id, host.c.counter < counter, host.c.state != "revoked", ~banned]
    if session is not None:
        running = (host_session.c.token_hash == session, host_session.c.host_id == host_id)
        good.append(exists().where(*running, host_session.c.expires_at > now))
    change = update(host).where(*good).values(counter=counter, seen_at=now).returning(*_WHO)
    return one(engine, change, SignedHost)


def save_probe(engine: Engine, host_id: str, probe: Probe, hardware_key: str) -> None:
    changed(engine, update(host).where(host.c.id == host_id).values(probe=probe, hardware_key=hardware_key))


def change(engine: Engine, host_id: str, now: datetime, **values: object) -> StoredHost | None:
    """Change a host as `change_in`, in a transaction of its own.

    A change of visibility changes the board, so it excludes other writers of the board: else each could wait for groups
    that the other holds.
    """
    with writing(engine) if "visibility" in values else engine.begin() as connection:
        return change_in(connection, host_id, now, **values)


def change_in(connection: Connection, host_id: str, now: datetime, **values: object) -> StoredHost | None:
    """Change a host that is not revoked; record its first approval; if it becomes revoked, end its sessions.

    The board has the results of public hosts only, and is updated.
    """
    wanted = update(host).where(host.c.id == host_id, host.c.state != "revoked")
    row = connection.execute(wanted.values(values).returning(*host.c)).one_or_none()
    if row is None:
        return None
    found = converted(row, StoredHost)
    if found.state == "active" and found.approved_at is None:
        found = msgspec.structs.replace(found, approved_at=now)
        connection.execute(update(host).where(host.c.id == host_id).values(approved_at=now))
    if found.state == "revoked":
        _end_sessions(connection, host_id)
    if "visibility" in values:
        board.keep_of(connection, host_id)
    return found


def named(connection: Connection, name: str) -> str | None:
    """Return the id of the unrevoked host with this pseudonym or id."""
    known = or_(host.c.pseudonym == name, host.c.id == name)
    return connection.scalar(select(host.c.id).where(known, host.c.state != "revoked"))


def all_with_owners(engine: Engine) -> list[tuple[StoredHost, str]]:
    """Return every host with its owner's name, last seen first, revoked ones included."""
    wanted = select(host, account.c.name.label("owner")).join(account)
    wanted = wanted.order_by(host.c.seen_at.desc().nulls_last(), host.c.id)
    return [(converted(row, StoredHost), row.owner) for row in rows(engine, wanted)]


def add_session(engine: Engine, token_hash: str, host_id: str, now: datetime, expires_at: datetime) -> None:
    """Commit a session, replacing any other of the host."""
    with engine.begin() as connection:
        _end_sessions(connection, host_id)
        connection.execute(delete(host_session).where(host_session.c.expires_at < now))
        row = {"token_hash": token_hash, "host_id": host_id, "expires_at": expires_at}
        connection.execute(insert(host_session).values(row))


def has_session(engine: Engine, token_hash: str, host_id: str, now: datetime) -> bool:
    """Return whether a token is that of a running session of this host."""
    good = (host_session.c.token_hash == token_hash, host_session.c.host_id == host_id)
    found = value(engine, select(host_session.c.expires_at).where(*good))
    return found is not None and found > now


def _end_sessions(connection: Connection, host_id: str) -> None:
    connection.execute(delete(host_session).where(host_session.c.host_id == host_id))
