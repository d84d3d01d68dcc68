"""The application's commands as registered with Discord, and the form (modal) of a verb.

Limits: discord-api-docs c98d64b, interactions/application-commands; forms: components/reference (label, text input).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from service.bots.discord.deliver import headers
from service.bots.vocabulary import OF_MESSAGES, Option, Verb, shown, verb_named
from service.engine.errors import InvalidInput
from service.errors import InvalidSetting, ServiceUnavailable
from service.outgoing.rules import Refused
from service.settings import Settings

_SUB_COMMAND, _STRING, _INTEGER, _BOOLEAN = 1, 3, 4, 5
_TYPES = {"text": _STRING, "number": _INTEGER, "yes": _BOOLEAN}
_CHAT, _IN_MESSAGE_MENU = 1, 3
_EVERYWHERE = {"integration_types": [0, 1], "contexts": [0, 1, 2]}  # servers and users; servers, DMs, group DMs
_MAX_TEXT = 4_000
_LABEL, _INPUT, _ONE_LINE, _LINES = 18, 4, 1, 2
_MAX_INPUT = 4_000
_MAX_PLACEHOLDER = 100


def commands(off: Sequence[str], *, in_guild: bool = False) -> list[dict[str, Any]]:
    """Return the commands of all verbs that are not in `off`; `in_guild`: as commands of one server, else global."""
    where = {} if in_guild else _EVERYWHERE
    found = [{**_chat_command(verb), "type": _CHAT, **where} for verb in shown(off)]
    menu = [name for name, verb in OF_MESSAGES.items() if verb not in off]
    return [*found, *({"name": name, "type": _IN_MESSAGE_MENU, **where} for name in menu)]


def _chat_command(verb: Verb) -> dict[str, Any]:
    inner = [{**_chat_command(action), "type": _SUB_COMMAND} for action in verb.actions]
    return {"name": verb.name, "description": verb.help, "options": [*inner, *map(_option, verb.options)]}


def _option(option: Option) -> dict[str, Any]:
    shown_as: dict[str, Any] = {
        "name": option.name,
        "description": option.help[:100],
        "type": _TYPES[option.kind],
        "required": option.required,
    }
    if option.choices:
        shown_as["choices"] = [{"name": choice, "value": choice} for choice in option.choices]
    elif option.kind == "text":
        shown_as |= {"max_length": _MAX_TEXT, "autocomplete": option.complete is not None}
    return shown_as


def form(name: str, known: Mapping[str, str]) -> dict[str, Any]:
    """Return a verb's form, its fields filled in with `known`. Raises KeyError for a verb that has no form."""
    verb = verb_named(name)
    if verb is None or not verb.form:
        raise KeyError(name)
    fields = [_field(option, known.get(option.name, "")[:_MAX_INPUT]) for option in verb.form]
    return {"custom_id": verb.name, "title": verb.title, "components": fields}


def _field(option: Option, value: str) -> dict[str, Any]:
    entered: dict[str, Any] = {
        "type": _INPUT,
        "custom_id": option.name,
        "style": _LINES if option.name in ("command", "text") else _ONE_LINE,
        "required": option.required,
        "max_length": _MAX_INPUT,
        "placeholder": option.help[:_MAX_PLACEHOLDER],
    }
    label = option.name.capitalize()
    return {"type": _LABEL, "label": label, "component": entered | ({"value": value} if value else {})}


_GUILD_DIGITS = 20


def register(client: httpx.Client, settings: Settings, guild: str | None) -> list[str]:
    """Replace the application's commands, either those of one guild or the global ones, and return their names.

    Raises InvalidSetting if a setting is missing or Discord rejects it, InvalidInput for an invalid guild id, and
    ServiceUnavailable.
    """
    for name, value in (
        ("ADVISOR_DISCORD_APPLICATION_ID", settings.discord_application_id),
        ("ADVISOR_DISCORD_BOT_TOKEN", settings.discord_bot_token),
    ):
        if value is None:
            raise InvalidSetting(f"{name} is not set: docs/discord.md says where it is found", field=name)
    if guild is not None and not (guild.isascii() and guild.isdigit() and len(guild) <= _GUILD_DIGITS):
        raise InvalidInput(f"{guild[:40]!r} is not the id of a server, which is a number", field="guild")
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
        raise InvalidSetting("Discord does not accept the bot's token here", field="ADVISOR_DISCORD_BOT_TOKEN")
    if reply.status_code == 429:
        raise ServiceUnavailable(f"Discord asks us to wait {reply.headers.get('retry-after', 'some')} seconds")
    raise ServiceUnavailable(f"Discord answers with status {reply.status_code}: {reply.text[:500]}")
