"""The endpoints that Discord and Slack call, present only if a bot is set up, and not in the API's document."""

from __future__ import annotations

from litestar import Router

from service.errors import InvalidSetting
from service.settings import Settings
from service.web.chat.discord import discord
from service.web.chat.slack import slack_commands, slack_interactivity


def bot_routers(settings: Settings) -> list[Router]:
    """Return the routers of the configured bots. Raises InvalidSetting if they lack a setting."""
    if settings.has_bots and settings.public_url is None:
        raise InvalidSetting("bots give links: set the address at which people reach this", field="ADVISOR_PUBLIC_URL")
    if settings.discord_public_key and not settings.discord_application_id:
        raise InvalidSetting("set the id of the Discord application", field="ADVISOR_DISCORD_APPLICATION_ID")
    found = [discord] if settings.discord_public_key else []
    found += [slack_commands, slack_interactivity] if settings.slack_signing_secret else []
    return [Router("/bots", route_handlers=found)] if found else []
