"""The headers of every call to Discord (discord-api-docs, reference: User Agent, Authentication)."""

from __future__ import annotations

from service import __version__
from service.settings import Settings


def headers(settings: Settings, *, as_bot: bool = False) -> dict[str, str]:
    """Return the User-Agent that Discord asks for, with this service's address; `as_bot`: and the bot's token."""
    found = {"User-Agent": f"DiscordBot ({settings.public_url or settings.discord_api}, {__version__})"}
    return {**found, "Authorization": f"Bot {settings.discord_bot_token}"} if as_bot else found
