"""Reads what Slack sends: a slash command, a message shortcut or a button is a question.

Shapes: docs.slack.dev, slash commands, shortcuts, block actions. Bodies are forms; those of interactions hold JSON.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Annotated, Any
from urllib.parse import parse_qs

import msgspec
from msgspec import Meta

from service.bots.answer import asked_by_button
from service.bots.incoming import IncomingQuestion, is_recent, kept_ask
from service.bots.slack.render import OPEN
from service.bots.vocabulary import OF_MESSAGES
from service.bots.words import MAX_WORD, ask_of_line, of_message
from service.engine.errors import InvalidInput
from service.wire.bots import Ask, Asker, Reply

SHORTCUTS = {f"{verb}_message": verb for verb in OF_MESSAGES.values()}  # callback_id: its verb
_MAX_FIELDS = 40
_TRIGGER = re.compile(r"[A-Za-z0-9_.-]{1,200}")
Id = Annotated[str, Meta(pattern=r"^[A-Z0-9]{1,32}$")]


class _Named(msgspec.Struct):
    id: Id


class _Message(msgspec.Struct):
    user: str = ""
    bot_id: str = ""
    text: str = ""


class _Action(msgspec.Struct):
    action_id: str = ""
    value: str = ""


class _Payload(msgspec.Struct):
    type: str
    user: _Named
    team: _Named
    trigger_id: str = ""
    response_url: str = ""
    callback_id: str = ""
    channel: _Named | None = None
    message: _Message | None = None
    actions: list[_Action] = []


def read_command(body: bytes, hooks: str) -> IncomingQuestion | InvalidInput | None:
    """Return the question of a slash command, or why what was typed is none; None for Slack's check of the certificate.

    `hooks`: the origin that every `response_url` must have. Raises InvalidInput for what is not a slash command.
    """
    form = _form(body)
    if form.get("ssl_check") == "1":
        return None
    asker = _asker(form.get("team_id", ""), form.get("user_id", ""))
    try:
        ask = ask_of_line(_unescaped(form.get("text", ""))[:MAX_WORD])
    except InvalidInput as error:
        return error
    ask = kept_ask(ask.verb, ask.words)
    return _asked(asker, ask, form.get("trigger_id", ""), form.get("response_url", ""), form.get("channel_id"), hooks)


def read_interaction(body: bytes, hooks: str) -> IncomingQuestion | None:
    """Return the question of a shortcut or a button; None for a button that is a link. Raises as `read_command`."""
    try:
        payload = msgspec.json.decode(_form(body).get("payload", ""), type=_Payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"this is not an interaction: {error}", field="payload") from error
    asker = _asker(payload.team.id, payload.user.id)
    if payload.type == "block_actions":
        action = payload.actions[0] if payload.actions else _Action(OPEN)
        if action.action_id == OPEN:
            return None
        ask = asked_by_button(action.value)
    elif payload.type == "message_action" and payload.callback_id in SHORTCUTS:
        message = payload.message or _Message()
        is_own = message.user == payload.user.id and not message.bot_id
        ask = of_message(SHORTCUTS[payload.callback_id], _unescaped(message.text), None, is_own=is_own)
    else:
        raise InvalidInput(f"{payload.type[:40]} {payload.callback_id[:40]} is not known here", field="type")
    channel = payload.channel.id if payload.channel else None
    return _asked(asker, ask, payload.trigger_id, payload.response_url, channel, hooks)


def _form(body: bytes) -> dict[str, str]:
    try:
        fields = parse_qs(body.decode(), max_num_fields=_MAX_FIELDS, keep_blank_values=True)
    except ValueError as error:
        raise InvalidInput("the body is not a form") from error
    return {name: values[0] for name, values in fields.items()}


def _unescaped(text: str) -> str:
    """Undo Slack's escapes in message text: three characters, and URLs in angle brackets."""
    plain = re.sub(r"<(?:(https?://[^|>]*)(?:\|[^>]*)?)>", r"\1", text)
    return plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _asker(team: str, user: str) -> Asker:
    try:
        msgspec.convert((team, user), tuple[Id, Id])
    except msgspec.ValidationError as error:
        raise InvalidInput("the user who asked is missing", field="user_id") from error
    return Asker(account=f"slack:{team}:{user}", place=f"slack:{team}")


def _asked(asker: Asker, ask: Ask, trigger: str, response_url: str, channel: Any, hooks: str) -> IncomingQuestion:
    if not _TRIGGER.fullmatch(trigger):
        raise InvalidInput("the interaction has no trigger_id", field="trigger_id")
    if not is_hook(response_url, hooks):
        raise InvalidInput(f"answers go to {hooks} only", field="response_url")
    identity = hashlib.sha256(trigger.encode()).hexdigest()[:40]
    reply = Reply(platform="slack", response_url=response_url, channel=channel, private=ask.private)
    return IncomingQuestion(f"slack:{identity}", asker, ask, reply)


def is_hook(address: str, hooks: str) -> bool:
    """Return whether an answer may be sent to a URL: it must be one of Slack's response URLs."""
    return len(address) <= 1_000 and re.fullmatch(re.escape(hooks) + r"/[A-Za-z0-9/_-]+", address) is not None


def is_signed(secret: str, body: bytes, timestamp: str, signature: str, now: float) -> bool:
    """Return whether Slack signed this body within five minutes of `now` (seconds since 1970)."""
    if not is_recent(timestamp, now):
        return False
    digest = hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(f"v0={digest}".encode(), signature.encode("utf-8", "replace"))
