"""Calls to the platforms' REST APIs, bounded and never redirected; and what replies mean: sent, try later, gone or
refused, and why.

Discord: discord-api-docs, topics/opcodes-and-status-codes (JSON error codes); that an edit may come before the
acknowledgement has arrived: discord-api-docs issue 7220. Slack: docs.slack.dev, errors of chat.postMessage,
chat.postEphemeral and auth.test; its Web API reports failures with status 200. `replies.json` has the codes that are
known here, tests/recorded both lists.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import httpx
import msgspec

from service import metrics
from service.engine.errors import InvalidInput
from service.engine.tables import table_of
from service.logs import Log
from service.outgoing.client import new_client as client_for
from service.outgoing.rules import Origins, Refused
from service.settings import Settings

log = Log("bots")

Kind: TypeAlias = Literal["sent", "later", "gone", "refused"]
# Why no message gets through: its address has expired; the bot may not write there; the person cannot be messaged; the
# bot's own token is rejected or lacks a permission.
Why: TypeAlias = Literal["", "expired", "not-invited", "unreachable", "token"]

MAX_WAIT = 600.0  # seconds; longer waits are cut to this
SOON = 15.0  # seconds after a question within which Discord may not yet know its acknowledgement
_SOON_WAIT, _USUAL_WAIT = 2.0, 5.0
_NOT_THERE_YET = frozenset({10008, 10015})
TIMEOUT = httpx.Timeout(10, connect=5)
MAX_FILE = 1 << 20
_READ_SECONDS = 30.0


class _Known(msgspec.Struct, frozen=True):
    """The codes that mean that nothing gets through, by why: Discord's with what its list calls them."""

    discord: dict[Why, dict[int, str]]
    slack: dict[Why, tuple[str, ...]]
    slack_later: frozenset[str]


_KNOWN = table_of("replies.json", _Known, "service.bots")
_DISCORD = {code: why for why, codes in _KNOWN.discord.items() for code in codes}
_SLACK = {code: why for why, codes in _KNOWN.slack.items() for code in codes}


class Sent(NamedTuple):
    """The outcome of sending a message: sent; to be retried in `seconds`; gone (impossible there); or refused as it is.

    `code`: the platform's error code, or the HTTP status if there is none; `why`: the reason, if it is gone.
    """

    kind: Kind
    seconds: float = 0.0
    code: str = ""
    why: Why = ""


def of_discord(reply: httpx.Response, age: float) -> Sent:
    """Classify Discord's reply to a message about a question that is `age` seconds old."""
    if reply.is_success:
        return Sent("sent")
    number = object_of(reply).get("code")
    code = str(number or reply.status_code)
    if number in _NOT_THERE_YET and age < SOON:
        return Sent("later", _SOON_WAIT, code)
    if reply.status_code == httpx.codes.TOO_MANY_REQUESTS or reply.is_server_error:
        return Sent("later", seconds_asked(reply), code)
    if isinstance(number, int) and number in _DISCORD:
        return Sent("gone", 0.0, code, _DISCORD[number])
    if reply.status_code in (401, 403, 404, 410):
        return Sent("gone", 0.0, code, "token" if reply.status_code == httpx.codes.UNAUTHORIZED else "expired")
    return Sent("refused", 0.0, code)


def of_slack(reply: httpx.Response) -> Sent:
    """Classify a reply of Slack's Web API, or of a `response_url`, which states errors in plain text."""
    body = object_of(reply)
    failed = body.get("ok") is False
    if reply.is_success and not failed:
        return Sent("sent")
    code = str(body.get("error") or "") if failed else reply.text.strip()
    if not code.replace("_", "").isalnum() or len(code) > 60:
        code = str(reply.status_code)
    if reply.status_code == httpx.codes.TOO_MANY_REQUESTS or reply.is_server_error or code in _KNOWN.slack_later:
        return Sent("later", seconds_asked(reply), code)
    if code in _SLACK:
        return Sent("gone", 0.0, code, _SLACK[code])
    if reply.status_code in (401, 403, 404, 410):
        return Sent("gone", 0.0, code, "expired")
    return Sent("refused", 0.0, code)


def seconds_asked(reply: httpx.Response) -> float:
    """Return how many seconds a platform asks us to wait, at most MAX_WAIT."""
    stated = reply.headers.get("retry-after") or object_of(reply).get("retry_after", _USUAL_WAIT)
    try:
        return min(max(float(stated), 0.05), MAX_WAIT)
    except (TypeError, ValueError):
        return _USUAL_WAIT


def object_of(reply: httpx.Response) -> dict[str, Any]:
    """Return the JSON object in a reply's body; an empty one if there is none."""
    try:
        found = json.loads(reply.content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def new_client(settings: Settings) -> httpx.Client:
    """Return a client for the platforms' APIs, Slack's response URLs and Discord's file servers."""
    return client_for(
        Origins(_addresses(settings), usual=_addresses(Settings())),
        timeout=TIMEOUT,
        max_bytes=2 * MAX_FILE,
        max_seconds=_READ_SECONDS,
        proxy=settings.outgoing_proxy,
    )


def _addresses(settings: Settings) -> tuple[str, ...]:
    return settings.discord_api, settings.slack_api, settings.slack_hooks, *settings.discord_files


def send(
    client: httpx.Client, method: str, url: str, body: Any, meaning: Callable[[httpx.Response], Sent], *,
    headers: dict[str, str] | None = None, file: str | None = None,
) -> Sent:  # fmt: skip
    """Send JSON, with a text file if there is one, and return the outcome by `meaning(reply)`. Raises nothing."""
    try:
        if file is None:
            reply = client.request(method, url, json=body, headers=headers)
        else:
            parts = {"files[0]": ("answer.txt", file.encode(), "text/plain; charset=utf-8")}
            reply = client.request(method, url, data={"payload_json": json.dumps(body)}, files=parts, headers=headers)
        sent = meaning(reply)
    except (httpx.HTTPError, Refused) as error:
        log.warning("message.undelivered", error=type(error).__name__)
        sent = Sent("later", 5.0)
    else:
        _note(reply, sent)
    metrics.BOT_MESSAGES.of(sent.kind).inc()
    return sent


def _note(reply: httpx.Response, sent: Sent) -> None:
    """Log what was not sent: only status and code, as a refusal may quote what people typed."""
    if sent.kind == "later":
        log.warning("message.undelivered", status=reply.status_code, code=sent.code, pause_seconds=sent.seconds)
    elif sent.kind == "gone":
        metrics.BOT_GONE.of(sent.why).inc()
        log.warning("message.gone", status=reply.status_code, code=sent.code, detail=sent.why)
    elif sent.kind == "refused":
        log.error("message.refused", status=reply.status_code, code=sent.code)


def ask(client: httpx.Client, method: str, url: str, body: Any, *, headers: dict[str, str]) -> dict[str, Any]:
    """Return the JSON object that a platform answers with; an empty one if it does not. Raises nothing."""
    try:
        reply = client.request(method, url, json=body, headers=headers)
    except (httpx.HTTPError, Refused) as error:
        log.warning("message.undelivered", error=type(error).__name__)
        return {}
    return object_of(reply)


def read_file(client: httpx.Client, address: str, origins: tuple[str, ...]) -> str:
    """Return the first MiB of an attached file as text. Raises InvalidInput if it cannot be read.

    Only `origins` are ever contacted, because addresses come from people.
    """
    if not any(address.startswith(f"{origin}/") for origin in origins):
        raise InvalidInput("the file is not where the platform keeps files", field="attachment")
    try:
        with client.stream("GET", address) as reply:
            if reply.status_code != httpx.codes.OK:
                raise InvalidInput(f"the attached file cannot be read: status {reply.status_code}", field="attachment")
            found = b""
            for piece in reply.iter_bytes():
                found += piece
                if len(found) > MAX_FILE:
                    break
    except (httpx.HTTPError, Refused) as error:
        raise InvalidInput("the attached file cannot be read", field="attachment") from error
    return found[:MAX_FILE].decode(errors="replace").replace("\x00", "")
