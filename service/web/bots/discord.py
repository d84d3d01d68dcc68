"""`/bots/discord`: Discord's interactions. The answer to each is a deferred one, at once."""

from __future__ import annotations

import time
from typing import Any

from anyio import to_thread
from litestar import Request, Response, post
from litestar.di import NamedDependency

from service.bots.discord.commands import form
from service.bots.discord.incoming import Asked, Completion, Form, Ping, read
from service.bots.discord.render import EPHEMERAL, render
from service.bots.discord.signature import is_signed
from service.bots.verbs import refusal
from service.engine.errors import AdvisorError
from service.errors import NotAuthenticated
from service.web.bots.door import admitted, may_be_completed, only_declared, only_signed, taken
from service.web.services import Services

_PONG, _MESSAGE, _DEFERRED, _CHOICES, _FORM = 1, 4, 5, 8, 9
_MOST_CHOICES, _LONGEST_CHOICE = 25, 100


@post("/discord", status_code=200)
async def discord(request: Request[Any, Any, Any], services: NamedDependency[Services]) -> Response[dict[str, Any]]:
    """Take an interaction; what Discord did not sign, or sent before, is refused with 401."""
    body = await request.body()
    signature = request.headers.get("x-signature-ed25519", "")
    timestamp = request.headers.get("x-signature-timestamp", "")
    key = services.settings.discord_public_key or ""
    await only_signed(request, services, is_signed(key, body, timestamp, signature, time.time()), signature)
    only_declared(request, "application/json")
    interaction = read(body, services.settings.discord_application_id)
    if isinstance(interaction, Ping):
        return Response({"type": _PONG})
    if isinstance(interaction, Completion):
        return Response({"type": _CHOICES, "data": {"choices": await _choices(services, interaction)}})
    try:
        return Response(await _reply(services, interaction))
    except NotAuthenticated:
        raise
    except AdvisorError as error:
        message = render(refusal(error, "", "discord"))
        return Response({"type": _MESSAGE, "data": {**message.body, "flags": EPHEMERAL}})


async def _reply(services: Services, interaction: Form | Asked) -> dict[str, Any]:
    if isinstance(interaction, Form):
        await admitted(services, interaction.asker)
        rig = await to_thread.run_sync(services.flows.remembered_rig, interaction.asker.account)
        return {"type": _FORM, "data": form(interaction.verb, {"rig": rig or ""})}
    await taken(services, interaction.id, interaction.asker, interaction.ask, interaction.reply)
    return {"type": _DEFERRED, **({"data": {"flags": EPHEMERAL}} if interaction.reply.private else {})}


async def _choices(services: Services, typed: Completion) -> list[dict[str, str]]:
    """Nothing is proposed where that fails: what is typed counts all the same."""
    try:
        await may_be_completed(services, typed.asker)
        found = await to_thread.run_sync(services.flows.completions, typed.kind, typed.text, typed.asker.account)
    except AdvisorError:
        return []
    return [{"name": one, "value": one} for one in found if 0 < len(one) <= _LONGEST_CHOICE][:_MOST_CHOICES]
