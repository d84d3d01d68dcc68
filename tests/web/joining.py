"""A machine that joins over HTTP, as an agent does it, and the real app for it to join."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from nacl.signing import SigningKey
from redis import Redis
from sqlalchemy import Engine

from service.flows.accounts import create_token
from service.flows.context import utc_now
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.wire.measuring.agent import enrolment_text
from tests.databases import BOTH, empty_database, engine_with_tables
from tests.hosts import Signer, bearer, public_key, service, signature


def settings_for(database_url: str, valkey: EmbeddedValkey) -> Settings:
    """Return settings of a service that counts nobody out, and has no Hub: nothing leaves the machine."""
    return Settings(
        database_url=database_url,
        redis_url=valkey.url,
        hf_endpoint="http://127.0.0.1:1",
        requests_per_minute=10_000,
        metrics_networks=("192.0.2.0/24",),
    )


@pytest.fixture
def api(engine: Engine, database_url: str, valkey: EmbeddedValkey, redis: Redis) -> Iterator[httpx.Client]:
    """A client of the real app, on an empty database of its own."""
    with service(settings_for(database_url, valkey)) as client:
        yield client


@pytest.fixture(scope="module", params=BOTH)
def shared_engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A database for all tests of a module, which leave it usable."""
    with engine_with_tables(empty_database(request, tmp_path_factory.mktemp("shared"))) as made:
        yield made


@pytest.fixture(scope="module")
def shared_app(shared_engine: Engine, valkey: EmbeddedValkey) -> Iterator[httpx.Client]:
    """A client of the real app for all tests of a module."""
    url = shared_engine.url.render_as_string(hide_password=False)
    with service(settings_for(url, valkey)) as client:
        yield client


def token_of(engine: Engine, name: str, *scopes: str) -> dict[str, str]:
    """Return the header with a new token of the account `name`."""
    return bearer(create_token(engine, name, scopes, utc_now()).token)


def code_of(api: httpx.Client, owner: dict[str, str], **asked: str) -> str:
    """Return a new enrolment code."""
    reply = api.post("/v1/hosts/enrolments", json=asked, headers=owner)
    assert reply.status_code == 201
    assert f"--code={reply.json()['code']}" in reply.json()["command"]
    return str(reply.json()["code"])


def enrol(api: httpx.Client, code: str, key: SigningKey) -> httpx.Response:
    """Return the answer to a machine that enrols with `key`."""
    proof = signature(key, enrolment_text(api.base_url.netloc.decode(), code, public_key(key)))
    body = {"code": code, "public_key": public_key(key), "signature": proof, "agent": "0.1.0"}
    return api.post("/v1/agent/hosts", json=body)


def joined(api: httpx.Client, owner: dict[str, str], **asked: str) -> Signer:
    """Return a machine that has just been enrolled."""
    key = SigningKey.generate()
    reply = enrol(api, code_of(api, owner, **asked), key)
    assert reply.status_code == 201, reply.text
    return Signer(api, reply.json()["host"], key)


def in_session(api: httpx.Client, owner: dict[str, str], **asked: str) -> Signer:
    """Return a machine that has just been enrolled, approved, and has opened a session."""
    agent = joined(api, owner, **asked)
    assert api.patch(f"/v1/hosts/{agent.host}", json={"state": "active"}, headers=owner).status_code == 200
    assert agent.open_session().status_code == 201
    return agent
