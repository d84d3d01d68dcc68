"""The app on a real server with a real database, a real Valkey and the local Hub; the database new for each test."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from redis import Redis

from service.flows.advice import advise
from service.flows.context import Context
from service.hub.cache import FileCache
from service.queue.connection import connect
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.web.app import create_app
from tests.databases import engine_with_tables
from tests.local_hub import LocalHub
from tests.valkeys import redis, valkey
from tests.web.servers import client_of
from tests.web.world import HeldHub, World

__all__ = ["redis", "valkey"]


@pytest.fixture(scope="session")
def settings(valkey: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(
        state_dir=tmp_path_factory.mktemp("web"), redis_url=valkey.url, requests_per_minute=60, new_repos_per_hour=2,
        streams_per_client=2,
    )  # fmt: skip


@pytest.fixture(scope="session")
def shared_world(settings: Settings) -> Iterator[World]:
    cache = FileCache(settings.headers_dir, 1 << 26)
    with engine_with_tables(settings.database) as engine, LocalHub() as local_hub:
        hub, redis = HeldHub(local_hub.endpoint, cache), connect(settings.redis_url or "")
        yield World(Context(settings, engine, redis, hub), hub)
        redis.close()
        hub.close()


@pytest.fixture(scope="session")
def server(settings: Settings, shared_world: World) -> Iterator[httpx.Client]:
    with client_of(create_app(settings, shared_world.context)) as client:
        yield client


@pytest.fixture
def world(redis: Redis, shared_world: World) -> World:
    shared_world.begin()
    return shared_world


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each request for an advice end in an error that nobody planned."""

    def fail(*_: object) -> None:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(advise, "parse_request", fail)


@pytest.fixture
def client(server: httpx.Client, world: World) -> httpx.Client:
    return server
