"""Connections to Redis by URL. Every call fails within seconds when Redis is gone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis
from redis import asyncio as redis_async
from redis.exceptions import RedisError

from service.errors import InvalidSetting, QueueUnavailable

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 3
_REPLY_SECONDS = 10


def connect(url: str) -> Redis:
    """Return a client; nothing is opened yet. Raises InvalidSetting for a URL that is none of Redis."""
    try:
        return Redis.from_url(url, socket_connect_timeout=_CONNECT_SECONDS, socket_timeout=_REPLY_SECONDS)
    except ValueError as error:
        raise _invalid(error) from error


def connect_worker(url: str) -> Redis:
    """Return a client without a limit on replies, for a worker that waits for work."""
    try:
        return Redis.from_url(url, socket_connect_timeout=_CONNECT_SECONDS)
    except ValueError as error:
        raise _invalid(error) from error


def connect_async(url: str) -> redis_async.Redis:
    """Return an asynchronous client, for those who listen."""
    try:
        return redis_async.Redis.from_url(url, socket_connect_timeout=_CONNECT_SECONDS)
    except ValueError as error:
        raise _invalid(error) from error


@contextmanager
def unavailable_as_such() -> Iterator[None]:
    """Turn what the client library raises into QueueUnavailable."""
    try:
        yield
    except (RedisError, OSError) as error:
        # The client's words name hosts and paths: they are for the log, not for those who ask over the network.
        log.error("Redis does not answer: %s", error)
        raise QueueUnavailable("Redis does not answer", field="REDIS_URL") from error


def _invalid(error: ValueError) -> InvalidSetting:
    return InvalidSetting(f"REDIS_URL: {error}", field="REDIS_URL")
