"""`/health` and `/ready` tell the truth, and at once, whatever hangs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import httpx
import psutil
import pytest
from redis import Redis
from sqlalchemy import Engine

from service.metrics import HUB_FAILED
from service.queue.counters import COUNTERS
from service.queue.embedded import EmbeddedValkey
from tests.databases import database_url, engine, postgres
from tests.web.http.test_problems import assert_problem
from tests.web.joining import api
from tests.web.world import World

__all__ = ["api", "database_url", "engine", "postgres"]
AT_ONCE = 15.0  # seconds; what hangs does so for as long as the test


def test_ready_names_each_part_and_how_long_it_took(client: httpx.Client, world: World) -> None:
    world.register_worker()
    reply = client.get("/ready")
    parts = reply.json()["parts"]
    assert [part["name"] for part in parts] == ["database", "redis", "workers", "disk", "hub"]
    assert all(part["state"] == "good" and part["ms"] >= 0 for part in parts)
    assert reply.headers["cache-control"] == "no-store"


def test_not_ready_is_503_and_names_what_is_missing(client: httpx.Client, world: World) -> None:
    reply = client.get("/ready")
    found = assert_problem(reply, 503, "service-unavailable")
    assert found["detail"] == "workers: no worker has been seen lately"
    assert [part["name"] for part in found["parts"] if part["state"] == "bad"] == ["workers"]
    assert reply.headers["retry-after"] == str(found["retry_after"])
    assert client.get("/health").json()["status"] == "ok"


def test_a_hub_that_is_away_is_told_and_is_no_reason_to_turn_requests_elsewhere(
    client: httpx.Client, world: World, redis: Redis
) -> None:
    world.register_worker()
    HUB_FAILED.only.set(time.time() + 3600)
    try:
        COUNTERS.send(redis)
        reply = client.get("/ready")
    finally:
        HUB_FAILED.only.set(0)  # behind the answer: the app sends what is counted every few seconds
    assert reply.status_code == 200
    assert reply.json()["parts"][-1] | {"ms": 0} == {
        "name": "hub", "state": "bad", "needed": False, "text": "did not answer 0 s ago", "ms": 0,
    }  # fmt: skip


def told(api: httpx.Client) -> dict[str, str]:
    """Return the parts that are bad, and why, by an answer that came at once."""
    began = time.monotonic()
    found = api.get("/ready").json()
    assert time.monotonic() - began < AT_ONCE
    began = time.monotonic()
    assert api.get("/metrics").status_code == 401
    assert api.get("/health").status_code == 200
    assert time.monotonic() - began < AT_ONCE + 3  # a client is counted, which a silent Redis holds up
    return {part["name"]: part["text"] for part in found["parts"] if part["state"] == "bad"}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what hangs be waited for less long than by a real service; asked for before the app is made."""
    monkeypatch.setattr("service.web.services.ASK_SECONDS", 0.3)
    monkeypatch.setattr("service.web.app._REDIS_SECONDS", 0.5)


def test_a_redis_that_hangs_is_told_at_once_and_again_and_again(
    impatient: None, api: httpx.Client, redis: Redis, valkey: EmbeddedValkey
) -> None:
    assert set(told(api)) == {"workers"}
    os.kill(valkey.pid or 0, signal.SIGSTOP)
    try:
        for _ in range(2):
            assert told(api)["redis"] == "does not answer in time"
    finally:
        os.kill(valkey.pid or 0, signal.SIGCONT)
    deadline = time.monotonic() + 20
    while "redis" in told(api):
        assert time.monotonic() < deadline


@pytest.mark.full
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_postgresql_that_hangs_is_told_at_once(api: httpx.Client, engine: Engine, postgres: str) -> None:
    assert "database" not in told(api)
    postmaster = int(Path(postgres, "data", "postmaster.pid").read_text().split()[0])
    family = [psutil.Process(postmaster), *psutil.Process(postmaster).children()]
    for process in family:
        process.suspend()
    try:
        assert told(api)["database"] == "does not answer in time"
    finally:
        for process in family:
            process.resume()
    deadline = time.monotonic() + 20
    while "database" in told(api):
        assert time.monotonic() < deadline
