"""Rate limits per client: token buckets and open streams, each counted in Redis by one script.

Without Redis, reading goes on uncounted (with a log line), as it needs only the database; what starts work or holds a
connection open is refused with 503, since no worker would hear of it.
"""

from __future__ import annotations

import math
import secrets
from pathlib import Path
from typing import NamedTuple

import anyio
from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from service import metrics
from service.engine.errors import AdvisorError
from service.errors import QueueUnavailable, RateLimited
from service.logs import Log

log = Log("limits")

MAX_BODY_BYTES = 256 << 10
MAX_CHECK_BYTES = 2 << 20  # for a check with a log of 1 MB, whose line ends and quotes take two bytes each


class Bucket(NamedTuple):
    """A token bucket of `size` requests, refilled evenly in `seconds`."""

    name: str
    size: int
    seconds: int
    what: str


class TooManyStreams(AdvisorError):
    """The client holds as many streams as one may."""

    problem = "too-many-streams"
    retry_after = 30


class RateLimits:
    """The rate limits of one service, shared by its processes."""

    def __init__(self, redis: Redis, streams: int) -> None:
        self._redis, self._streams = redis, streams
        self._take, self._open = (redis.register_script(_script(name)) for name in ("take.lua", "open.lua"))

    async def take(self, bucket: Bucket, client: str, *, needs_redis: bool) -> None:
        """Take one token. Raises RateLimited; without Redis, raises QueueUnavailable if `needs_redis`, else passes."""
        arguments = [bucket.size, bucket.size / bucket.seconds]
        try:
            wait = int(await self._take(keys=[f"limit:{bucket.name}:{client}"], args=arguments))
        except (RedisError, OSError) as error:
            log.warning("limit.uncounted", refused=needs_redis, error=type(error).__name__)
            if needs_redis:
                raise QueueUnavailable("the queue does not answer, so nothing new can be started") from error
            return
        if wait:
            raise RateLimited(
                f"one client may make {bucket.size} {bucket.what} in {bucket.seconds} seconds",
                retry_after=math.ceil(wait / 1000),
            )

    async def first_time(self, key: str, seconds: int) -> bool:
        """Return whether this key is new in the last `seconds`; without Redis, which cannot tell, True."""
        try:
            return bool(await self._redis.set(key, b"1", nx=True, ex=seconds))
        except (RedisError, OSError) as error:
            log.warning("limit.uncounted", refused=False, error=type(error).__name__)
            return True

    async def hold(self, client: str, seconds: int, kind: str = "poll") -> Lease:
        """Return one of the client's streams, counted until it is closed, or not renewed for `seconds`.

        Raises TooManyStreams, or QueueUnavailable without Redis.
        """
        lease = Lease(self._redis, self._open, [f"streams:{client}"], self._streams, seconds, kind)
        await lease.renew()
        return lease


def _script(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


class Lease:
    """One open stream; as a context manager it closes itself, also on cancellation."""

    def __init__(self, redis: Redis, script: AsyncScript, keys: list[str], limit: int, seconds: int, kind: str) -> None:
        self._redis, self._script, self._keys = redis, script, keys
        self._limit, self._seconds, self._id = limit, seconds, secrets.token_hex(8)
        self._held = metrics.HELD.of(kind)

    async def renew(self) -> None:
        """Count the stream for another `seconds`. Raises TooManyStreams or QueueUnavailable."""
        try:
            opened = await self._script(keys=self._keys, args=[self._limit, self._seconds, self._id])
        except (RedisError, OSError) as error:
            raise QueueUnavailable("the queue does not answer, so nothing can be followed live") from error
        if not opened:
            raise TooManyStreams(f"one client may hold {self._limit} event streams and waiting requests at a time")

    async def __aenter__(self) -> Lease:
        self._held.inc()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._held.dec()
        with anyio.CancelScope(shield=True):
            try:
                await self._redis.zrem(self._keys[0], self._id)
            except (RedisError, OSError) as error:
                log.warning("redis.silent", error=type(error).__name__)
