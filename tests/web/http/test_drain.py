"""A process that ends says so, sends away those that wait, and only then stops listening."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import anyio
import httpx
import pytest
import uvicorn

from service.settings import Settings
from service.web.app import create_app
from service.web.http import follow
from service.web.server import _Server
from service.web.services import Drain
from tests.web.http.test_problems import assert_problem
from tests.web.servers import client_of
from tests.web.world import NEW_REPO, READY_REPO, World


class _InItsLoop(Drain):
    """A way out that a test's thread may take."""

    loop: asyncio.AbstractEventLoop | None = None

    def leave(self) -> None:
        if self.loop is None or self.loop is asyncio._get_running_loop():
            super().leave()
        else:
            self.loop.call_soon_threadsafe(super().leave)


@pytest.fixture(scope="module")
def ending(settings: Settings, shared_world: World) -> Iterator[tuple[httpx.Client, Drain]]:
    """A client of an app of its own, and that app's way out."""
    app = create_app(settings, shared_world.context)
    drain = app.state.services.drain = _InItsLoop()

    async def note_loop() -> None:
        drain.loop = asyncio.get_running_loop()

    app.on_startup.append(note_loop)
    with client_of(app) as client:
        yield client, drain


@pytest.fixture
def drain(ending: tuple[httpx.Client, Drain], world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Drain]:
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.05)
    yield ending[1]
    ending[1].begun = ending[1].leaving = False


def test_ready_says_that_the_process_ends_while_the_rest_is_answered(
    ending: tuple[httpx.Client, Drain], drain: Drain, world: World
) -> None:
    client, _ = ending
    world.register_worker()
    assert client.get("/ready").status_code == 200
    drain.begin()
    assert "ending" in assert_problem(client.get("/ready"), 503, "service-unavailable")["detail"]
    assert client.get("/health").status_code == 200
    assert client.post("/v1/advice", json={"repo": READY_REPO, "hardware": "RTX 3090"}).status_code == 200


def test_an_event_stream_ends_in_order_and_says_when_to_come_again(
    ending: tuple[httpx.Client, Drain], drain: Drain, world: World
) -> None:
    world.put("one", "running")
    with ending[0].stream("GET", "/v1/advice/one/events") as reply:
        lines = reply.iter_lines()
        assert next(lines) == "event: running"
        drain.leave()
        last = [line for line in lines if line][-1]
    name, _, milliseconds = last.partition(": ")
    assert name == "retry"
    assert 500 <= int(milliseconds) <= 3000


def test_a_held_request_is_answered_with_what_there_is(
    ending: tuple[httpx.Client, Drain], drain: Drain, world: World
) -> None:
    drain.leave()
    reply = ending[0].post("/v1/advice?wait=30", json={"repo": NEW_REPO, "hardware": "RTX 3090"})
    assert reply.elapsed.total_seconds() < 25
    assert (reply.status_code, reply.json()["state"]) == (202, "queued")
    assert reply.headers["retry-after"]


def test_a_wait_is_cut_when_the_process_leaves_and_never_begins_after_that() -> None:
    async def wait(drain: Drain) -> None:
        pause = anyio.move_on_after(60)
        with pause, drain.cutting(pause):
            await anyio.sleep_forever()

    async def twice() -> None:
        drain = Drain()
        asyncio.get_running_loop().call_later(0.01, drain.leave)
        with anyio.fail_after(10):
            await wait(drain)
            await wait(drain)

    asyncio.run(twice())


def test_a_second_signal_or_ctrl_c_ends_the_drain_and_one_more_the_waiting() -> None:
    async def told(server: _Server) -> list[tuple[bool, bool, bool]]:
        steps = []
        for seconds in (600.0, 600.0, 0.0):
            server._end(seconds)
            steps.append((server._drain.begun, server.should_exit, server.force_exit))
        return steps

    server = _Server(uvicorn.Config("unused", log_config=None), Drain(), 600)
    assert asyncio.run(told(server)) == [(True, False, False), (True, True, False), (True, True, True)]
    server = _Server(uvicorn.Config("unused", log_config=None), Drain(), 600)
    server._end(0)
    assert server.should_exit
    assert server._drain.leaving
