"""Progress of advices and validations: published by whoever works, heard by whoever listens at that moment.

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
from service.wire.runs import ValidationEvent

_RECONNECT_SECONDS = 1.0
_CONFIRM_SECONDS = 3.0
_READ_SECONDS = 60.0


WAITING_RUNS = "runs"  # hosts that wait for a run listen here


def publish(redis: Redis, event: AdviceEvent | ValidationEvent) -> None:
    """Tell the listeners what happened; nobody is told when Redis is gone, which harms nothing."""
    name = channel(event.id) if isinstance(event, AdviceEvent) else validation_channel(event.id)
    with suppress(RedisError, OSError):
        redis.publish(name, msgspec.json.encode(event))


def wake_hosts(redis: Redis) -> None:
    """Tell hosts that wait that there may be a run for them; without Redis they look by themselves."""
    with suppress(RedisError, OSError):
        redis.publish(WAITING_RUNS, b"{}")


def channel(advice_id: str) -> str:
    """Return the name of an advice's channel."""
    return f"advice:{advice_id}"


def validation_channel(validation_id: str) -> str:
    """Return the name of a validation's channel."""
    return f"validation:{validation_id}"


@asynccontextmanager
async def listen(redis: redis_async.Redis, name: str) -> AsyncIterator[AsyncIterator[str]]:
    """Subscribe to a channel. The value iterates over the messages, JSON of events, until the caller leaves.

    Once it is entered no later message is missed while Redis runs; when Redis goes, the iterator waits for its return.
    """
    messages = _Messages(redis, name)
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
