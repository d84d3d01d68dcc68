"""Rate limits per client: token buckets and open streams, each counted in Redis by one script.

Without Redis, reading goes on uncounted (with a log line), as it needs only the database; what starts work or holds a
connection open is refused with 503, since no worker would hear of it.
"""

from __future__ import annotations

import math
import secrets
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

# KEYS[1]: the bucket; ARGV: its size in tokens, tokens per second. Returns milliseconds until there is a token, 0:
# taken.
_TAKE = """
local now = redis.call('TIME')
local at = now[1] + now[2] / 1000000
local size, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = tonumber(bucket[1]) or size
tokens = math.min(size, tokens + rate * math.max(0, at - (tonumber(bucket[2]) or at)))
local wait = 0
if tokens >= 1 then tokens = tokens - 1 else wait = math.ceil((1 - tokens) / rate * 1000) end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens), 'at', string.format('%.6f', at))
redis.call('PEXPIRE', KEYS[1], math.ceil(size / rate * 1000) + 1000)
return wait
"""

# KEYS[1]: a client's open streams by end of lease; ARGV: limit, seconds of a lease, id. Returns 1: opened.
_OPEN = """
local at = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', at)
if not redis.call('ZSCORE', KEYS[1], ARGV[3]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], at + tonumber(ARGV[2]), ARGV[3])
redis.call('EXPIRE', KEYS[1], tonumber(ARGV[2]) + 1)
return 1
"""


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
        self._take, self._open = redis.register_script(_TAKE), redis.register_script(_OPEN)

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
