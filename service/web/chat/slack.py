"""`/bots/slack/…`: Slack's slash command, and its shortcuts and buttons."""

from __future__ import annotations

import time
from typing import Any

from anyio import to_thread
from litestar import Response, post
from litestar.background_tasks import BackgroundTask

from service.bots.incoming import IncomingQuestion
from service.bots.sending import new_client, of_slack, send
from service.bots.slack.incoming import is_signed, read_command, read_interaction
from service.bots.slack.render import render
from service.bots.verbs import refusal
from service.engine.errors import AdvisorError, InvalidInput
from service.errors import NotAuthenticated
from service.settings import Settings
from service.web.chat.webhooks import require_media_type, require_signature, store_question
from service.web.http.types import HttpRequest
from service.web.services import AppServices, Services

_FORM = "application/x-www-form-urlencoded"


@post("/slack/commands", status_code=200)
async def slack_commands(request: HttpRequest, services: AppServices) -> Response[Any]:
    """Receive a slash command; one that Slack did not sign, or a replay, is refused with 401."""
    found = read_command(await _signed(request, services), services.settings.slack_hooks)
    if found is None:
        return _nothing()
    if isinstance(found, InvalidInput):
        return _said(found)
    refused, released = await _taken(services, found)
    return refused or Response({"response_type": "ephemeral", "text": "On it …"}, background=released)


@post("/slack/interactivity", status_code=200)
async def slack_interactivity(request: HttpRequest, services: AppServices) -> Response[Any]:
    """Receive a shortcut or a button; one that Slack did not sign, or a replay, is refused with 401.

    Slack ignores the answer to this request, so the reason for a refusal is sent to where answers go.
    """
    found = read_interaction(await _signed(request, services), services.settings.slack_hooks)
    if found is None:
        return _nothing()
    refused, released = await _taken(services, found)
    if refused is None:
        return _nothing(released)
    told = BackgroundTask(to_thread.run_sync, _tell, services.settings, found.reply.response_url, refused.content)
    return _nothing(told)


async def _signed(request: HttpRequest, services: Services) -> bytes:
    body = await request.body()
    signature = request.headers.get("x-slack-signature", "")
    timestamp = request.headers.get("x-slack-request-timestamp", "")
    secret = services.settings.slack_signing_secret or ""
    await require_signature(request, services, is_signed(secret, body, timestamp, signature, time.time()), signature)
    require_media_type(request, _FORM)
    return body


async def _taken(services: Services, found: IncomingQuestion) -> tuple[Response[Any] | None, BackgroundTask | None]:
    """Store a question; return the refusal, or what is to run once it is acknowledged."""
    try:
        return None, await store_question(services, found)
    except NotAuthenticated:
        raise
    except AdvisorError as error:
        return _said(error), None


def _nothing(then: BackgroundTask | None = None) -> Response[Any]:
    return Response(b"", media_type="text/plain", background=then)


def _tell(settings: Settings, address: str, message: dict[str, Any]) -> None:
    with new_client(settings) as client:
        send(client, "POST", address, message, of_slack)


def _said(error: AdvisorError) -> Response[Any]:
    """Return an error that only the asker sees."""
    return Response({"response_type": "ephemeral", **render(refusal(error, "", "slack"))})
