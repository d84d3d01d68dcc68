"""The app on a real server with a real Valkey, and flows in memory, new for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from redis import Redis

from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.web.app import create_app
from tests.valkeys import redis, valkey
from tests.web.memory_flows import MemoryFlows
from tests.web.servers import client_of

__all__ = ["redis", "valkey"]


class TheTestsFlows:
    """Whatever flows the running test has: the server outlives it."""

    current: MemoryFlows

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)


@pytest.fixture(scope="session")
def settings(valkey: EmbeddedValkey) -> Settings:
    return Settings(redis_url=valkey.url, requests_per_minute=60, new_repos_per_hour=2, streams_per_client=2)


@pytest.fixture(scope="session")
def shared() -> TheTestsFlows:
    return TheTestsFlows()


@pytest.fixture(scope="session")
def server(settings: Settings, shared: TheTestsFlows) -> Iterator[httpx.Client]:
    with client_of(create_app(settings, shared)) as client:  # type: ignore[arg-type]
        yield client


@pytest.fixture
def flows(redis: Redis, valkey: EmbeddedValkey, shared: TheTestsFlows) -> MemoryFlows:
    shared.current = MemoryFlows(redis, valkey.url)
    return shared.current


@pytest.fixture
def client(server: httpx.Client, flows: MemoryFlows) -> httpx.Client:
    return server
