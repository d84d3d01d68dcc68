"""The health of each part that the service needs, checked by itself, and the lengths of queues."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy import QueuePool

from service.errors import ServiceUnavailable
from service.flows.context import Context
from service.flows.results.differences import open_differences
from service.metrics import BOT_ANSWERS_LOST, HUB_ANSWERED, HUB_FAILED
from service.queue.connection import connect, unavailable_as_such
from service.queue.counters import COUNTERS, last
from service.queue.enqueue import n_workers
from service.store.migrations import is_usable
from service.store.operations import health
from service.wire.health import PartName

_LEAST_BYTES = 256 << 20
_GIB = 1 << 30
_BOTS_KEY, BOTS_SECONDS = "alive:bots", 30
_ONLINE = timedelta(minutes=2)


class QueueLengths(msgspec.Struct, frozen=True, kw_only=True):
    """The lengths of queues at this moment. `n_workers` is None when Redis does not answer.

    `differences`: how many differences between logs and predictions there are in each state.
    """

    work: health.Backlog
    differences: dict[str, int]
    n_workers: int | None


def part(context: Context, name: PartName) -> str:
    """Return a healthy part's status text. Raises ServiceUnavailable or its subclasses with what is wrong."""
    return _ASKED[name](context)


def backlog(context: Context) -> QueueLengths:
    """Return the queues' lengths. Raises DatabaseUnavailable."""
    now = context.clock()
    work = health.backlog(context.engine, now, now - _ONLINE)
    differences = Counter[str](one.state for one in open_differences(context))
    try:
        workers = n_workers(context.redis)
    except (RedisError, OSError):
        workers = None
    return QueueLengths(work=work, differences=dict(differences), n_workers=workers)


def send_counts(redis: Redis) -> None:
    """Add this process's shared counters to those in Redis. Raises QueueUnavailable."""
    with unavailable_as_such():
        COUNTERS.send(redis)


def counts(context: Context) -> bytes:
    """Return the shared counters of all processes in Prometheus' format. Raises QueueUnavailable."""
    with unavailable_as_such():
        return COUNTERS.text(context.redis)


def answers_lost(redis_url: str) -> dict[tuple[str, str], int]:
    """Return how many chat answers reached nobody, by (platform, why); empty if Redis does not answer."""
    found: dict[tuple[str, str], int] = {}
    redis = connect(redis_url)
    try:
        counted = COUNTERS.text(redis).decode()
    except (RedisError, OSError):
        return found
    finally:
        redis.close()
    for family in text_string_to_metric_families(counted):
        for sample in family.samples:
            if sample.name == f"{BOT_ANSWERS_LOST.name}_total" and sample.value:
                found[sample.labels["platform"], sample.labels["why"]] = int(sample.value)
    return found


def database_connections(context: Context) -> tuple[int, int]:
    """Return how many of this process's database connections are in use, and how many idle."""
    pool = context.engine.pool
    return (pool.checkedout(), pool.checkedin()) if isinstance(pool, QueuePool) else (0, 0)


def bots_are_there(redis: Redis) -> None:
    """Record that the bots' process is alive. Raises QueueUnavailable."""
    with unavailable_as_such():
        redis.set(_BOTS_KEY, b"1", ex=BOTS_SECONDS)


def _database(context: Context) -> str:
    revision = health.revision(context.engine)
    if not is_usable(revision):
        raise ServiceUnavailable("its tables are not this version's: `advisor serve` migrates them")
    return "answers"


def _redis(context: Context) -> str:
    with unavailable_as_such():
        context.redis.ping()
    return "answers"


def _workers(context: Context) -> str:
    with unavailable_as_such():
        n = n_workers(context.redis)
    if not n:
        raise ServiceUnavailable("no worker has been seen lately")
    return f"{n} seen lately"


def _bots(context: Context) -> str:
    with unavailable_as_such():
        alive = context.redis.exists(_BOTS_KEY)
    if not alive:
        raise ServiceUnavailable("the bots' process has not been seen lately")
    return "seen lately"


def _disk(context: Context) -> str:
    settings = context.settings
    free = min(_free(folder) for folder in (settings.state_dir, settings.headers_dir))
    if free < _LEAST_BYTES:
        raise ServiceUnavailable(f"{free >> 20} MiB are left for state and cache")
    return f"{free / _GIB:,.1f} GiB free"


def _free(folder: Path) -> int:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not os.access(there, os.W_OK):
        raise ServiceUnavailable("the state or cache folder is not writable")
    return shutil.disk_usage(there).free


def _hub(context: Context) -> str:
    """Return the Hub's status as the last requests found it, without asking the Hub."""
    with unavailable_as_such():
        answered, failed = (last(context.redis, one.name) or 0.0 for one in (HUB_ANSWERED, HUB_FAILED))
    if failed > answered:
        raise ServiceUnavailable(f"did not answer {_ago(failed)}")
    return f"answered {_ago(answered)}" if answered else "not asked yet"


def _ago(instant: float) -> str:
    return f"{max(0, round(time.time() - instant)):,} s ago"


_ASKED: dict[PartName, Callable[[Context], str]] = {
    "database": _database, "redis": _redis, "workers": _workers, "bots": _bots, "disk": _disk, "hub": _hub,
}  # fmt: skip
