"""Calls to the platforms' REST APIs: bounded, never redirected. Replies are classified in `service.bots.replies`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx

from service import metrics
from service.bots.replies import Sent, object_of
from service.engine.errors import InvalidInput
from service.logs import Log
from service.outgoing.client import new_client as client_for
from service.outgoing.rules import Origins, Refused
from service.settings import Settings

log = Log("bots")

TIMEOUT = httpx.Timeout(10, connect=5)
MAX_FILE = 1 << 20
_READ_SECONDS = 30.0


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
