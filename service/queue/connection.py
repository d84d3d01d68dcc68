"""Connections to Redis by URL. Every call fails within seconds when Redis is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis
from redis import asyncio as redis_async
from redis.exceptions import RedisError

from service.errors import InvalidSetting, QueueUnavailable
from service.logs import Log

log = Log("redis")

_CONNECT_SECONDS = 3.0
_REPLY_SECONDS = 10.0
_MOST_AT_ONCE = 50  # connections of one asynchronous client
_POOL_SECONDS = 10.0  # that a caller waits for one of them


def connect(url: str) -> Redis:
    """Return a client; nothing is opened yet. Raises InvalidSetting for a URL that is not Redis's."""
    with _refused_as_setting():
        return Redis.from_url(url, socket_connect_timeout=_CONNECT_SECONDS, socket_timeout=_REPLY_SECONDS)


def connect_worker(url: str) -> Redis:
    """Return a client without a limit on replies, for a worker that waits for work. Raises as `connect`."""
    with _refused_as_setting():
        return Redis.from_url(url, socket_connect_timeout=_CONNECT_SECONDS)


def connect_async(url: str, reply_seconds: float | None = None) -> redis_async.Redis:
    """Return an asynchronous client; one that listens has no limit on replies. Raises as `connect`."""
    with _refused_as_setting():
        # One that makes callers wait: the library's own refuses the 101st at a time, as if Redis were gone.
        pool = redis_async.BlockingConnectionPool.from_url(
            url, max_connections=_MOST_AT_ONCE, timeout=_POOL_SECONDS,
            socket_connect_timeout=reply_seconds or _CONNECT_SECONDS, socket_timeout=reply_seconds,
        )  # fmt: skip
        return redis_async.Redis.from_pool(pool)


@contextmanager
def unavailable_as_such() -> Iterator[None]:
    """Turn what the client library raises into QueueUnavailable."""
    try:
        yield
    except (RedisError, OSError) as error:
        # The client's words name hosts and paths: they are for the log, not for those who ask over the network.
        log.error("redis.silent", error=type(error).__name__, detail=str(error))
        raise QueueUnavailable("Redis does not answer", field="REDIS_URL") from error


@contextmanager
def _refused_as_setting() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise InvalidSetting(f"REDIS_URL: {error}", field="REDIS_URL") from error
