"""Many who wait look at the database together."""

from __future__ import annotations

import asyncio

import pytest
from anyio import CapacityLimiter

from service.errors import DatabaseUnavailable
from service.web.services import Coalescer

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Source:
    """Answers with how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[set[str]] = []
        self.fails = False

    def __call__(self, keys: list[str]) -> dict[str, int]:
        self.asked.append(set(keys))
        if self.fails:
            raise DatabaseUnavailable("the database does not answer")
        return {key: len(self.asked) for key in keys if key != "missing"}


@pytest.fixture
def source() -> Source:
    return Source()


async def test_all_who_ask_within_a_moment_are_answered_by_one_query(source: Source) -> None:
    together = Coalescer[int](source, CapacityLimiter(2))
    keys = [f"key {n % 50}" for n in range(500)]
    assert await asyncio.gather(*(together.of(key) for key in keys)) == [1] * 500
    assert source.asked == [set(keys)]
    assert await together.of("missing") is None


async def test_an_answer_of_a_moment_ago_does_for_who_takes_it_and_not_after_a_hint(source: Source) -> None:
    together = Coalescer[int](source, CapacityLimiter(2))
    assert await together.of("one") == 1
    assert await together.of("one", max_age=60) == 1
    assert await together.of("one") == 2


async def test_who_leaves_takes_no_answer_from_the_others(source: Source) -> None:
    together = Coalescer[int](source, CapacityLimiter(2))
    first = asyncio.create_task(together.of("one"))
    second = asyncio.create_task(together.of("two"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1


async def test_a_failure_is_told_to_all_and_asked_again(source: Source) -> None:
    together, source.fails = Coalescer[int](source, CapacityLimiter(2)), True
    found = await asyncio.gather(together.of("one"), together.of("two"), return_exceptions=True)
    assert [type(one) for one in found] == [DatabaseUnavailable] * 2
    source.fails = False
    assert await together.of("one") == 2
