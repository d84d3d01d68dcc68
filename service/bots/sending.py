"""Calls of the platforms' REST sides: bounded, never redirected, and what their answers mean for us."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple, TypeAlias

import httpx

from service import metrics
from service.engine.errors import InvalidInput
from service.logs import Log
from service.outgoing import Origins, Refused
from service.outgoing import new_client as client_for
from service.settings import Settings

log = Log("bots")

TIMEOUT = httpx.Timeout(10, connect=5)
MAX_WAIT = 600.0  # seconds; a platform that names more is asked again after these
MAX_FILE = 1 << 20
_READ_SECONDS = 30.0

Kind: TypeAlias = Literal["sent", "later", "gone", "refused"]


class Sent(NamedTuple):
    """What became of a message: taken; to be sent again in `seconds`; its address has ended; or it is not taken so."""

    kind: Kind
    seconds: float = 0.0


def new_client(settings: Settings) -> httpx.Client:
    """Return a client of the platforms' APIs, of Slack's addresses for answers and of where Discord keeps files."""
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
    client: httpx.Client, method: str, url: str, body: Any, *, headers: dict[str, str] | None = None,
    file: str | None = None,
) -> Sent:  # fmt: skip
    """Send JSON, with a text file beside it where there is one, and return what became of it. Raises nothing."""
    try:
        if file is None:
            reply = client.request(method, url, json=body, headers=headers)
        else:
            parts = {"files[0]": ("answer.txt", file.encode(), "text/plain; charset=utf-8")}
            reply = client.request(method, url, data={"payload_json": json.dumps(body)}, files=parts, headers=headers)
    except (httpx.HTTPError, Refused) as error:
        log.warning("message.undelivered", error=type(error).__name__)
        metrics.BOT_MESSAGES.of("later").inc()
        return Sent("later", 5.0)
    sent = _meaning(reply)
    metrics.BOT_MESSAGES.of(sent.kind).inc()
    return sent


def _meaning(reply: httpx.Response) -> Sent:
    if reply.is_success:
        return Sent("sent")
    if reply.status_code == 429:
        return Sent("later", _retry_after(reply))
    if reply.status_code >= 500:
        return Sent("later", 5.0)
    if reply.status_code in (401, 403, 404, 410):
        return Sent("gone")
    # What was refused may hold what people typed: only the status is logged.
    log.error("message.refused", status=reply.status_code)
    return Sent("refused")


def _retry_after(reply: httpx.Response) -> float:
    try:
        return min(max(float(reply.headers.get("retry-after", "5")), 0.05), MAX_WAIT)
    except ValueError:
        return 5.0


def read_file(client: httpx.Client, address: str, origins: tuple[str, ...]) -> str:
    """Return the text of an attached file, its first MiB. Raises InvalidInput for another origin, or none that answers.

    Only these origins are ever asked: addresses come from people.
    """
    if not any(address.startswith(f"{origin}/") for origin in origins):
        raise InvalidInput("the file does not lie where the platform keeps files", field="attachment")
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
