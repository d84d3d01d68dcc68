"""`/v1/advice/{id}/events`: the state first, then each change, until it is final."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from redis import Redis

from service.errors import QueueUnavailable
from service.web.http import follow
from service.web.http.limits import Lease
from tests.waiting import PATIENCE
from tests.web.http.test_problems import assert_problem
from tests.web.world import World


def events(reply: httpx.Response) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Return (name, id, data) of each event as it comes; comments as ("", "", {})."""
    event: dict[str, str] = {}
    for line in reply.iter_lines():
        if line.startswith(":"):
            yield "", "", {}
        elif line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            yield event["event"], event["id"], json.loads(event["data"])
            event = {}


def until(condition: Any, seconds: float = PATIENCE) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


def test_the_state_comes_first_then_each_change_then_the_end(client: httpx.Client, world: World) -> None:
    world.put("one", "queued")
    with client.stream("GET", "/v1/advice/one/events") as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.headers["cache-control"] == "no-store"
        stream = events(reply)
        assert next(stream)[::2] == ("queued", {"id": "one", "state": "queued", "progress": None})
        world.put("one", "running", progress="reading 2 of 9")
        assert next(stream)[2]["progress"] == "reading 2 of 9"
        world.put("one", "ready")
        assert next(stream)[:2] == ("ready", "ready")
        assert list(stream) == []


def test_a_final_advice_gives_one_event_and_the_end(client: httpx.Client, world: World) -> None:
    world.put("one", "ready")
    with client.stream("GET", "/v1/advice/one/events") as reply:
        assert [name for name, _, _ in events(reply)] == ["ready"]


def test_a_client_that_saw_the_end_is_told_to_stay_away(client: httpx.Client, world: World) -> None:
    world.put("one", "ready")
    assert client.get("/v1/advice/one/events", headers={"last-event-id": "ready"}).status_code == 204


def test_a_client_that_comes_back_gets_the_state_again(client: httpx.Client, world: World) -> None:
    world.put("one", "running", progress="planning")
    headers = {"last-event-id": "queued-00000000"}
    with client.stream("GET", "/v1/advice/one/events", headers=headers) as reply:
        assert next(events(reply))[2]["progress"] == "planning"


def test_a_quiet_stream_is_kept_alive_by_comments(
    client: httpx.Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "PING_SECONDS", 0.1)
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.05)
    world.put("one", "running")
    with client.stream("GET", "/v1/advice/one/events") as reply:
        stream = events(reply)
        assert [next(stream)[0] for _ in range(3)] == ["running", "", ""]


def test_a_change_that_nobody_published_is_seen_all_the_same(
    client: httpx.Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.05)
    world.put("one", "running")
    with client.stream("GET", "/v1/advice/one/events") as reply:
        stream = events(reply)
        next(stream)
        monkeypatch.setattr("tests.web.world.publish", lambda *_: None)
        world.put("one", "ready")
        assert next(stream)[0] == "ready"


def test_an_advice_that_is_deleted_meanwhile_ends_the_stream_with_a_problem(
    client: httpx.Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.05)
    world.put("one", "running")
    with client.stream("GET", "/v1/advice/one/events") as reply:
        stream = events(reply)
        next(stream)
        world.delete("one")
        name, _, data = next(stream)
        assert (name, data["status"]) == ("problem", 404)
        assert list(stream) == []


def test_an_unknown_advice_is_404_before_any_stream(client: httpx.Client) -> None:
    assert_problem(client.get("/v1/advice/none/events"), 404, "advice-not-found")


def test_a_client_that_goes_away_leaves_nothing_behind(client: httpx.Client, world: World, redis: Redis) -> None:
    world.put("one", "running")
    before = redis.pubsub_numpat()
    with client.stream("GET", "/v1/advice/one/events") as reply:
        stream = events(reply)
        next(stream)
        assert redis.pubsub_numpat() > before
        assert redis.keys("streams:*")
    assert until(lambda: redis.pubsub_numpat() == before)
    assert until(lambda: not redis.keys("streams:*"))


def test_one_client_holds_so_many_streams_and_no_more(client: httpx.Client, world: World, redis: Redis) -> None:
    world.put("one", "running")
    with client.stream("GET", "/v1/advice/one/events"), client.stream("GET", "/v1/advice/one/events"):
        assert_problem(client.get("/v1/advice/one/events"), 429, "too-many-streams")
        refused = client.get("/v1/advice/one?wait=5")
        assert_problem(refused, 429, "too-many-streams")
        assert int(refused.headers["retry-after"]) > 0
        assert client.get("/v1/advice/one").status_code == 200
    assert until(lambda: not redis.keys("streams:*"))
    assert client.get("/v1/advice/one?wait=1").status_code == 200


def test_an_open_stream_outlives_a_redis_that_goes_away(
    client: httpx.Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "PING_SECONDS", 0.1)
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.05)

    async def lost(self: Lease) -> None:
        raise QueueUnavailable("the queue does not answer")

    world.put("one", "running")
    with client.stream("GET", "/v1/advice/one/events") as reply:
        stream = events(reply)
        next(stream)
        monkeypatch.setattr(Lease, "renew", lost)
        assert [next(stream)[0] for _ in range(2)] == ["", ""]
        world.put("one", "ready")
        assert "ready" in [name for name, _, _ in stream]
