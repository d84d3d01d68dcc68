"""The application's commands as Discord is told them, and the form of a verb.

Limits: discord-api-docs c98d64b, interactions/application-commands; forms: components/reference (label, text input).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.bots.vocabulary import OF_MESSAGES, Option, Verb, shown, verb_named

_SUB_COMMAND, _STRING, _INTEGER, _BOOLEAN = 1, 3, 4, 5
_TYPES = {"text": _STRING, "number": _INTEGER, "yes": _BOOLEAN}
_CHAT, _IN_MESSAGE_MENU = 1, 3
_EVERYWHERE = {"integration_types": [0, 1], "contexts": [0, 1, 2]}  # servers and users; servers, DMs, group DMs
_MAX_TEXT = 4_000
_LABEL, _INPUT, _ONE_LINE, _LINES = 18, 4, 1, 2
_MAX_INPUT = 4_000
_MAX_PLACEHOLDER = 100


def commands(off: Sequence[str], *, in_guild: bool = False) -> list[dict[str, Any]]:
    """Return all commands, without the verbs that are turned off; as those of one guild, or global ones."""
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
    """Return a verb's form; `known`: what stands in its fields already. Raises KeyError for a verb that has none."""
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
