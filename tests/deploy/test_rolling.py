"""Replicas are restarted one by one under a stream of requests and agents' polls, and not one of them is lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import httpx
import pytest

from service.store.engines import make_engine
from tests.deploy.replicas import Replicas
from tests.hosts import Signer
from tests.web.joining import in_session, token_of

pytestmark = pytest.mark.full

ASKED = {"repo": "Qwen/Qwen3-0.6B-GGUF:Q8_0", "hardware": "RTX 3090, Ryzen 9 7950X, 64GB DDR5-5600"}


_PAUSE_SECONDS = 0.05  # what is asked is known to come; how much of it a machine bears is told by bench/api.py


class Stream:
    """What clients do, over and over, each in a thread of its own; the first thing that goes wrong ends its client."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.done: Counter[str] = Counter()
        self.lost: list[str] = []
        self._ended = threading.Event()

    @contextmanager
    def of(self, *clients: Callable[[httpx.Client], str]) -> Iterator[None]:
        """Run these clients for a block; each returns what it did."""
        threads = [threading.Thread(target=self._loop, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join(90)

    def _loop(self, client: Callable[[httpx.Client], str]) -> None:
        with httpx.Client(base_url=self._url, timeout=60, trust_env=False) as http:
            while not self._ended.is_set():
                try:
                    self.done[client(http)] += 1
                    time.sleep(_PAUSE_SECONDS)
                except Exception as error:
                    self.lost.append(f"{client.__name__}: {error!r}")
                    return


def asks_what_is_known(http: httpx.Client) -> str:
    reply = http.post("/v1/advice", json=ASKED)
    assert reply.status_code == 200, reply.text
    assert http.get(f"/v1/advice/{reply.json()['id']}").json()["state"] == "ready"
    return "asked"


def comes_anew(http: httpx.Client) -> str:
    """On a connection of its own each time, as curl does."""
    reply = httpx.post(f"{http.base_url}/v1/hardware/parse", json={"text": ASKED["hardware"]}, trust_env=False)
    assert reply.is_success, reply.text
    return "came back"


def reads_a_page(http: httpx.Client) -> str:
    reply = http.get("/leaderboard")
    assert reply.status_code == 200, reply.text
    return "read"


def follower() -> Callable[[httpx.Client], str]:
    numbers = count(48)

    def follows(http: httpx.Client) -> str:
        """Ask for something new, and follow it: a stream that ends early says when to come again."""
        asked = ASKED | {"hardware": f"RTX 3090, Ryzen 9 7950X, {next(numbers)}GB DDR5-5600"}
        reply = http.post("/v1/advice", json=asked)
        assert reply.status_code in (200, 202), reply.text
        path, lines = f"/v1/advice/{reply.json()['id']}/events", [""]
        while "event: ready" not in lines:
            with http.stream("GET", path) as events:
                assert events.status_code == 200
                lines = [line for line in events.iter_lines() if line]
            assert "event: ready" in lines or lines[-1].startswith("retry: "), lines
        return "followed"

    return follows


def holder() -> Callable[[httpx.Client], str]:
    numbers = count(1000)

    def holds(http: httpx.Client) -> str:
        """Ask for something new and wait for it."""
        asked = ASKED | {"hardware": f"RTX 3090, Ryzen 9 7950X, {next(numbers)}GB DDR5-5600"}
        reply = http.post("/v1/advice", params={"wait": 30}, json=asked)
        assert reply.status_code in (200, 202), reply.text
        return "held"

    return holds


def agent(signer: Signer) -> Callable[[httpx.Client], str]:
    def polls(_: httpx.Client) -> str:
        reply = signer.call("/v1/agent/leases", {"wait": 25})
        assert reply.status_code == 204, reply.text
        return "polled"

    return polls


@pytest.mark.timeout(600)
def test_a_rolling_restart_loses_no_request(stack: Replicas, database: str) -> None:
    stream, engine = Stream(stack.proxy_url), make_engine(database)
    owner = token_of(engine, "alice", "host", "validate")
    with (
        httpx.Client(base_url=stack.proxy_url, timeout=60) as first,
        httpx.Client(base_url=stack.proxy_url, timeout=60) as second,
    ):
        assert first.post("/v1/advice?wait=30", json=ASKED).json()["state"] == "ready"
        agents = [agent(in_session(client, owner)) for client in (first, second)]
        began = time.monotonic()
        with stream.of(asks_what_is_known, comes_anew, reads_a_page, follower(), holder(), *agents):
            for replica in (*stack.replicas, *stack.replicas[:2]):
                replica.restart()
                print(f"{replica.name} is back after {time.monotonic() - began:.0f} s: {dict(stream.done)}")
    engine.dispose()
    assert stream.lost == []
    assert set(stream.done) == {"asked", "came back", "read", "followed", "held", "polled"}
