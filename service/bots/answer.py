"""What a verb answers, before a platform gives it its form. Texts are raw: the renderer escapes them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import msgspec

from service.flows.context import Context
from service.wire.bots import Ask


class Code(msgspec.Struct, frozen=True):
    """Lines that are shown as they are, to be copied or in columns. Never cut: shown whole, or left out."""

    text: str
    language: str = ""


Part: TypeAlias = str | Code


class Button(msgspec.Struct, frozen=True):
    """A button that asks something, or opens an address."""

    label: str
    ask: Ask | None = None
    url: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A title, paragraphs and code, and what one may ask next.

    `link`: where all of it stands; `full`: all of it as plain text, for a file, where a platform takes one. `attach`:
    the file is worth having although nothing had to be left out. `private`: only the asker is to see it. `once`: it
    cannot be made a second time.
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
    """What came of looking at a question: an answer, and in how many seconds to look again (None: it is final).

    `subject`: the advice or validation that is waited for. `link`: where it can be followed elsewhere.
    """

    answer: Answer
    again: float | None = None
    subject: str | None = None


def mark_of(answer: Answer) -> str:
    """Return a text that is the same for the same answer only."""
    return hashlib.sha256(msgspec.json.encode((answer.title, answer.parts))).hexdigest()[:16]


MAX_BUTTON_ID = 100  # Discord: custom_id of a component


def button_id(ask: Ask) -> str:
    """Return what a button is called: its verb and words, such as `advise?of=abc&engine=llama.cpp`.

    Raises ValueError where that is longer than Discord allows: our own words never are.
    """
    words = "&".join(f"{name}={value}" for name, value in ask.words.items())
    text = f"{ask.verb}?{words}"
    if len(text) > MAX_BUTTON_ID or any(set(value) & set("&=?") for value in ask.words.values()):
        raise ValueError(f"{text[:120]!r} is not a name of a button")
    return text


def asked_by_button(text: str) -> Ask:
    """Return the question of a button. The verb and its words are checked by the part that answers, as any others."""
    verb, _, rest = text[:MAX_BUTTON_ID].partition("?")
    pairs = (pair.partition("=") for pair in rest.split("&") if pair)
    return Ask(verb=verb, words={name: value for name, _, value in pairs}, private=True)


class BotContext(NamedTuple):
    """The flows' context, the service's address, and what is called before a repo is read that is new here.

    `admit(account)` may raise RateLimited. `read_file(address)` returns the text of a file that is attached to a
    message; it raises InvalidInput for one that is none, or lies elsewhere than the platform's files.
    """

    context: Context
    admit: Callable[[str], None]
    read_file: Callable[[str], str]

    def address(self, path: str) -> str:
        """Return the URL of a path of this service."""
        return (self.context.settings.public_url or "").rstrip("/") + path


class Question(NamedTuple):
    """A question as a verb sees it: its words, who asks, its id, and the advice or validation it waits for already.

    `text`, `file_url`: of the message that it is about; `of_another`: somebody else wrote that.
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

    def asking(self, ask: Ask) -> Question:
        """Return the same with the words of `ask`, and what it says of a message."""
        found = self._replace(words=ask.words)
        if ask.message is None:
            return found
        one = ask.message
        return found._replace(text=one.text, file_url=one.file_url, of_another=not one.is_own)
