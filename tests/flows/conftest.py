"""Flows on a real database, a real Valkey and the local Hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import Engine

from service.engine.errors import InvalidHeader
from service.engine.gguf.header import Header
from service.flows.context import Context
from service.hub.cache import FileCache
from service.hub.client import Hub
from service.hub.listing import RepoListing, Variant
from service.hub.references import RepoReference
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from tests.databases import database_url, engine, postgres
from tests.local_hub import LocalHub
from tests.valkeys import redis, valkey

__all__ = ["database_url", "engine", "postgres", "redis", "valkey"]


class Clock:
    """A clock that stands still until it is moved on."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_minutes(self, minutes: float) -> None:
        self.now += timedelta(minutes=minutes)


class WatchedHub(Hub):
    """The real client, which notes what it was asked."""

    def __init__(self, endpoint: str, cache: FileCache) -> None:
        super().__init__(endpoint, cache=cache)
        self.listed: list[str] = []
        self.read: list[str] = []

    def list_repo(self, reference: RepoReference) -> RepoListing:
        self.listed.append(reference.repo)
        return super().list_repo(reference)

    def read_headers(
        self, listing: RepoListing, variants: Sequence[Variant], in_full: bool = False,
        begin: Callable[[int], object] = lambda _: None,
    ) -> list[Header | InvalidHeader]:  # fmt: skip
        self.read += [variant.name for variant in variants]
        return super().read_headers(listing, variants, in_full, begin)


@pytest.fixture(scope="session")
def session_hub() -> Iterator[LocalHub]:
    with LocalHub() as hub:
        yield hub


@pytest.fixture
def local_hub(session_hub: LocalHub) -> LocalHub:
    session_hub.reset()
    return session_hub


@pytest.fixture
def settings(database_url: str, valkey: EmbeddedValkey, local_hub: LocalHub, tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path, database_url=database_url, redis_url=valkey.url, hf_endpoint=local_hub.endpoint)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def headers(tmp_path: Path) -> FileCache:
    """Headers that were read: none yet."""
    return FileCache(tmp_path / "headers", 1 << 26)


@pytest.fixture(scope="session")
def kept_headers(tmp_path_factory: pytest.TempPathFactory) -> FileCache:
    """Headers that any test of the session has read, for those that are about something else."""
    return FileCache(tmp_path_factory.mktemp("headers"), 1 << 26)


@pytest.fixture
def hub(local_hub: LocalHub, headers: FileCache) -> Iterator[WatchedHub]:
    hub = WatchedHub(local_hub.endpoint, headers)
    yield hub
    hub.close()


@pytest.fixture
def context(settings: Settings, engine: Engine, redis: Redis, hub: WatchedHub, clock: Clock) -> Context:
    return Context(settings, engine, redis, hub, clock)
