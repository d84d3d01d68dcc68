"""Progress of advices and validations: published by the process that works, heard by those that listen at that moment.

Nothing is kept: a listener first subscribes, then reads the database, then takes each message as a hint to read again.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
from redis import Redis
from redis.exceptions import RedisError

from service.wire.advice.advice import AdviceEvent
from service.wire.measuring.runs import ValidationEvent

WAITING_RUNS = "runs"  # hosts that wait for a run listen here
PATTERNS = ("advice:*", "validation:*", WAITING_RUNS)  # of all channels that the API follows


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
