"""Reads what Discord sends: an interaction is a question, a request for completions, or one to open a form.

Shapes: discord-api-docs c98d64b, interactions/receiving-and-responding.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta
from nacl.exceptions import CryptoError
from nacl.signing import VerifyKey

from service.bots.answer import asked_by_button
from service.bots.incoming import IncomingQuestion, is_recent, kept_ask
from service.bots.vocabulary import OF_MESSAGES, verb_named
from service.bots.words import of_message
from service.engine.errors import InvalidInput
from service.wire.bots import Ask, Asker, Reply

PING, COMMAND, COMPONENT, COMPLETION, FORM_SENT = 1, 2, 3, 4, 5
_IN_MESSAGE_MENU = 3  # type of an application command
_MAX_FILE = 1 << 20
_MAX_DEPTH = 3  # of sub-commands

Snowflake = Annotated[str, Meta(pattern=r"^[0-9]{1,20}$")]


class _User(msgspec.Struct):
    id: Snowflake


class _Member(msgspec.Struct):
    user: _User


class _Option(msgspec.Struct):
    name: str
    value: str | int | float | bool | None = None
    options: list[Any] = []
    focused: bool = False


class _Attachment(msgspec.Struct):
    url: str
    size: int = 0
    content_type: str | None = None
    filename: str = ""


class _Message(msgspec.Struct):
    author: _User | None = None
    webhook_id: str | None = None
    content: str = ""
    attachments: list[_Attachment] = []


class _Resolved(msgspec.Struct):
    messages: dict[str, _Message] = {}


class _Data(msgspec.Struct):
    name: str = ""
    type: int = 1
    options: list[_Option] = []
    resolved: _Resolved = msgspec.field(default_factory=_Resolved)
    target_id: str | None = None
    custom_id: Annotated[str, Meta(max_length=100)] = ""
    components: list[Any] = []


class _Payload(msgspec.Struct):
    type: int
    id: Snowflake
    application_id: Snowflake
    token: Annotated[str, Meta(max_length=2_048, pattern=r"^[A-Za-z0-9_.=-]*$")] = ""
    data: _Data = msgspec.field(default_factory=_Data)
    guild_id: Snowflake | None = None
    channel_id: Snowflake | None = None
    member: _Member | None = None
    user: _User | None = None


class Ping(NamedTuple):
    """Discord checks that the endpoint is there."""


class Completion(NamedTuple):
    """Somebody is typing a word and wants proposals; `kind` is the option's `complete` in the vocabulary."""

    asker: Asker
    kind: str
    text: str


class Form(NamedTuple):
    """A verb was asked for that opens a form to fill in."""

    asker: Asker
    verb: str


Incoming: TypeAlias = Ping | Completion | Form | IncomingQuestion


def read(body: bytes, application: str | None) -> Incoming:
    """Return what an interaction asks. Raises InvalidInput if it is malformed or of another application."""
    try:
        return _read(msgspec.json.decode(body, type=_Payload), application)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"this is not an interaction: {error}") from error


def _read(payload: _Payload, application: str | None) -> Incoming:
    if application is not None and payload.application_id != application:
        raise InvalidInput("this is an interaction of another application", field="application_id")
    if payload.type == PING:
        return Ping()
    asker = _asker(payload)
    if payload.type == COMPLETION:
        return _completion(asker, payload.data)
    verb = verb_named(payload.data.name) if payload.type == COMMAND and payload.data.type != _IN_MESSAGE_MENU else None
    if verb and verb.form:
        return Form(asker, verb.name)
    ask = _ask(payload)
    reply = Reply(
        platform="discord",
        application=payload.application_id,
        token=payload.token,
        channel=payload.channel_id,
        private=ask.private,
    )
    return IncomingQuestion(f"discord:{payload.id}", asker, ask, reply)


def _user(payload: _Payload) -> _User:
    user = payload.member.user if payload.member else payload.user
    if user is None:
        raise InvalidInput("the user who asked is missing", field="user")
    return user


def _asker(payload: _Payload) -> Asker:
    account = f"discord:{_user(payload).id}"
    return Asker(account=account, place=f"discord-guild:{payload.guild_id}" if payload.guild_id else account)


def _ask(payload: _Payload) -> Ask:
    data = payload.data
    if payload.type == COMPONENT:
        return asked_by_button(data.custom_id)
    if payload.type == FORM_SENT:
        return kept_ask(data.custom_id[:40], _fields(data.components))
    if payload.type != COMMAND:
        raise InvalidInput(f"interactions of type {payload.type} are not known here", field="type")
    if data.type == _IN_MESSAGE_MENU:
        return _of_message(data, _user(payload))
    return kept_ask(data.name[:40], _words(data.options))


def _words(options: list[_Option], depth: int = 0) -> dict[str, str]:
    """Return the words of a command; the name of a sub-command is the word `action`."""
    found: dict[str, str] = {}
    for option in options[:25]:
        if option.value is None and depth < _MAX_DEPTH:
            inner = msgspec.convert(option.options, list[_Option])
            found |= {"action": option.name[:40], **_words(inner, depth + 1)}
        elif option.value is True:
            found[option.name[:40]] = "yes"
        elif option.value is not False and option.value is not None:
            found[option.name[:40]] = str(option.value)
    return found


def _fields(components: list[Any]) -> dict[str, str]:
    """Return what was typed into a form, whose inputs are wrapped in labels or in rows."""
    found: dict[str, str] = {}
    for outer in components[:5]:
        if not isinstance(outer, dict):
            continue
        rows = outer.get("components")
        inner = rows if isinstance(rows, list) else [outer.get("component")]
        for one in inner[:5]:
            if isinstance(one, dict) and isinstance(one.get("value"), str) and one["value"].strip():
                found[str(one.get("custom_id", ""))[:40]] = one["value"]
    return found


def _of_message(data: _Data, user: _User) -> Ask:
    if data.name not in OF_MESSAGES:
        raise InvalidInput(f"{data.name[:40]!r} is not a command here", field="name")
    message = data.resolved.messages.get(data.target_id or "")
    if message is None:
        raise InvalidInput("the message is not part of the interaction", field="data.resolved")
    files = [one for one in message.attachments[:10] if _is_text(one)]
    is_own = message.author is not None and message.author.id == user.id and message.webhook_id is None
    return of_message(OF_MESSAGES[data.name], message.content, files[0].url if files else None, is_own=is_own)


def _is_text(file: _Attachment) -> bool:
    declared = (file.content_type or "").startswith("text/")
    return file.size <= _MAX_FILE and (declared or file.filename.lower().endswith((".txt", ".log", ".md", ".sh")))


def _completion(asker: Asker, data: _Data) -> Completion:
    verb, options = verb_named(data.name), data.options
    if verb and verb.actions and options:
        verb = next((one for one in verb.actions if one.name == options[0].name), None)
        options = msgspec.convert(options[0].options, list[_Option])
    typed = next((option for option in options if option.focused), None)
    if verb is None or typed is None:
        return Completion(asker, "", "")
    known = next((option for option in verb.options if option.name == typed.name), None)
    return Completion(asker, (known and known.complete) or "", str(typed.value or "")[:200])


_HEX = frozenset("0123456789abcdefABCDEF")


def is_signed(public_key: str, body: bytes, timestamp: str, signature: str, now: float) -> bool:
    """Return whether Discord signed this body within five minutes of `now` (seconds since 1970)."""
    if len(signature) != 128 or not _HEX.issuperset(signature) or not is_recent(timestamp, now):
        return False
    try:
        VerifyKey(bytes.fromhex(public_key)).verify(timestamp.encode() + body, bytes.fromhex(signature))
    except (CryptoError, ValueError):
        return False
    return True
