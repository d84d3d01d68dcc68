"""No replica keeps what another would need: what one took, any other reads, changes, follows, counts and refuses."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import msgspec
import pytest

from service.queue.connection import connect
from service.queue.embedded import EmbeddedValkey
from service.store.engines import make_engine
from tests.bots import discord_payloads
from tests.deploy.replicas import Replicas
from tests.flows.results.submitted import COMMAND, RIG, sweep
from tests.hosts import Signer
from tests.web.joining import in_session, token_of

pytestmark = pytest.mark.full

ASKED = {"repo": "Qwen/Qwen3-0.6B-GGUF:Q8_0", "hardware": "RTX 3090, Ryzen 9 7950X, 33GB DDR5-5600"}


@pytest.fixture(scope="module")
def clients(stack: Replicas) -> Iterator[list[httpx.Client]]:
    """A client of each replica, and of the proxy."""
    urls = [*(each.url for each in stack.replicas), stack.proxy_url]
    with ExitStack() as opened:
        yield [opened.enter_context(httpx.Client(base_url=url, timeout=60, trust_env=False)) for url in urls]


@pytest.fixture
def uncounted(valkey: EmbeddedValkey) -> Iterator[None]:
    """Nobody is counted out after the test."""
    yield
    redis = connect(valkey.url)
    for key in redis.scan_iter("limit:*"):
        redis.delete(key)
    redis.close()


def test_an_advice_is_asked_for_followed_read_and_deleted_at_different_replicas(clients: list[httpx.Client]) -> None:
    one, other, third, proxy = clients
    asked = one.post("/v1/advice", json=ASKED)
    path = httpx.URL(asked.headers["location"]).path
    with other.stream("GET", f"{path}/events") as events:
        assert "event: ready" in list(events.iter_lines())
    etags = {client.get(path).headers["etag"] for client in clients}
    assert len({etag.removeprefix("W/") for etag in etags}) == 1
    assert {c.get(path, headers={"If-None-Match": etag}).status_code for c in clients for etag in etags} == {304}
    assert other.delete(path, headers={"X-Advice-Key": asked.json()["delete_key"]}).status_code == 204
    assert {client.get(path).status_code for client in (one, third, proxy)} == {404}


def test_a_request_held_at_one_replica_hears_of_what_another_was_asked(clients: list[httpx.Client]) -> None:
    asked = ASKED | {"hardware": RIG}
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda client: client.post("/v1/advice?wait=30", json=asked).json(), clients[:2]))
    assert {advice["state"] for advice in found} == {"ready"}
    assert len({advice["id"] for advice in found}) == 1


def test_an_edit_key_given_by_one_replica_opens_at_another(clients: list[httpx.Client]) -> None:
    one, other, _, proxy = clients
    made = one.post("/v1/results", json={"text": f"$ {COMMAND}\n\n{sweep()}", "hardware": RIG}).json()
    path, key = f"/v1/results/{made['id']}", {"X-Edit-Key": made["edit_key"]}
    assert other.patch(path, json={"remarks": "two DIMMs"}, headers=key).status_code == 200
    assert proxy.get(path).json()["remarks"] == "two DIMMs"
    assert proxy.delete(path, headers=key).status_code == 204


def test_an_agents_session_and_counter_hold_at_every_replica(clients: list[httpx.Client], database: str) -> None:
    engine = make_engine(database)
    signer = in_session(clients[-1], token_of(engine, "bob", "host", "validate"))
    engine.dispose()
    for client in clients:
        assert lease(signer, client, headers := signer.headers("/v1/agent/leases", LEASE)) == 204
    assert lease(signer, clients[0], headers) == 409, "what one replica has seen, another takes no second time"


LEASE = msgspec.json.encode({"wait": 0})


def lease(_: Signer, client: httpx.Client, headers: dict[str, str]) -> int:
    return client.post("/v1/agent/leases", content=LEASE, headers=headers).status_code


def test_a_question_in_chat_that_one_replica_took_is_refused_by_another(clients: list[httpx.Client]) -> None:
    question = discord_payloads.signed(discord_payloads.command("advise", {"repo": "a/b", "hardware": "RTX 3090"}))
    assert [client.post("/bots/discord", **question).status_code for client in clients] == [200, 401, 401, 401]


@pytest.mark.usefixtures("uncounted")
def test_a_client_is_counted_once_for_all_replicas(clients: list[httpx.Client]) -> None:
    found = [greeted(clients[i % 3], {"X-Forwarded-For": "203.0.113.7"}) for i in range(21)]
    assert found == [404] * 20 + [429]
    assert greeted(clients[0], {"X-Forwarded-For": "203.0.113.8"}) == 404


@pytest.mark.usefixtures("uncounted")
def test_the_proxy_says_who_asks_whatever_the_client_says(clients: list[httpx.Client]) -> None:
    found = [greeted(clients[-1], {"X-Forwarded-For": f"203.0.113.{i}"}) for i in range(21)]
    assert found[0] == 404
    assert found[-1] == 429


def greeted(client: httpx.Client, headers: dict[str, str]) -> int:
    return client.post("/v1/agent/greeting", json={"code": secrets.token_urlsafe(16)}, headers=headers).status_code


@pytest.mark.parametrize("path", ["/metrics", "//metrics", "/%6detrics", "/metrics/"])
def test_the_proxy_hands_out_no_metrics(clients: list[httpx.Client], path: str) -> None:
    reply = httpx.get(str(clients[-1].base_url).rstrip("/") + path, trust_env=False)
    assert reply.status_code == 404
    assert "advisor_" not in reply.text


def test_the_proxy_numbers_requests_and_packs_text_only(clients: list[httpx.Client]) -> None:
    page = clients[-1].get("/leaderboard", headers={"X-Request-ID": "mine-mine-mine", "Accept-Encoding": "gzip"})
    assert page.headers["content-encoding"] == "gzip"
    assert len(page.headers["x-request-id"]) == 36
    made = clients[-1].post("/v1/advice", json=ASKED).json()
    with clients[-1].stream("GET", f"/v1/advice/{made['id']}/events", headers={"Accept-Encoding": "gzip"}) as events:
        assert "content-encoding" not in events.headers
