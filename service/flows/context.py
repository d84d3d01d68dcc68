"""What flows work with, made from the settings once per process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from typing import NamedTuple, TypeAlias

from redis import Redis
from sqlalchemy import Engine

from service.engine.catalogue.rows import known_cpus, known_gpus
from service.engine.versions import versions
from service.errors import QueueUnavailable
from service.flows.hub import make_hub
from service.hub.client import Hub
from service.queue.connection import connect
from service.settings import Settings
from service.store.engines import make_engine


def utc_now() -> datetime:
    return datetime.now(UTC)


class Database(NamedTuple):
    """The database without the rest, for commands run on the service's own machine."""

    engine: Engine
    clock: Callable[[], datetime] = utc_now


class DatabaseAndHub(NamedTuple):
    """The database and the Hub, for commands run on the service's own machine."""

    engine: Engine
    hub: Hub
    clock: Callable[[], datetime] = utc_now


class Context(NamedTuple):
    """The database, Redis, the Hub and the clock."""

    settings: Settings
    engine: Engine
    redis: Redis
    hub: Hub
    clock: Callable[[], datetime] = utc_now


ReadsHeaders: TypeAlias = Context | DatabaseAndHub  # for flows that need no Redis
Records: TypeAlias = ReadsHeaders | Database  # for flows that need only the database and the clock


@contextmanager
def open_context(settings: Settings) -> Iterator[Context]:
    """Yield a context and close it afterwards; connections are opened on first use.

    Raises InvalidSetting for an invalid URL, QueueUnavailable when REDIS_URL is not set.
    """
    if settings.redis_url is None:
        raise QueueUnavailable("REDIS_URL is not set: `advisor serve` runs a Valkey of its own", field="REDIS_URL")
    engine = make_engine(settings.database)
    redis = connect(settings.redis_url)
    hub = make_hub(settings)
    try:
        yield Context(settings, engine, redis, hub)
    finally:
        hub.close()
        redis.close()
        engine.dispose()


def preload(settings: Settings) -> None:
    """Import and load in the parent what computing an advice needs, so that forked work horses share it.

    Loading PostgreSQL's driver alone takes 0.2 s of CPU time, and the Hub client's modules 0.1 s.
    """
    with open_context(settings):
        for module in ("service.hub.info", "service.hub.ranges", "service.outgoing.library"):
            import_module(module)
    versions()
    known_gpus()
    known_cpus()
