"""`/metrics`: who may read it, and that nothing in it grows with what strangers send."""

from __future__ import annotations

import httpx
import pytest
from litestar import Litestar
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from service import metrics
from service.metrics import METRICS
from service.queue.connection import connect
from service.queue.counters import Counters
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.web.app import create_app
from service.wire.problem import PROBLEM_TYPES
from tests.web.http.test_problems import assert_problem


def values(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return every sample by its name and the values of its labels."""
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_request_is_counted_by_its_route_and_timed(client: httpx.Client) -> None:
    assert client.get("/metrics").headers["content-type"].lower().count("charset") == 1
    before = values(client.get("/metrics").text)
    client.get("/v1/advice/secret-id")
    after = values(client.get("/metrics").text)
    counted = ("advisor_http_requests_total", ("GET", "/v1/advice/{advice_id}", "4xx"))
    timed = ("advisor_http_request_duration_seconds_count", ("GET", "/v1/advice/{advice_id}"))
    problem = ("advisor_problems_total", ("advice-not-found",))
    assert [after[name] - before.get(name, 0) for name in (counted, timed, problem)] == [1, 1, 1]
    assert after["advisor_http_requests_in_flight", ()] == 1
    assert after["advisor_held_connections", ("stream",)] == 0
    assert {labels for name, labels in after if name == "advisor_part_up"} == {
        ("database",), ("redis",), ("workers",), ("disk",),
    }  # fmt: skip


def test_nothing_that_strangers_send_becomes_a_label(client: httpx.Client) -> None:
    for path in ("/v1/advice/one", "/some/where", "/v1/results?model=x"):
        client.get(path, headers={"user-agent": "stranger", "x-request-id": "stranger-1234"})
    client.request("BREW", "/v1/advice")
    text = client.get("/metrics").text
    assert [word for word in ("one", "where", "stranger", "BREW", "127.0.0.1") if f'"{word}' in text] == []
    assert 'method="other"' in text


def test_every_label_has_a_closed_list_of_values(client: httpx.Client, settings: Settings) -> None:
    app: Litestar = create_app(settings)
    bots = {"/bots/discord", "/bots/slack/commands", "/bots/slack/interactivity"}  # of apps that other tests made
    routes = {route.path_format for route in app.routes} | {"-"} | bots
    for metric in METRICS:
        for family in metric.made.collect():
            for sample in family.samples:
                for name, known in metric.labels.items():
                    value = sample.labels[name]
                    if name == "route":
                        assert value in routes, metric.name
                    elif name == "problem":
                        assert value in PROBLEM_TYPES
                    else:
                        assert value in known, metric.name
    assert metrics.HUB_LEFT.of("made up") is metrics.HUB_LEFT.of("other")


def test_metrics_are_for_named_networks_and_not_for_those_behind_a_proxy(client: httpx.Client) -> None:
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    for header in ("x-forwarded-for", "forwarded", "x-real-ip", "via"):
        assert_problem(client.get("/metrics", headers={header: "127.0.0.1"}), 401, "not-authenticated")
    assert_problem(client.get("/metrics", headers={"x-forwarded-for": "127.0.0.1"}), 401, "not-authenticated")


def test_what_processes_count_is_added_up_and_survives_a_silent_redis(redis: Redis, valkey: EmbeddedValkey) -> None:
    def process() -> tuple[Counters, Counter, Gauge, Histogram]:
        registry = CollectorRegistry()
        counter = Counter("done", "Done.", ("kind",), registry=registry)
        counter.labels("a")
        gauge = Gauge("left", "Left.", registry=registry)
        times = Histogram("took_seconds", "Took.", buckets=(1.0,), registry=registry)
        return Counters(registry), counter, gauge, times

    (one, done, left, took), (other, also, _, _) = process(), process()
    assert values(one.text(redis).decode())["done_total", ("a",)] == 0
    done.labels("a").inc(2)
    also.labels("a").inc(3)
    left.set(7)
    took.observe(0.5)
    gone = connect("unix:///nowhere")
    with pytest.raises(Exception, match="No such file"):
        one.send(gone)
    one.send(redis)
    one.send(redis)
    other.send(redis)
    also.labels("a").inc()
    for counters, total in ((one, 5), (other, 6)):
        seen = values(counters.text(redis).decode())
        assert seen["done_total", ("a",)] == total
        assert seen["left", ()] == 7
        assert (seen["took_seconds_bucket", ("1.0",)], seen["took_seconds_sum", ()]) == (1, 0.5)
    redis.flushall()
    assert values(one.text(redis).decode())["done_total", ("a",)] == 0
