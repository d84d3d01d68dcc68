"""A verb's answer before a platform gives it its form. Texts are raw: the platform's renderer escapes them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, TypeAlias

import msgspec

from service.flows.context import Context
from service.wire.bots import Ask


class Code(msgspec.Struct, frozen=True):
    """Lines to show verbatim, for copying or in columns. Never cut: shown whole or left out."""

    text: str
    language: str = ""


Part: TypeAlias = str | Code


class Button(msgspec.Struct, frozen=True):
    """A button that asks a question or opens a URL."""

    label: str
    ask: Ask | None = None
    url: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A title, paragraphs and code, and buttons for what one may ask next.

    `link`: the page that shows all of it; `full`: all of it as plain text, for an attached file on platforms that take
    one; `attach`: attach the file even if nothing had to be left out. `private`: only the asker may see it. `once`: it
    cannot be produced a second time.
    """

    title: str
    parts: tuple[Part, ...] = ()
    buttons: tuple[Button, ...] = ()
    link: str | None = None
    full: str | None = None
    attach: bool = False
    once: bool = False
    private: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of looking at a question: an answer, and the seconds until the next look (None: the answer is final).

    `subject`: the id of the advice or validation that is being waited for.
    """

    answer: Answer
    again: float | None = None
    subject: str | None = None


def mark_of(answer: Answer) -> str:
    """Return a fingerprint of what an answer shows, to tell whether it has changed."""
    return hashlib.sha256(msgspec.json.encode((answer.title, answer.parts))).hexdigest()[:16]


MAX_BUTTON_ID = 100  # Discord: custom_id of a component


def button_id(ask: Ask) -> str:
    """Return the id of a button: its verb and words, such as `advise?of=abc&engine=llama.cpp`.

    Raises ValueError if it is longer than Discord allows or cannot be parsed back; our own questions always can.
    """
    words = "&".join(f"{name}={value}" for name, value in ask.words.items())
    text = f"{ask.verb}?{words}"
    if len(text) > MAX_BUTTON_ID or any(set(value) & set("&=?") for value in ask.words.values()):
        raise ValueError(f"{text[:120]!r} is not the name of a button")
    return text


def asked_by_button(text: str) -> Ask:
    """Return the question in a button's id. Like any other, it is checked only by the verb that answers it."""
    verb, _, rest = text[:MAX_BUTTON_ID].partition("?")
    pairs = (pair.partition("=") for pair in rest.split("&") if pair)
    return Ask(verb=verb, words={name: value for name, _, value in pairs}, private=True)


class BotContext(NamedTuple):
    """What verbs need from outside: the flows' context and two callbacks.

    `admit(account)` is called before a repo is read for the first time, and may raise RateLimited. `read_file(address)`
    returns the text of a file attached to a message; it raises InvalidInput if there is none, or if the address is not
    on the platform's file servers.
    """

    context: Context
    admit: Callable[[str], None]
    read_file: Callable[[str], str]

    def address(self, path: str) -> str:
        """Return the full URL of a path on this service."""
        return (self.context.settings.public_url or "").rstrip("/") + path


class Question(NamedTuple):
    """A question as a verb sees it.

    `subject`: the advice or validation it already waits for; `asked_at`: when it was taken. `text` and `file_url` are
    those of the message it is about; `of_another`: someone else wrote that message.
    """

    words: dict[str, str]
    account: str
    id: str
    subject: str | None = None
    text: str = ""
    file_url: str | None = None
    of_another: bool = False
    platform: str = ""
    place: str = ""
    asked_at: datetime | None = None

    def asking(self, ask: Ask) -> Question:
        """Return this question with the words of `ask` and its message, if it has one."""
        found = self._replace(words=ask.words)
        if ask.message is None:
            return found
        one = ask.message
        return found._replace(text=one.text, file_url=one.file_url, of_another=not one.is_own)
