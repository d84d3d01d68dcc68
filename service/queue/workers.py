"""Which workers are there: those that said so lately, whatever became of the others."""

from __future__ import annotations

from redis import Redis
from rq.worker_registration import get_keys

from service.queue.enqueue import queue_on


def n_workers(redis: Redis) -> int:
    """Return how many workers of our queue are alive: a minute after the next word of one was due it is none.

    RQ's own count goes on with those that were killed, until another worker tidies up. Raises RedisError, OSError.
    """
    keys = get_keys(queue_on(redis))
    return int(redis.exists(*keys)) if keys else 0
