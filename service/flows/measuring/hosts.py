"""The life of a host: enrolment code, key, approval, probe, revocation.

`signed_calls` tells who signed a call, `runs` hands out what to measure.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from service.engine.catalogue import resolve
from service.engine.errors import InvalidInput
from service.engine.hardware_text.form import rig_key
from service.errors import (
    EnrolmentCodeUnknown,
    HostExists,
    HostNotActive,
    HostNotFound,
    NotAllowed,
    NotAuthenticated,
    TooManyHosts,
)
from service.flows.accounts import Caller, hashed, new_pseudonym
from service.flows.context import Context, Records
from service.flows.measuring.signed_calls import is_signed
from service.store.measuring import hosts
from service.store.measuring.hosts import SignedHost, StoredHost
from service.store.queries import is_id, new_id
from service.structs import iso_time, made_from
from service.wire.measuring.agent import EnrolledHost, Greeted, NewHost, enrolment_text, key_fingerprint
from service.wire.measuring.hosts import Enrolment, EnrolmentRequest, Host, HostChange, Probe

CODE_MINUTES = 10
MAX_HOSTS = 64  # of one account
_PSEUDONYMS_TRIED = 20


def create_enrolment(context: Context, caller: Caller, asked: EnrolmentRequest, address: str) -> Enrolment:
    """Return a new single-use enrolment code for one machine, valid for ten minutes. Raises TooManyHosts."""
    caller.require("host")
    code, now = new_id(), context.clock()
    if hosts.count_of(context.engine, caller.account_id, now) >= MAX_HOSTS:
        raise TooManyHosts(f"an account may have {MAX_HOSTS} hosts, including unused enrolment codes")
    expires_at = now + timedelta(minutes=CODE_MINUTES)
    hosts.add_enrolment(context.engine, hashed(code), caller.account_id, asked.visibility, now, expires_at)
    command = f"advisor host enrol {address} --code={code}"
    return Enrolment(code=code, expires_at=iso_time(expires_at), command=command)


def greet(context: Context, code: str, address: str) -> Greeted:
    """Return which account a code enrols a machine for. Raises EnrolmentCodeUnknown."""
    found = hosts.read_enrolment(context.engine, hashed(code), context.clock())
    if found is None:
        raise _unknown_code()
    return made_from(Greeted, found, service=f"Offload Advisor at {address}")


def enrol(context: Context, new: NewHost, authority: str) -> EnrolledHost:
    """Create a host for a machine that presents a code and its public key; it is waiting for its owner's approval.

    Raises NotAuthenticated, EnrolmentCodeUnknown, or HostExists.
    """
    if not is_signed(new.public_key, new.signature, enrolment_text(authority, new.code, new.public_key)):
        raise NotAuthenticated("the signature does not match the key that was sent, for this service and code")
    found = hosts.read_enrolment(context.engine, hashed(new.code), context.clock())
    if found is None:
        raise _unknown_code()
    for _ in range(_PSEUDONYMS_TRIED):
        host = StoredHost(
            id=new_id(),
            account_id=found.account_id,
            public_key=new.public_key,
            pseudonym=new_pseudonym(),
            state="waiting",
            visibility=found.visibility,
            created_at=context.clock(),
        )
        try:
            if not hosts.enrol(context.engine, hashed(new.code), host, context.clock()):
                raise _unknown_code()
        except hosts.PseudonymTaken:
            continue
        except hosts.KeyTaken as error:
            raise HostExists("a host with this key is already enrolled") from error
        return EnrolledHost(host=host.id, pseudonym=host.pseudonym, state="waiting")
    raise RuntimeError("no pseudonym is free")


def save_probe(context: Context, host: SignedHost, probe: Probe) -> None:
    """Store a host's description of itself, without anything that identifies the machine.

    Raises InvalidInput or its subclasses for impossible hardware.
    """
    if not probe.hardware.gpus and probe.engines == ():
        raise InvalidInput("a host needs a GPU or an engine to measure with", field="engines")
    resolve(probe.hardware)
    named = probe.hardware
    gpus = [msgspec.structs.replace(gpu, uuids=None) for gpu in named.gpus]
    kept = msgspec.structs.replace(probe, hardware=msgspec.structs.replace(named, gpus=gpus, notes=None))
    hosts.save_probe(context.engine, host.id, kept, rig_key(kept.hardware))


def leave(context: Context, host: SignedHost) -> None:
    hosts.change(context.engine, host.id, context.clock(), state="revoked")


def list_hosts(context: Context, caller: Caller | None) -> list[Host]:
    """Return the public hosts, and the caller's own with the details only an owner sees."""
    return _seen(context, caller, None)


def read_host(context: Context, host_id: str, caller: Caller | None) -> Host:
    """Return one host that the caller may see. Raises HostNotFound."""
    found = _seen(context, caller, host_id) if is_id(host_id) else None
    if not found:
        raise _no_host()
    return found[0]


def _seen(context: Context, caller: Caller | None, host_id: str | None) -> list[Host]:
    account_id = caller.account_id if caller else None
    done, nothing = hosts.measured(context.engine), hosts.Measured(0, 0.0)
    found = hosts.seen_by(context.engine, account_id, host_id)
    return [_shown(host, done.get(host.id, nothing), account_id) for host in found]


class OwnHost(msgspec.Struct, frozen=True):
    """A host as its owner's page shows it: runs and GPU-hours for the owner and for others."""

    pseudonym: str
    state: str
    visibility: str
    seen_at: str | None
    own_runs: int
    own_gpu_hours: float
    others_runs: int
    others_gpu_hours: float


class OwnHosts(msgspec.Struct, frozen=True):
    """What an account's hosts measured, and what other people's hosts measured for the account."""

    hosts: list[OwnHost]
    received_runs: int
    received_gpu_hours: float


def own_hosts(context: Records, caller: Caller) -> OwnHosts:
    """Return what the caller's hosts measured, and what other people's hosts measured for the caller."""
    done, nothing = hosts.given(context.engine, caller.account_id), hosts.Measured(0, 0.0)
    got = hosts.received(context.engine, caller.account_id)
    found = []
    for one in hosts.seen_by(context.engine, caller.account_id):
        if one.account_id != caller.account_id:
            continue
        own, others = (done.get((one.id, other), nothing) for other in (False, True))
        seen = one.seen_at.isoformat(sep=" ", timespec="minutes") if one.seen_at else None
        own_hours, others_hours = (round(each.gpu_seconds / 3600, 2) for each in (own, others))
        found.append(
            OwnHost(one.pseudonym, one.state, one.visibility, seen, own.runs, own_hours, others.runs, others_hours)
        )
    return OwnHosts(found, got.runs, round(got.gpu_seconds / 3600, 2))


class OperatedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host as the service's operator sees it. `agent`: the version of its program."""

    id: str
    pseudonym: str
    owner: str
    state: str
    visibility: str
    seen_at: str | None
    agent: str | None
    gpus: str
    runs: int


def all_hosts(context: Records) -> list[OperatedHost]:
    """Return every host, revoked ones included, last seen first."""
    done, nothing = hosts.measured(context.engine), hosts.Measured(0, 0.0)
    return [
        made_from(
            OperatedHost,
            host,
            owner=owner,
            agent=host.probe.agent if host.probe else None,
            gpus=", ".join(f"{g.count}x {g.name}" for g in host.probe.hardware.gpus) if host.probe else "not probed",
            runs=done.get(host.id, nothing).runs,
        )
        for host, owner in hosts.all_with_owners(context.engine)
    ]


def change_host(context: Context, host_id: str, asked: HostChange, caller: Caller) -> Host:
    """Approve, pause or change the visibility of one's own host. Raises HostNotFound, HostNotActive or NotAllowed."""
    _require_own(context, host_id, caller)
    values = {name: value for name in asked.__struct_fields__ if (value := getattr(asked, name)) is not None}
    if not values:
        raise InvalidInput("name what to change: `state` or `visibility`", field="state")
    if hosts.change(context.engine, host_id, context.clock(), **values) is None:
        raise HostNotActive("this host was revoked permanently: enrol it again")
    return read_host(context, host_id, caller)


def revoke_host(context: Context, host_id: str, caller: Caller) -> None:
    """Revoke a host for good, as its owner or an operator; its results stay."""
    _require_own(context, host_id, caller, or_operator=True)
    hosts.change(context.engine, host_id, context.clock(), state="revoked")


def _require_own(context: Context, host_id: str, caller: Caller, *, or_operator: bool = False) -> None:
    host = hosts.read(context.engine, host_id)
    if host is None:
        raise _no_host()
    if or_operator and "operator" in caller.scopes:
        return
    if host.account_id == caller.account_id:
        caller.require("host")
        return
    raise NotAllowed("this host is somebody else's") if host.visibility == "public" else _no_host()


def _shown(host: StoredHost, done: hosts.Measured, account_id: str | None) -> Host:
    probe = host.probe
    public = Host(
        id=host.id,
        pseudonym=host.pseudonym,
        state=host.state,
        visibility=host.visibility,
        hardware=probe.hardware if probe else None,
        engines=[msgspec.structs.replace(build, options=()) for build in probe.engines] if probe else [],
        seen_at=iso_time(host.seen_at) if host.seen_at else None,
        runs=done.runs,
        gpu_hours=round(done.gpu_seconds / 3600, 2),
    )
    if host.account_id != account_id:
        return public
    return msgspec.structs.replace(
        public,
        mine=True,
        agent=probe.agent if probe else None,
        models=list(probe.models) if probe else [],
        downloads=probe.downloads if probe else None,
        created_at=iso_time(host.created_at),
        key_fingerprint=key_fingerprint(host.public_key),
    )


def _no_host() -> HostNotFound:
    return HostNotFound("no host with this id is visible to you", field="id")


def _unknown_code() -> EnrolmentCodeUnknown:
    return EnrolmentCodeUnknown(
        "the code was never issued, has been used, or has expired after its ten minutes", field="code"
    )
