"""PostgreSQL, Valkey and the local Hub, of which all replicas know."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from service.queue.embedded import EmbeddedValkey
from tests.bots.discord_payloads import PUBLIC_KEY
from tests.databases import postgres
from tests.deploy.replicas import Replicas
from tests.local_hub import LocalHub
from tests.valkeys import valkey

__all__ = ["postgres", "valkey"]


@pytest.fixture(scope="session")
def database(postgres: str) -> str:
    """The URL of an empty PostgreSQL database."""
    with psycopg.connect(host=postgres, user="postgres", dbname="postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE replicas")
    return f"postgresql://postgres@/replicas?host={postgres}"


@pytest.fixture(scope="session")
def stack(database: str, valkey: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Replicas that count nobody out."""
    with LocalHub() as hub:
        environment = {
            "DATABASE_URL": database, "REDIS_URL": valkey.url, "HF_ENDPOINT": hub.endpoint,
            "ADVISOR_DISCORD_PUBLIC_KEY": PUBLIC_KEY, "ADVISOR_DISCORD_APPLICATION_ID": "700",
            "ADVISOR_DISCORD_API": hub.endpoint,
            "ADVISOR_REQUESTS_PER_MINUTE": "1000000", "ADVISOR_NEW_REPOS_PER_HOUR": "1000000",
        }  # fmt: skip
        with Replicas(tmp_path_factory.mktemp("replicas"), environment).running() as replicas:
            yield replicas
