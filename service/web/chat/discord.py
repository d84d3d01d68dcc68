"""`/bots/discord`: Discord's interactions, each acknowledged at once with a deferred answer."""

from __future__ import annotations

import time
from typing import Any

from litestar import Response, post

from service.bots.discord.commands import form
from service.bots.discord.incoming import Completion, Form, Ping, is_signed, read
from service.bots.discord.render import EPHEMERAL, render
from service.bots.incoming import IncomingQuestion
from service.bots.verbs import refusal
from service.engine.errors import AdvisorError
from service.errors import NotAuthenticated
from service.flows.chat import chat_accounts, completions
from service.web.chat.webhooks import admit, admit_completion, require_media_type, require_signature, store_question
from service.web.http.types import HttpRequest
from service.web.services import AppServices, Services

_PONG, _MESSAGE, _DEFERRED, _CHOICES, _FORM = 1, 4, 5, 8, 9
_MOST_CHOICES, _LONGEST_CHOICE = 25, 100


@post("/discord", status_code=200)
async def discord(request: HttpRequest, services: AppServices) -> Response[dict[str, Any]]:
    """Receive an interaction; one that Discord did not sign, or a replay, is refused with 401."""
    body = await request.body()
    signature = request.headers.get("x-signature-ed25519", "")
    timestamp = request.headers.get("x-signature-timestamp", "")
    key = services.settings.discord_public_key or ""
    await require_signature(request, services, is_signed(key, body, timestamp, signature, time.time()), signature)
    require_media_type(request, "application/json")
    interaction = read(body, services.settings.discord_application_id)
    if isinstance(interaction, Ping):
        return Response({"type": _PONG})
    if isinstance(interaction, Completion):
        return Response({"type": _CHOICES, "data": {"choices": await _choices(services, interaction)}})
    try:
        return await _reply(services, interaction)
    except NotAuthenticated:
        raise
    except AdvisorError as error:
        message = render(refusal(error, "", "discord"))
        return Response({"type": _MESSAGE, "data": {**message.body, "flags": EPHEMERAL}})


async def _reply(services: Services, interaction: Form | IncomingQuestion) -> Response[dict[str, Any]]:
    if isinstance(interaction, Form):
        await admit(services, interaction.asker)
        rig = await services.run(chat_accounts.remembered_rig, interaction.asker.account)
        return Response({"type": _FORM, "data": form(interaction.verb, {"rig": rig or ""})})
    released = await store_question(services, interaction)
    private = {"data": {"flags": EPHEMERAL}} if interaction.reply.private else {}
    return Response({"type": _DEFERRED, **private}, background=released)


async def _choices(services: Services, typed: Completion) -> list[dict[str, str]]:
    """Return completions, none if that fails: the user's own text is valid anyway."""
    try:
        await admit_completion(services, typed.asker)
        found = await services.run(completions.completions, typed.kind, typed.text, typed.asker.account)
    except AdvisorError:
        return []
    return [{"name": one, "value": one} for one in found if 0 < len(one) <= _LONGEST_CHOICE][:_MOST_CHOICES]
