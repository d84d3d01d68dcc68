"""Telling Discord which commands the application has."""

from __future__ import annotations

import httpx

from service.bots.discord.commands import commands
from service.bots.discord.deliver import headers
from service.engine.errors import InvalidInput
from service.errors import InvalidSetting, ServiceUnavailable
from service.outgoing.rules import Refused
from service.settings import Settings

_GUILD_DIGITS = 20


def register(client: httpx.Client, settings: Settings, guild: str | None) -> list[str]:
    """Replace the application's commands, all of one guild's or all global ones, and return their names.

    Raises InvalidSetting where a setting is missing or Discord does not take it, InvalidInput for a guild that is none,
    ServiceUnavailable.
    """
    for name, value in (
        ("ADVISOR_DISCORD_APPLICATION_ID", settings.discord_application_id),
        ("ADVISOR_DISCORD_BOT_TOKEN", settings.discord_bot_token),
    ):
        if value is None:
            raise InvalidSetting(f"{name} is not set: docs/discord.md says where it is found", field=name)
    if guild is not None and not (guild.isascii() and guild.isdigit() and len(guild) <= _GUILD_DIGITS):
        raise InvalidInput(f"{guild[:40]!r} is not an id of a server: it is a number", field="guild")
    where = f"/guilds/{guild}" if guild else ""
    url = f"{settings.discord_api}/applications/{settings.discord_application_id}{where}/commands"
    wanted = commands(settings.bot_verbs_off, in_guild=guild is not None)
    try:
        reply = client.put(url, json=wanted, headers=headers(settings, as_bot=True))
    except (httpx.HTTPError, Refused) as error:
        raise ServiceUnavailable(f"Discord does not answer: {type(error).__name__}") from error
    if reply.is_success:
        return [str(command["name"]) for command in wanted]
    if reply.status_code in (401, 403):
        raise InvalidSetting("Discord does not take the bot's token here", field="ADVISOR_DISCORD_BOT_TOKEN")
    if reply.status_code == 429:
        raise ServiceUnavailable(f"Discord wants us to wait {reply.headers.get('retry-after', 'some')} seconds")
    raise ServiceUnavailable(f"Discord answers with status {reply.status_code}: {reply.text[:500]}")
