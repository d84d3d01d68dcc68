"""What flows work with: one of each per process, made from the settings."""

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
    """Return the present instant."""
    return datetime.now(UTC)


class Database(NamedTuple):
    """The database alone, for commands on the service's own machine."""

    engine: Engine
    clock: Callable[[], datetime] = utc_now


class DatabaseAndHub(NamedTuple):
    """The database and the Hub, for commands on the service's own machine."""

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


ReadsHeaders: TypeAlias = Context | DatabaseAndHub  # what a flow takes that needs no Redis
Records: TypeAlias = ReadsHeaders | Database  # and one that needs the database and the clock only


@contextmanager
def open_context(settings: Settings) -> Iterator[Context]:
    """Make a context and close it at the end; nothing is connected before it is used.

    Raises InvalidSetting for a URL that cannot be, QueueUnavailable when REDIS_URL is not set.
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
    """Load what computing an advice needs and nothing has asked for yet, so that each forked work horse has it.

    PostgreSQL's driver alone costs 0.2 s of a core to load, and what asks the Hub 0.1 s.
    """
    with open_context(settings):
        for module in ("service.hub.info", "service.hub.ranges", "service.outgoing.library"):
            import_module(module)
    versions()
    known_gpus()
    known_cpus()
