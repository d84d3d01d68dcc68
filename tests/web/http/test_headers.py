"""The headers of every answer: of each route, of each kind of error, to anyone who sends a token."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from redis import Redis
from sqlalchemy import Engine

from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.web.app import create_app
from service.web.http.middleware import HEADERS, TRANSPORT_SECURITY
from tests.databases import engine_with_tables
from tests.hosts import service
from tests.web.accounts.test_who_may_what import ACCESS, ROUTES, routes_of_the_app
from tests.web.joining import settings_for, token_of
from tests.web.servers import client_of
from tests.web.world import READY_REPO, World

HTML = {"accept": "text/html"}


@pytest.fixture
def many(valkey: EmbeddedValkey, world: World) -> Iterator[httpx.Client]:
    """The app in memory behind https, with a limit that nobody meets."""
    settings = Settings(redis_url=valkey.url, requests_per_minute=10_000, public_url="https://advisor.example")
    with client_of(create_app(settings, world.context)) as client:
        yield client


def assert_headers(reply: httpx.Response) -> None:
    assert {name: reply.headers.get_list(name) for name in HEADERS} == {name: [HEADERS[name]] for name in HEADERS}
    assert reply.headers["x-request-id"]
    assert "server" not in reply.headers
    assert "set-cookie" not in reply.headers
    assert "access-control-allow-origin" not in reply.headers
    kept = reply.headers["cache-control"]
    assert reply.status_code < 400 or kept == "no-store", f"{reply.request.url}: {kept}"


def test_every_route_answers_with_the_headers(many: httpx.Client) -> None:
    for route in sorted(routes_of_the_app()):
        method, path = route.split()
        if path.endswith("/events"):
            continue  # they do not end; below
        path = path.replace("{", "").replace("}", "")
        reply = many.request(method, path, content=b"{}", headers={"content-type": "application/json"})
        assert_headers(reply)
        assert reply.headers["strict-transport-security"] == TRANSPORT_SECURITY


def test_event_streams_answer_with_the_headers(client: httpx.Client, world: World) -> None:
    world.put("one", "ready")
    reply = client.get("/v1/advice/one/events")
    assert_headers(reply)
    assert reply.headers["cache-control"] == "no-store"
    assert "strict-transport-security" not in reply.headers  # this one is not behind https


@pytest.mark.parametrize("headers", [{}, HTML])
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404), ("GET", "/static/000000000000/style.css", 404), ("DELETE", "/docs", 405),
        ("PUT", "/v1/advice", 405), ("TRACE", "/", 405), ("GET", "/compare?ids=1,2,3,4,5,6,7,8", 422),
        ("POST", "/submit", 415), ("GET", "/advice/none", 404), ("GET", "/leaderboard?depth=x", 422),
    ],
)  # fmt: skip
def test_errors_answer_with_the_headers(
    client: httpx.Client, headers: dict[str, str], method: str, path: str, status: int
) -> None:
    reply = client.request(method, path, headers=headers)
    assert reply.status_code == status
    assert_headers(reply)


def test_what_breaks_answers_with_the_headers_and_says_nothing_of_the_inside(many: httpx.Client, broken: None) -> None:
    body = {"repo": READY_REPO, "hardware": "RTX 3090"}
    api = many.post("/v1/advice", json=body)
    page = many.post("/advice", data={"repo": READY_REPO, "gpus": "RTX 3090"}, headers=HTML)
    for reply in (api, page):
        assert_headers(reply)
        assert "secret of the inside" not in reply.text
        assert "Traceback" not in reply.text
    assert api.status_code == 500


def test_large_bodies_and_kept_answers_have_the_headers(many: httpx.Client) -> None:
    large = many.post("/v1/advice", content=b" " * 300_000, headers={"content-type": "application/json"})
    assert large.status_code == 413
    assert_headers(large)
    etag = many.get("/docs/problems").headers["etag"]
    same = many.get("/docs/problems", headers={"if-none-match": etag})
    assert same.status_code == 304
    assert_headers(same)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine_with_tables(f"sqlite:///{tmp_path_factory.mktemp('headers') / 'advisor.db'}") as made:
        yield made


def test_what_a_token_opens_is_kept_by_nobody(engine: Engine, valkey: EmbeddedValkey, redis: Redis) -> None:
    scopes = ("submit", "validate", "host", "operator")
    sent = {**token_of(engine, "all", *scopes), "content-type": "application/json"}
    kept = {}
    with service(settings_for(engine.url.render_as_string(), valkey)) as client:
        for route, access in ROUTES.items():
            method, path = route.split()
            if ACCESS[access] == ACCESS["open"] or path.endswith("/events"):
                continue
            path = path.replace("{", "").replace("}", "")
            reply = client.request(method, path, content=b"{}", headers=sent)
            if "no-store" not in reply.headers["cache-control"]:
                kept[route] = reply.headers["cache-control"]
    assert kept == {}
