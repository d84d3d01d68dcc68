"""Authenticates agents' calls: by the host's key, its session, and a counter that only grows."""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import TypeAlias

import msgspec
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from service.engine.errors import AdvisorError
from service.errors import CounterTooSmall, HostNotActive, NotAuthenticated
from service.flows.accounts import hashed
from service.flows.context import Context
from service.store.measuring import hosts
from service.store.queries import is_id
from service.wire.measuring import agent as protocol
from service.wire.measuring.agent import Session, signed_text

SignedHost: TypeAlias = hosts.SignedHost
SESSION_PREFIX = "ahs_"
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_MAX_COUNTER = (1 << 63) - 1
_NOT_SIGNED = "the call is not signed by a known host"
_NO_SESSION = "the session has ended, or is not this host's: open a new one"
_MOST_KEYS = 10_000
_keys: dict[str, str] = {}  # by host id, which is unique over all databases; a host's key never changes


class SignedCall(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's call as received. `authority`: this service's, as clients name it; header names are in lower case."""

    authority: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


def open_session(context: Context, call: SignedCall) -> Session:
    """Return a new session for the host that signed `call`. Raises as `authenticate`, but needs no session."""
    host = authenticate(context, call, in_session=False)
    token, now = SESSION_PREFIX + secrets.token_urlsafe(32), context.clock()
    expires_at = now + timedelta(seconds=protocol.SESSION_SECONDS)
    hosts.add_session(context.engine, hashed(token), host.id, now, expires_at)
    state = host.state if host.state != "revoked" else "waiting"
    return Session(token=token, expires_in=protocol.SESSION_SECONDS, state=state)


def authenticate(context: Context, call: SignedCall, *, in_session: bool = True) -> SignedHost:
    """Return the host that made `call`: signed with its key, in its session, and with a higher counter than before.

    Waiting agents call often, so a good call costs one statement; only a bad one costs three more, to find out why.
    Raises NotAuthenticated, HostNotActive for a revoked one, or CounterTooSmall.
    """
    host_id, counter = call.headers.get(protocol.HOST_HEADER.lower(), ""), _counter(call)
    key = _key(context, host_id) if is_id(host_id) else None
    signature = call.headers.get(protocol.SIGNATURE_HEADER.lower(), "")
    if key is None or counter is None or not is_signed(key, signature, _text(call, counter)):
        raise NotAuthenticated(_NOT_SIGNED)
    session = _session(call) if in_session else None
    host = hosts.count_up(context.engine, host_id, counter, context.clock(), session)
    if host is None:
        raise _refused(context, host_id, counter, session)
    return host


def _key(context: Context, host_id: str) -> str | None:
    if host_id not in _keys and (known := hosts.known_key(context.engine, host_id)) is not None:
        if len(_keys) >= _MOST_KEYS:
            _keys.clear()
        _keys[host_id] = known.public_key
    return _keys.get(host_id)


def _refused(context: Context, host_id: str, counter: int, session: str | None) -> AdvisorError:
    known, host = hosts.known_key(context.engine, host_id), hosts.read(context.engine, host_id)
    if known is None or host is None or known.state == "revoked":
        return HostNotActive("this host was revoked")
    if known.banned_at is not None:
        return HostNotActive("the account of this host's owner is banned")
    if session is not None and not hosts.has_session(context.engine, session, host_id, context.clock()):
        return NotAuthenticated(_NO_SESSION)
    return CounterTooSmall(f"the counter {counter} is not above the last one", choices=(str(host.counter),))


def _counter(call: SignedCall) -> int | None:
    stated = call.headers.get(protocol.COUNTER_HEADER.lower(), "")
    counter = int(stated) if stated.isascii() and stated.isdigit() and len(stated) < 20 else 0
    return counter if 0 < counter <= _MAX_COUNTER else None


def _text(call: SignedCall, counter: int) -> bytes:
    host_id = call.headers[protocol.HOST_HEADER.lower()]
    return signed_text(call.authority, call.method, call.path, host_id, counter, call.body)


def _session(call: SignedCall) -> str:
    """Return the hash of the session's token. Raises NotAuthenticated where none was sent."""
    kind, _, token = call.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.startswith(SESSION_PREFIX) or len(token) >= 200:
        raise NotAuthenticated(_NO_SESSION)
    return hashed(token)


def is_signed(public_key: str, signature: str, text: bytes) -> bool:
    """Return whether `signature` (Base64) of `text` is that of the key (Base64 of an Ed25519 key's 32 bytes)."""
    key, proof = _decoded(public_key, _KEY_BYTES), _decoded(signature, _SIGNATURE_BYTES)
    if key is None or proof is None:
        return False
    try:
        VerifyKey(key).verify(text, proof)
    except (BadSignatureError, ValueError):
        return False
    return True


def _decoded(text: str, n_bytes: int) -> bytes | None:
    try:
        found = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        return None
    return found if len(found) == n_bytes and base64.b64encode(found).decode() == text else None
