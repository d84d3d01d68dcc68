"""`/v1/advice`: asking, waiting, formats, conditional reading, deleting."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from service.engine.errors import NotGguf
from service.errors import RateLimited
from service.hub.errors import HubRateLimited, RepoGated
from service.settings import Settings
from service.web.app import create_app
from tests.web.http.test_problems import assert_problem
from tests.web.servers import client_of
from tests.web.world import DELETE_KEY, NEW_REPO, READY_REPO, World

READY: dict[str, Any] = {"repo": READY_REPO, "hardware": "RTX 3090"}
NEW: dict[str, Any] = {"repo": NEW_REPO, "hardware": "RTX 3090"}


def test_a_finished_advice_is_answered_at_once_with_an_etag(client: httpx.Client) -> None:
    reply = client.post("/v1/advice", json=READY)
    assert (reply.status_code, reply.json()["state"]) == (200, "ready")
    assert reply.headers["etag"].startswith('"')
    assert reply.headers["location"] == "/v1/advice/ready-one"
    assert reply.json()["delete_key"] is None


def test_a_new_request_is_202_with_location_retry_after_and_the_key_once(client: httpx.Client) -> None:
    reply = client.post("/v1/advice", json=NEW)
    assert (reply.status_code, reply.json()["state"]) == (202, "queued")
    assert reply.headers["location"] == f"/v1/advice/{reply.json()['id']}"
    assert int(reply.headers["retry-after"]) > 0
    assert len(reply.json()["delete_key"]) >= 32
    assert reply.headers["cache-control"] == "no-store"
    assert "delete_key" not in client.get(reply.headers["location"]).json()


def test_waiting_holds_the_answer_until_it_is_ready(client: httpx.Client, world: World) -> None:
    world.when_queued(world.finish)
    reply = client.post("/v1/advice?wait=20", json=NEW)
    assert (reply.status_code, reply.json()["state"]) == (200, "ready")


def test_waiting_ends_in_time_when_nothing_happens(client: httpx.Client) -> None:
    reply = client.post("/v1/advice?wait=1", json=NEW)
    assert (reply.status_code, reply.json()["state"]) == (202, "queued")
    assert reply.elapsed.total_seconds() >= 1


def test_reading_can_wait_too(client: httpx.Client, world: World) -> None:
    world.put("one", "running", progress="reading headers")
    threading.Timer(0.3, lambda: world.put("one", "ready")).start()
    assert client.get("/v1/advice/one?wait=20").json()["state"] == "ready"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RepoGated("ask its author"), 403),
        (NotGguf("no magic number"), 422),
        (HubRateLimited("too often", retry_after=77), 503),
        (RateLimited("too often", retry_after=7), 429),
    ],
)
def test_a_failed_advice_is_a_problem_to_anyone_who_waited(
    client: httpx.Client, world: World, error: Any, status: int
) -> None:
    world.when_queued(lambda queued: world.fail(queued, error))
    reply = client.post("/v1/advice?wait=20", json=NEW)
    found = assert_problem(reply, status, error.problem)
    if status in (429, 503):
        assert reply.headers["retry-after"] == str(error.retry_after)
    later = client.get(found["instance"])
    assert (later.status_code, later.json()["state"]) == (200, "failed")
    assert later.json()["problem"]["type"] == f"/docs/problems#{error.problem}"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/plain", "text/plain"),
        ("text/markdown", "text/markdown"),
        ("application/json", "application/json"),
        ("*/*", "application/json"),
        ("text/*", "text/plain"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "application/json"),
        ("application/json;q=0.5, text/markdown", "text/markdown"),
        ("text/plain;q=0, */*;q=0.1", "application/json"),
        (";;;q=nan,text/plain;q=banana", "text/plain"),
    ],
)
def test_the_accept_header_chooses_the_format(client: httpx.Client, accept: str, kind: str) -> None:
    reply = client.post("/v1/advice", json=READY, headers={"accept": accept})
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith(kind)
    assert reply.headers["vary"] == "Accept, Accept-Encoding"


def test_format_in_the_query_goes_before_the_accept_header(client: httpx.Client) -> None:
    client.post("/v1/advice", json=READY)
    reply = client.get("/v1/advice/ready-one?format=markdown", headers={"accept": "text/plain"})
    assert reply.headers["content-type"].startswith("text/markdown")
    assert "18 t/s" in reply.text


def test_text_of_a_new_request_has_the_key_in_a_header(client: httpx.Client) -> None:
    reply = client.post("/v1/advice", json=NEW, headers={"accept": "text/plain"})
    assert reply.status_code == 202
    path = reply.headers["location"]
    assert client.delete(path, headers={"x-advice-key": reply.headers["x-advice-key"]}).status_code == 204


def test_an_unknown_format_is_406(client: httpx.Client) -> None:
    client.post("/v1/advice", json=READY)
    assert_problem(client.get("/v1/advice/ready-one", headers={"accept": "image/png"}), 406, "not-acceptable")


def test_what_the_client_has_is_304_until_it_changes(client: httpx.Client, world: World) -> None:
    world.put("one", "running")
    first = client.get("/v1/advice/one")
    known = {"if-none-match": first.headers["etag"]}
    assert client.get("/v1/advice/one", headers=known).status_code == 304
    assert client.get("/v1/advice/one", headers={"if-none-match": f'"x", W/{first.headers["etag"]}'}).status_code == 304
    assert client.get("/v1/advice/one", headers={"if-none-match": "*"}).status_code == 304
    assert client.get("/v1/advice/one?format=text", headers=known).status_code == 200
    world.put("one", "ready")
    changed = client.get("/v1/advice/one", headers=known)
    assert changed.status_code == 200
    assert changed.headers["etag"] != first.headers["etag"]


def test_deleting_takes_the_key(client: httpx.Client, world: World) -> None:
    world.put("one", "queued")
    path = "/v1/advice/one"
    assert_problem(client.delete(path), 403, "wrong-key")
    assert_problem(client.delete(path, headers={"x-advice-key": "guess"}), 403, "wrong-key")
    assert client.delete(path, headers={"x-advice-key": DELETE_KEY}).status_code == 204
    assert_problem(client.get(path), 404, "advice-not-found")
    assert_problem(client.delete(path, headers={"x-advice-key": DELETE_KEY}), 404, "advice-not-found")


def test_advice_is_not_for_search_engines(client: httpx.Client) -> None:
    client.post("/v1/advice", json=READY)
    assert client.get("/v1/advice/ready-one").headers["x-robots-tag"] == "noindex, nofollow"
    assert "Disallow: /v1/" in client.get("/robots.txt").text


def test_the_address_is_that_of_the_host_header_if_it_can_be_one(client: httpx.Client) -> None:
    client.post("/v1/advice", json=READY)
    seen = client.get("/v1/advice/ready-one", headers={"host": "advisor.lan:9000"}).json()
    assert seen["url"] == "http://advisor.lan:9000/v1/advice/ready-one"
    forged = client.get("/v1/advice/ready-one", headers={"host": "user@evil.example"}).json()
    assert forged["url"] == "/v1/advice/ready-one"


def test_a_host_header_that_is_none_is_400(client: httpx.Client) -> None:
    assert_problem(client.get("/v1/advice/x", headers={"host": "evil.example/<script>"}), 400, "bad-request")


def test_the_public_address_of_the_settings_goes_before(settings: Settings, world: World) -> None:
    public = Settings(redis_url=settings.redis_url, public_url="https://advisor.example/a/")
    with client_of(create_app(public, world.context)) as client:
        reply = client.post("/v1/advice", json=READY)
    assert reply.headers["location"] == "https://advisor.example/a/v1/advice/ready-one"
    assert reply.json()["url"] == "https://advisor.example/a/v1/advice/ready-one"
