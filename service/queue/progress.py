"""Progress of an advice: published by workers, heard by whoever listens at that moment.

Nothing is kept: a listener first subscribes, then reads the database, then takes each message as a hint to read again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
from redis import Redis
from redis import asyncio as redis_async
from redis.exceptions import RedisError

from service.wire.advice import AdviceEvent

_RECONNECT_SECONDS = 1.0
_CONFIRM_SECONDS = 3.0
_READ_SECONDS = 60.0


def publish(redis: Redis, event: AdviceEvent) -> None:
    """Tell the listeners of an advice what happened; nobody is told when Redis is gone, which harms nothing."""
    with suppress(RedisError, OSError):
        redis.publish(channel(event.id), msgspec.json.encode(event))


def channel(advice_id: str) -> str:
    """Return the name of an advice's channel."""
    return f"advice:{advice_id}"


@asynccontextmanager
async def listen(redis: redis_async.Redis, advice_id: str) -> AsyncIterator[AsyncIterator[str]]:
    """Subscribe to an advice. The value iterates over the messages, JSON of AdviceEvent, until the caller leaves.

    Once it is entered no later message is missed while Redis runs; when Redis goes, the iterator waits for its return.
    """
    messages = _Messages(redis, channel(advice_id))
    try:
        with suppress(RedisError, OSError):
            await messages.subscribe()
        yield messages
    finally:
        await messages.aclose()


class _Messages:
    """No generator: a caller that gives up waiting for one message may ask for the next."""

    def __init__(self, redis: redis_async.Redis, name: str) -> None:
        self._pubsub = redis.pubsub(ignore_subscribe_messages=True)
        self._name = name

    async def subscribe(self) -> None:
        await self._pubsub.subscribe(self._name)
        await self._pubsub.get_message(timeout=_CONFIRM_SECONDS)

    async def aclose(self) -> None:
        with suppress(RedisError, OSError):
            await self._pubsub.aclose()  # type: ignore[no-untyped-call]

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while True:
            try:
                if not self._pubsub.subscribed:
                    await self.subscribe()
                message = await self._pubsub.get_message(timeout=_READ_SECONDS)
            except (RedisError, OSError):
                await anyio.sleep(_RECONNECT_SECONDS)
                continue
            if message is not None:
                return str(message["data"], "utf-8")
