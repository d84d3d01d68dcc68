"""Progress of advices and validations, published by the working process to whoever is listening.

Nothing is stored: a listener first subscribes, then reads the database, then takes each message as a hint to read it
again.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
from redis import Redis
from redis.exceptions import RedisError

from service.wire.advice.advice import AdviceEvent
from service.wire.measuring.runs import ValidationEvent

WAITING_RUNS = "runs"  # the channel of hosts that wait for a run
PATTERNS = ("advice:*", "validation:*", WAITING_RUNS)  # all channels that the API follows


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
    """Return the name of an advice's channel."""
    return f"advice:{advice_id}"


def validation_channel(validation_id: str) -> str:
    """Return the name of a validation's channel."""
    return f"validation:{validation_id}"
