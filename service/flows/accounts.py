"""Accounts and their API tokens. A token is shown once; the database holds only its hash."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, get_args

import msgspec
from sqlalchemy import Engine

from service.engine.errors import InvalidInput
from service.errors import NotAllowed, NotAuthenticated
from service.store import accounts
from service.store.accounts import StoredAccount
from service.store.chat import interactions
from service.store.queries import is_id
from service.store.viewers import ANYBODY, Viewer
from service.structs import made_from

Scope: TypeAlias = Literal["submit", "validate", "host", "operator"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
PREFIX = "adv_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,119}")
_TOKEN = re.compile(PREFIX + r"[A-Za-z0-9_-]{43}")
_PSEUDONYMS_TRIED = 20
_USE_IS_NOTED_EVERY = timedelta(minutes=1)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The account behind a request, with the scopes of the token it sent. `trusted`: an operator vouched for it."""

    account_id: str
    name: str
    scopes: tuple[str, ...]
    trusted: bool = False

    def require(self, scope: Scope) -> None:
        """Raise NotAllowed unless the token has `scope`."""
        if scope not in self.scopes:
            raise NotAllowed(f"this needs a token with the scope {scope}; yours has {', '.join(self.scopes)}")


def viewer_of(caller: Caller | None) -> Viewer:
    """Return the caller as the store knows readers; None is somebody without a token."""
    return Viewer(caller.account_id, "operator" in caller.scopes) if caller else ANYBODY


class NewToken(msgspec.Struct, frozen=True):
    """A new token, in the one answer that shows it, and the id under which it is listed."""

    id: str
    token: str


def account_named(engine: Engine, name: str, now: datetime) -> StoredAccount:
    """Return the account of this name; if there is none, it is created under a random pseudonym."""
    return accounts.ensure(engine, name, (new_pseudonym() for _ in range(_PSEUDONYMS_TRIED)), now)


def create_token(engine: Engine, name: str, scopes: Iterable[str], now: datetime) -> NewToken:
    """Return a new token for the account `name`, creating the account if needed. Raises InvalidInput."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:120]!r} is not an account name: letters, digits and . _ : @ -, at most 120", field="name"
        )
    asked = tuple(dict.fromkeys(scopes))
    if not asked or set(asked) - set(SCOPES):
        raise InvalidInput(f"a token has one or more of the scopes {', '.join(SCOPES)}", field="scope", choices=SCOPES)
    secret = PREFIX + secrets.token_urlsafe(32)
    owner = account_named(engine, name, now)
    return NewToken(accounts.add_token(engine, owner.id, hashed(secret), asked, now).id, secret)


class ListedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token as its operator sees it; times are ISO 8601 in UTC."""

    id: str
    name: str
    scopes: tuple[str, ...]
    created_at: str
    used_at: str | None
    revoked_at: str | None
    banned: bool


def list_tokens(engine: Engine) -> list[ListedToken]:
    """Return every token ever made, oldest first, without the secrets themselves."""
    return [
        made_from(ListedToken, token, name=owner.name, banned=owner.banned_at is not None)
        for owner, token in accounts.tokens(engine)
    ]


def revoke_token(engine: Engine, token_id: str, now: datetime) -> None:
    """Revoke a token, from the next call on. Raises InvalidInput if no valid token has this id."""
    if not is_id(token_id) or not accounts.revoke(engine, token_id, now):
        raise InvalidInput("no valid token has this id: `advisor token list` shows them", field="id")


def forget_account(engine: Engine, name: str, now: datetime) -> None:
    """Delete an account with its tokens, hosts, validations and questions. Raises InvalidInput if there is none.

    Its results stay without the name, except those of private hosts. Of a banned account the name and the ban remain.
    """
    owner = accounts.named(engine, name)
    if owner is None:
        raise InvalidInput("no account has this name: `advisor token list` shows those with tokens", field="name")
    accounts.forget(engine, owner.id)
    interactions.forget(engine, name, now)


def caller_of(engine: Engine, bearer: str, now: datetime) -> Caller:
    """Return the caller whose token this is.

    Raises NotAuthenticated if it is malformed, unknown or revoked, or if its account is banned.
    """
    found = accounts.with_token(engine, hashed(bearer)) if _TOKEN.fullmatch(bearer) else None
    if found is None:
        raise NotAuthenticated("the token is not known here: it may have been revoked")
    owner, token = found
    if token.used_at is None or now - token.used_at > _USE_IS_NOTED_EVERY:
        accounts.note_use(engine, token.id, now)
    return Caller(account_id=owner.id, name=owner.name, scopes=token.scopes, trusted=owner.trusted_at is not None)


def hashed(secret: str) -> str:
    """Return the SHA-256 (hex) of a secret, all that is stored of it. No salt: its 128 random bits suffice."""
    return hashlib.sha256(secret.encode()).hexdigest()


_FIRST = (
    "amber autumn brave bright calm clever copper coral crisp curious dapper eager early fair fleet gentle glad"
    " golden grand green happy hardy hidden honest humble ivory jolly keen kind late light lively lucky mellow"
    " merry mild misty noble north olive patient plain proud quick quiet rapid rare ready rosy royal rustic sandy"
    " sharp shy silent silver smart snowy solid spry steady stern still stout sunny swift tall tidy tiny true"
    " velvet vivid warm wild wise witty"
)
_SECOND = (
    "acorn alder ant arch ash aspen badger beacon bear beech birch bison boulder brook canyon cedar cliff clover"
    " comet condor coyote crane creek crow cypress dale delta dove dune eagle elk elm ember falcon fern finch"
    " fjord forest fox garnet geyser glade grove gull hare harbor hawk hazel heron hill ibis island ivy jade jay"
    " kestrel lagoon lake lark laurel lynx maple marsh meadow mesa moss moth newt oak orca osprey otter owl peak"
    " pebble pine plover pond poplar quartz raven reed reef ridge river robin sage salmon seal shore sparrow"
    " spruce stag stork swan thrush tide trout tulip tundra valley vole walnut wave willow wolf wren yew"
)


def new_pseudonym() -> str:
    """Return a random name such as `quiet-otter-512`, one of about eight million."""
    number = 100 + secrets.randbelow(900)
    return f"{secrets.choice(_FIRST.split())}-{secrets.choice(_SECOND.split())}-{number}"
