"""Validations over HTTP: asked for, followed live, cancelled; and a host that measures them, on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from nacl.signing import SigningKey
from sqlalchemy import Engine

from service.flows.accounts import create_token
from service.flows.advice import advise
from service.flows.context import Context, open_context, utc_now
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.wire.advice.advice import Advice, AdviceRequest
from tests.databases import database_url, engine, postgres
from tests.flows.measuring.asking import QWEN, advised, measured_like, probe_of
from tests.hosts import RIG, Signer, a_host, bearer, service
from tests.local_hub import LocalHub
from tests.web.advice.test_events import events
from tests.web.http.test_problems import assert_problem

__all__ = ["database_url", "engine", "postgres"]


@pytest.fixture
def settings(database_url: str, engine: Engine, valkey: EmbeddedValkey) -> Iterator[Settings]:
    with LocalHub() as hub:
        yield Settings(
            database_url=database_url, redis_url=valkey.url, hf_endpoint=hub.endpoint, requests_per_minute=10_000
        )


@pytest.fixture
def context(settings: Settings) -> Iterator[Context]:
    with open_context(settings) as made:
        yield made


@pytest.fixture
def api(settings: Settings) -> Iterator[httpx.Client]:
    with service(settings) as client:
        yield client


@pytest.fixture
def alice(engine: Engine) -> dict[str, str]:
    return bearer(create_token(engine, "alice", ["validate", "host"], utc_now()).token)


@pytest.fixture
def agent(api: httpx.Client, context: Context) -> Signer:
    key = SigningKey.generate()
    made = a_host(context, "alice", key=key, probe=probe_of(context))
    signer = Signer(api, made.id, key)
    signer.open_session()
    return signer


@pytest.fixture
def advice(context: Context) -> Advice:
    return advised(context)


def test_a_validation_is_asked_for_measured_followed_and_read(
    api: httpx.Client, agent: Signer, alice: dict[str, str], advice: Advice
) -> None:
    path = f"/v1/advice/{advice.id}/validations"
    body = {"configs": [advice.configs[0].id]}
    made = api.post(path, json=body, headers=alice | {"Idempotency-Key": "once"})
    assert made.status_code == 201
    where = made.headers["location"]
    assert where == f"/v1/validations/{made.json()['id']}"
    assert made.json()["url"].endswith(where)
    again = api.post(path, json=body, headers=alice | {"Idempotency-Key": "once"})
    assert (again.status_code, again.json()["id"]) == (200, made.json()["id"])
    with api.stream("GET", where + "/events", headers=alice) as reply:
        stream = events(reply)
        assert next(stream)[0] == "queued"
        leased = agent.call("/v1/agent/leases", {"wait": 5}).json()
        assert next(stream)[2]["state"] == "leased"
        assert next(stream)[0] == "running"  # the whole of it
        rows = measured_like(advice, advice.configs[0].id)
        run = f"/v1/agent/runs/{leased['run']}"
        said = {"fence": leased["fence"], "step": "measuring", "rows": rows[:1]}
        assert agent.call(run + "/progress", said).json() == {"stop": False, "why": None}
        live = next(stream)
        assert (live[0], len(live[2]["rows"]), live[2]["run"]) == ("running", 1, leased["run"])
        accepted = agent.call(run + "/report", {"fence": leased["fence"], "rows": rows}).json()
        assert accepted["result"]
        ends = [(name, len(data["rows"])) for name, _, data in stream if name]
        assert ends == [("succeeded", len(rows) - 1), ("done", 0)]
    assert_problem(api.get(where), 404, "validation-not-found")  # its host is private
    read = api.get(where, headers=alice)
    assert (read.json()["state"], read.json()["best"]) == ("done", advice.configs[0].id)
    assert read.json()["runs"][0]["outcome"]["compared"]
    assert api.get(where, headers=alice | {"If-None-Match": read.headers["etag"]}).status_code == 304
    assert api.get(where + "/events", headers=alice | {"Last-Event-ID": "done"}).status_code == 204


def test_hosts_say_what_they_could_measure_to_who_may_see_them(
    api: httpx.Client, agent: Signer, alice: dict[str, str], advice: Advice
) -> None:
    mine = api.get(f"/v1/advice/{advice.id}/hosts", headers=alice).json()
    assert [one["config"] for one in mine] == [config.id for config in advice.configs]
    assert {host["match"] for one in mine for host in one["hosts"]} == {"exact"}
    assert all(one["hosts"] == [] for one in api.get(f"/v1/advice/{advice.id}/hosts").json())


def test_who_may_not_is_told_so(api: httpx.Client, engine: Engine, alice: dict[str, str], advice: Advice) -> None:
    path = f"/v1/advice/{advice.id}/validations"
    assert_problem(api.post(path, json={}), 401, "not-authenticated")
    reader = bearer(create_token(engine, "carol", ["submit"], utc_now()).token)
    assert_problem(api.post(path, json={}, headers=reader), 403, "not-allowed")
    assert_problem(api.post(path, json={}, headers=alice), 409, "no-host")
    assert_problem(api.post(path, json={"minutes": 0}, headers=alice), 422, "invalid-request")
    assert_problem(api.post(path, json={}, headers=alice | {"Idempotency-Key": "a b"}), 422, "invalid-request")
    assert_problem(api.get("/v1/validations/none"), 404, "validation-not-found")
    assert_problem(api.get("/v1/validations/none/events"), 404, "validation-not-found")


def test_a_cancelled_validation_ends_and_its_host_is_told(
    api: httpx.Client, agent: Signer, alice: dict[str, str], advice: Advice
) -> None:
    made = api.post(f"/v1/advice/{advice.id}/validations", json={}, headers=alice).json()
    leased = agent.call("/v1/agent/leases", {"wait": 0}).json()
    assert api.delete(f"/v1/validations/{made['id']}", headers=alice).status_code == 204
    assert api.get(f"/v1/validations/{made['id']}", headers=alice).json()["state"] == "cancelled"
    said = agent.call(f"/v1/agent/runs/{leased['run']}/progress", {"fence": leased["fence"], "step": "loading"}).json()
    assert said == {"stop": True, "why": "the validation was cancelled"}
    assert agent.call("/v1/agent/leases", {"wait": 0}).status_code == 204


def test_an_advice_that_is_not_ready_cannot_be_measured(
    api: httpx.Client, context: Context, alice: dict[str, str]
) -> None:
    queued = advise.request_advice(context, AdviceRequest(repo=QWEN, hardware=RIG)).advice
    assert_problem(api.post(f"/v1/advice/{queued.id}/validations", json={}, headers=alice), 422, "invalid-request")
