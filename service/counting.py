"""Events of the traffic with the Hub, for whoever listens: a server's metrics do, the command line does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

Event: TypeAlias = Literal["hit", "miss", "received", "retried"]
Events: TypeAlias = Callable[[Event, int], None]
Replies: TypeAlias = Callable[[str, int | None, Mapping[str, int]], None]
_listeners: list[tuple[Events, Replies]] = []


def listen(events: Events, replies: Replies) -> None:
    """Register callbacks: `events` gets an event and an amount; `replies` each reply's kind, status, requests left."""
    _listeners.append((events, replies))


def count(event: Event, amount: int = 1) -> None:
    """Report an event: a header found in the cache or not, bytes received, a request made again."""
    for events, _ in _listeners:
        events(event, amount)


def count_answer(kind: str, status: int | None, left: Mapping[str, int]) -> None:
    """Report a reply (`status` None: there was none). `left`: requests left, by window."""
    for _, replies in _listeners:
        replies(kind, status, left)
