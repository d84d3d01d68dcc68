"""Progress of advices and validations, published by the working process to all listeners: one connection per process,
however many follow something.

Nothing is stored: a listener first subscribes, then reads the database, then takes each message as a hint to read it
again. While Redis is away, and when it is back, followers get hints as well, because messages published meanwhile are
lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import msgspec
from redis import Redis
from redis import asyncio as redis_async
from redis.exceptions import RedisError

from service.wire.advice.advice import AdviceEvent
from service.wire.measuring.runs import ValidationEvent

WAITING_RUNS = "runs"  # the channel of hosts that wait for a run
PATTERNS = ("advice:*", "validation:*", WAITING_RUNS)  # all channels that the API follows
_AWAY_SECONDS = 2.0  # between hints while Redis is away
_CONFIRM_SECONDS = 3.0
_READ_SECONDS = 60.0


def publish(redis: Redis, event: AdviceEvent | ValidationEvent) -> None:
    """Publish an event; without Redis nobody hears it, which does no harm."""
    name = channel(event.id) if isinstance(event, AdviceEvent) else validation_channel(event.id)
    with suppress(RedisError, OSError):
        redis.publish(name, msgspec.json.encode(event))


def wake_hosts(redis: Redis) -> None:
    """Tell waiting hosts that there may be a run for them; without Redis they poll."""
    with suppress(RedisError, OSError):
        redis.publish(WAITING_RUNS, b"{}")


def channel(advice_id: str) -> str:
    return f"advice:{advice_id}"


def validation_channel(validation_id: str) -> str:
    return f"validation:{validation_id}"


class Listener:
    """Subscribes to patterns of channels while anybody follows one of them. For one event loop."""

    def __init__(self, redis: redis_async.Redis, *patterns: str) -> None:
        self._redis, self._patterns = redis, patterns
        self._followers: dict[str, set[_Follower]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._subscribed = asyncio.Event()

    @asynccontextmanager
    async def listen(self, name: str) -> AsyncIterator[AsyncIterator[str]]:
        """Follow a channel. Yields an iterator over its latest messages, with an empty one when Redis was away.

        Inside the block no message is missed while Redis runs. Waiting for a message may be cancelled.
        """
        follower = _Follower()
        self._followers.setdefault(name, set()).add(follower)
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        try:
            with anyio.move_on_after(_CONFIRM_SECONDS):
                await self._subscribed.wait()
            yield follower
        finally:
            await self._leave(name, follower)

    async def _leave(self, name: str, follower: _Follower) -> None:
        self._followers[name].discard(follower)
        if not self._followers[name]:
            del self._followers[name]
        if not self._followers and self._reader is not None:
            reader, self._reader = self._reader, None
            self._subscribed.clear()
            reader.cancel()
            with anyio.CancelScope(shield=True):  # a listener that leaves has usually been cancelled
                await asyncio.wait({reader})

    async def _read(self) -> None:
        was_away = False
        while True:
            pubsub = self._redis.pubsub(ignore_subscribe_messages=True)
            try:
                await self._hear(pubsub, was_away)
            except (RedisError, OSError):
                was_away = True
                self._subscribed.clear()
                self._hint_all()
            finally:
                with suppress(RedisError, OSError):
                    await pubsub.aclose()  # type: ignore[no-untyped-call]
            await asyncio.sleep(_AWAY_SECONDS)

    async def _hear(self, pubsub: Any, was_away: bool) -> None:
        await pubsub.psubscribe(*self._patterns)
        await pubsub.get_message(timeout=_CONFIRM_SECONDS)
        self._subscribed.set()
        if was_away:
            self._hint_all()
        while True:
            message = await pubsub.get_message(timeout=_READ_SECONDS)
            if message is not None:
                for follower in self._followers.get(str(message["channel"], "utf-8"), ()):
                    follower.hint(str(message["data"], "utf-8"))

    def _hint_all(self) -> None:
        for followers in self._followers.values():
            for follower in followers:
                follower.hint("")


class _Follower:
    """Holds the latest message that was not yet taken."""

    def __init__(self) -> None:
        self._latest, self._has_come = "", asyncio.Event()

    def hint(self, message: str) -> None:
        self._latest = message
        self._has_come.set()

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        await self._has_come.wait()
        self._has_come.clear()
        return self._latest
