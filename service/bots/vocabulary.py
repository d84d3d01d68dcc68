"""The verbs and their options (`verbs.json`): registered with Discord, parsed from Slack's line, listed by `help`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from service.engine.tables import table_of

SLACK_COMMAND = "/advisor"
CHECK_MESSAGE, ADD_MESSAGE = "Check this command", "Add to leaderboard"  # in the menu of a message
OF_MESSAGES = {CHECK_MESSAGE: "check", ADD_MESSAGE: "result"}


class Option(msgspec.Struct, frozen=True):
    """An option of a verb. `choices`: all its values; `complete`: what to propose while it is typed."""

    name: str
    help: str
    required: bool = False
    choices: tuple[str, ...] = ()
    complete: Literal["repo", "hardware", "model"] | None = None
    kind: Literal["text", "number", "yes"] = "text"


class Verb(msgspec.Struct, frozen=True):
    """A verb. `form`: options that a platform with forms asks for in one; `actions`: sub-commands.

    `title`: of the form, 45 characters at most. Examples of what to type after the verb: `line` on Slack, `typed` on
    Discord. `private`: only the asker sees the answer; `once`: the answer cannot be produced a second time.
    """

    name: str
    help: str
    options: tuple[Option, ...] = ()
    actions: tuple[Verb, ...] = ()
    form: tuple[Option, ...] = ()
    title: str = ""
    line: str = ""
    typed: str = ""
    private: bool = False
    once: bool = False


VERBS = table_of("verbs.json", tuple[Verb, ...], "service.bots")
NAMES = tuple(verb.name for verb in VERBS)
OF_BUTTONS = {"commands": "advise", "keep": "result"}  # verbs that only buttons ask: the verb they belong to


def verb_named(name: str) -> Verb | None:
    """Return the verb of this name; None if there is none."""
    return next((verb for verb in VERBS if verb.name == name), None)


def example(verb: Verb, platform: str) -> str:
    """Return an example of what to type on a platform, such as `/advise repo:…` or `/advisor advise …`."""
    if platform == "slack":
        return f"{SLACK_COMMAND} {verb.name} {verb.line}".rstrip()
    return f"/{verb.name} {verb.typed}".rstrip()


def is_private(verb: str, words: Mapping[str, str]) -> bool:
    """Return whether only the asker may see the answer: it is personal, or about their saved rig."""
    known = verb_named(verb)
    if verb == "advise":
        return "hardware" not in words and "public" not in words
    return known is None or known.private


def shown(off: Sequence[str]) -> tuple[Verb, ...]:
    return tuple(verb for verb in VERBS if verb.name not in off)
