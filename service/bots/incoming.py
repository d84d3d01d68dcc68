"""What incoming questions of both platforms share: what is kept of them, and how old a signed request may be."""

from __future__ import annotations

from typing import NamedTuple

from service.bots.vocabulary import is_private
from service.bots.words import reduced_words
from service.wire.bots import Ask, Asker, Reply

WINDOW_SECONDS = 300  # limits replays: without it a recorded request would stay valid for ever


class IncomingQuestion(NamedTuple):
    """A question to answer later."""

    id: str
    asker: Asker
    ask: Ask
    reply: Reply


def kept_ask(verb: str, words: dict[str, str]) -> Ask:
    """Return the question as it may be kept: its words without names, places and secrets."""
    return Ask(verb=verb, words=reduced_words(verb, words), private=is_private(verb, words))


def is_recent(timestamp: str, now: float) -> bool:
    """Return whether a request was signed within five minutes of `now` (both in seconds since 1970)."""
    is_number = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12
    return is_number and abs(now - int(timestamp)) <= WINDOW_SECONDS
