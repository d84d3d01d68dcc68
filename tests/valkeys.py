"""Real Valkey for tests: one server a session, emptied for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from service.queue.connection import connect
from service.queue.embedded import EmbeddedValkey


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    """The session's server. A test that stops it has to start it again."""
    server = EmbeddedValkey(Path(tmp_path_factory.mktemp("valkey")))
    server.start()
    yield server
    server.close()


@pytest.fixture
def redis(valkey: EmbeddedValkey) -> Iterator[Redis]:
    """A client of an empty Valkey."""
    client = connect(valkey.url)
    client.flushall()
    yield client
    client.close()
