"""Accounts of Discord and Slack users: created on first use, with a remembered rig and an API token, and deleted."""

from __future__ import annotations

from datetime import datetime

import msgspec

from service.engine.errors import InvalidInput
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import to_shorthand
from service.engine.reduction import reduced
from service.errors import NotAllowed
from service.flows import accounts
from service.flows.accounts import Caller, NewToken, Scope
from service.flows.advice.checked import rig_of
from service.flows.context import Context
from service.store import accounts as store
from service.store.chat import interactions

SCOPES: tuple[Scope, ...] = ("submit", "validate", "host")
MOST_HARDWARE = 4_000  # characters


class Forgotten(msgspec.Struct, frozen=True):
    """What was deleted with an account: whether a rig was remembered, and how many valid tokens there were."""

    rig: bool
    tokens: int


def caller_in_chat(context: Context, name: str) -> Caller:
    """Return the account of this name, created if there is none. Raises NotAllowed for a banned one."""
    owner = accounts.account_named(context.engine, name, context.clock())
    if owner.banned_at is not None:
        raise NotAllowed("this account may no longer use the service")
    return Caller(account_id=owner.id, name=name, scopes=SCOPES)


def known_in_chat(context: Context, name: str) -> Caller | None:
    """Return the account of this name for reading, None if there is none or it is banned."""
    owner = store.named(context.engine, name)
    return Caller(account_id=owner.id, name=name, scopes=SCOPES) if owner and owner.banned_at is None else None


def remember_rig(context: Context, name: str, text: str) -> str:
    """Remember a user's hardware for later questions; return it as it was understood, in shorthand.

    Raises UnknownHardware, InvalidHardware, InvalidInput if it is too long, NotAllowed.
    """
    kept = reduced(text.strip())
    if len(kept) > MOST_HARDWARE:
        raise InvalidInput(f"the hardware is {len(kept)} characters long: {MOST_HARDWARE} at most", field="hardware")
    rig_of(kept)
    caller = caller_in_chat(context, name)
    store.save_rig(context.engine, caller.account_id, kept, context.clock())
    return to_shorthand(parse_hardware(kept))


def remembered_rig(context: Context, name: str) -> str | None:
    """Return the hardware that a user had us remember, as typed."""
    return store.rig_of(context.engine, name)


def give_token(context: Context, name: str, *, instead: bool = False) -> NewToken | None:
    """Return a new API token for a user, or None if a valid one exists.

    `instead`: revoke the existing ones and return a new one. Raises NotAllowed.
    """
    caller = caller_in_chat(context, name)
    good = store.good_tokens(context.engine, caller.account_id)
    if good and not instead:
        return None
    for token_id in good:
        store.revoke(context.engine, token_id, context.clock())
    return accounts.create_token(context.engine, name, SCOPES, context.clock())


def forget(context: Context, name: str, asked_at: datetime | None = None) -> Forgotten:
    """Delete a user's account with everything in it: rig, tokens, hosts, validations, questions.

    Results stay without the name, except those of private hosts. Of a banned account the name and the ban remain.
    What they asked after `asked_at` is still answered. Questions are deleted last: it is the later ones' turn then.
    """
    engine, had = context.engine, Forgotten(False, 0)
    owner = store.named(engine, name)
    if owner is not None:
        had = Forgotten(store.rig_of(engine, name) is not None, len(store.good_tokens(engine, owner.id)))
        store.forget(engine, owner.id)
    interactions.forget(engine, name, asked_at or context.clock())
    return had
