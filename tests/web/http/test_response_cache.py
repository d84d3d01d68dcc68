"""Answers that are kept: never older than what they are made of, and bounded in bytes."""

from __future__ import annotations

import asyncio
import threading

import httpx
import msgspec
import pytest
from sqlalchemy import Engine

from service.flows.context import utc_now
from service.store.advice import advices, queue
from service.store.results import results
from service.store.results.trust import writing
from service.web.http import conditional
from service.web.http.conditional import ResponseCache
from tests.databases import postgres
from tests.store.advice.test_advices import BODY, added, queued
from tests.stored_results import a_result, keep, row
from tests.web.joining import shared_app, shared_engine

__all__ = ["postgres", "shared_app", "shared_engine"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Source:
    """Something to answer, which counts how often it was made."""

    def __init__(self, body: bytes = b"said") -> None:
        self.version: str | None = "1"
        self.body, self.made = body, 0

    def make(self) -> bytes:
        self.made += 1
        return self.body

    async def ask(self, answers: ResponseCache, key: str = "a") -> bytes:
        return (await answers.answer(key, self.version, self.make)).body


@pytest.mark.anyio
async def test_an_answer_is_made_once_a_version() -> None:
    answers, source = ResponseCache(), Source()
    assert [await source.ask(answers) for _ in range(3)] == [b"said"] * 3
    assert source.made == 1
    source.version, source.body = "2", b"said again"
    assert [await source.ask(answers) for _ in range(2)] == [b"said again"] * 2
    assert source.made == 2


@pytest.mark.anyio
async def test_what_moves_on_is_made_each_time() -> None:
    answers, source = ResponseCache(), Source()
    source.version = None
    await source.ask(answers)
    await source.ask(answers)
    assert (source.made, answers.n_bytes) == (2, 0)


@pytest.mark.anyio
async def test_what_nothing_counts_shows_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, source = ResponseCache(), Source()
    await source.ask(answers)
    source.body = b"changed by hand"
    assert await source.ask(answers) == b"said"
    monkeypatch.setattr(conditional, "MOST_SECONDS", 0.0)
    assert await source.ask(answers) == b"changed by hand"


@pytest.mark.anyio
async def test_the_answers_asked_for_longest_ago_go_first() -> None:
    answers, source = ResponseCache(most_bytes=10_000), Source(bytes(3_000))
    for key in ("a", "b", "a", "c", "a"):
        await source.ask(answers, key)
        assert answers.n_bytes <= 10_000
    assert source.made == 3  # a, b, c; the third one sent b away
    await source.ask(answers, "b")
    assert source.made == 4
    big = Source(bytes(20_000))
    await big.ask(answers, "big")
    assert answers.n_bytes == 0


def test_a_result_shows_on_the_board_at_once_and_goes_at_once(shared_app: httpx.Client, shared_engine: Engine) -> None:
    def ids() -> list[str]:
        return [one["result"] for one in shared_app.get("/v1/leaderboard").json()["rows"]]

    before = ids()
    new = a_result([row(0, 77.0)], tier="replicated")
    keep(shared_engine, new)  # as another process does it
    assert new.id in ids()
    with writing(shared_engine) as connection:
        results.change(connection, new.id, state="hidden", state_reason="spam")
    assert ids() == before


def test_a_deleted_advice_is_gone_at_once_and_the_same_etag_answered_before(
    shared_app: httpx.Client, shared_engine: Engine
) -> None:
    added(shared_engine, queued("kept-one"))
    path = "/v1/advice/kept-one"
    assert shared_app.get(path).json()["state"] == "queued"
    queue.finish(shared_engine, "kept-one", BODY, 0.0, utc_now())
    first, again = shared_app.get(path), shared_app.get(path)
    assert first.json()["state"] == "ready"
    assert (again.content, again.headers["etag"]) == (first.content, first.headers["etag"])
    assert shared_app.get(path, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    as_text = shared_app.get(path, headers={"Accept": "text/plain"})
    assert as_text.headers["etag"] != first.headers["etag"]
    elsewhere = shared_app.get(path, headers={"Host": "advice.example"})
    assert msgspec.json.decode(elsewhere.content)["url"].startswith("http://advice.example/")
    advices.remove(shared_engine, "kept-one")
    assert shared_app.get(path).status_code == 404


class Slow(Source):
    """One that is made while others ask."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_end = threading.Event(), threading.Event()

    def make(self) -> bytes:
        self.begun.set()
        assert self.may_end.wait(30)
        return super().make()


@pytest.mark.anyio
async def test_who_asks_while_it_is_made_waits_for_that_one_even_if_another_leaves() -> None:
    answers, source = ResponseCache(), Slow()
    first = asyncio.create_task(source.ask(answers))
    await asyncio.to_thread(source.begun.wait)
    others = [asyncio.create_task(source.ask(answers)) for _ in range(20)]
    await asyncio.sleep(0)
    first.cancel()
    source.may_end.set()
    assert await asyncio.gather(*others) == [b"said"] * 20
    assert source.made == 1


def _fail() -> bytes:
    raise ZeroDivisionError


@pytest.mark.anyio
async def test_what_fails_fails_for_all_who_wait_and_is_tried_again() -> None:
    answers, source = ResponseCache(), Source()
    failing = [asyncio.create_task(answers.answer("a", "1", _fail)) for _ in range(3)]
    assert {type(one) for one in await asyncio.gather(*failing, return_exceptions=True)} == {ZeroDivisionError}
    assert await source.ask(answers) == b"said"
