"""What is published is heard by those who listen, over one connection, also after Redis was away."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
import pytest
from anyio import create_task_group, fail_after, move_on_after
from redis import Redis
from redis import asyncio as redis_async

from service.queue import progress
from service.queue.connection import connect, connect_async
from service.queue.embedded import EmbeddedValkey
from service.queue.progress import PATTERNS, Listener, channel, publish
from service.wire.advice.advice import AdviceEvent

LISTING = AdviceEvent("a", "running", "listing the repo")
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def client(valkey: EmbeddedValkey, anyio_backend: str) -> AsyncIterator[redis_async.Redis]:
    async with connect_async(valkey.url) as made:
        yield made


async def heard(messages: AsyncIterator[str]) -> AdviceEvent:
    """Return the next message that is not only a hint."""
    with fail_after(20):
        while not (message := await anext(messages)):
            pass
    return msgspec.json.decode(message, type=AdviceEvent)


async def test_a_listener_hears_what_is_published_after_it_entered(redis: Redis, client: redis_async.Redis) -> None:
    async with Listener(client, *PATTERNS).listen(channel("a")) as messages:
        publish(redis, AdviceEvent("b", "running", "of another advice"))
        publish(redis, LISTING)
        assert await heard(messages) == LISTING


async def test_a_listener_that_gave_up_once_hears_the_next_message(redis: Redis, client: redis_async.Redis) -> None:
    async with Listener(client, *PATTERNS).listen(channel("a")) as messages:
        with move_on_after(0.2) as waited:
            while True:
                await anext(messages)
        assert waited.cancelled_caught
        publish(redis, LISTING)
        assert await heard(messages) == LISTING


async def test_many_listen_over_one_connection_which_ends_with_the_last(
    redis: Redis, client: redis_async.Redis
) -> None:
    listener, before = Listener(client, *PATTERNS), len(redis.client_list())
    async with AsyncExitStack() as stack:
        several = [await stack.enter_async_context(listener.listen(channel("a"))) for _ in range(50)]
        assert len(redis.client_list()) == before + 1
        publish(redis, LISTING)
        assert [await heard(messages) for messages in several] == [LISTING] * 50
    assert redis.pubsub_numpat() == 0
    async with listener.listen(channel("a")) as messages:
        publish(redis, LISTING)
        assert await heard(messages) == LISTING


async def test_a_listener_that_is_cancelled_leaves_nothing_behind(redis: Redis, client: redis_async.Redis) -> None:
    listener, before = Listener(client, *PATTERNS), redis.pubsub_numpat()

    async def follow() -> None:
        async with listener.listen(channel("a")) as messages:
            await heard(messages)

    async with create_task_group() as group:
        for _ in range(5):
            group.start_soon(follow)
        async with listener.listen(channel("a")):
            assert redis.pubsub_numpat() == before + len(PATTERNS)
        group.cancel_scope.cancel()
    assert redis.pubsub_numpat() == before


async def test_a_listener_outlives_a_restart_of_redis_and_is_told_to_look(
    valkey: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_AWAY_SECONDS", 0.1)
    client = connect_async(valkey.url)
    async with client, Listener(client, *PATTERNS).listen(channel("a")) as messages:
        valkey.stop()
        with fail_after(10):
            assert await anext(messages) == ""
        valkey.start()
        found = None
        with fail_after(20):
            while found is None:
                publish(connect(valkey.url), LISTING)
                with move_on_after(0.2):
                    found = await anext(messages) or None
        assert msgspec.json.decode(found, type=AdviceEvent) == LISTING


async def test_publishing_without_redis_harms_nothing_and_listeners_go_on_looking(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds in ("_AWAY_SECONDS", "_CONFIRM_SECONDS"):
        monkeypatch.setattr(progress, seconds, 0.1)
    publish(connect(f"unix://{tmp_path}/none.sock"), LISTING)
    async with connect_async(f"unix://{tmp_path}/none.sock") as client:
        listener = Listener(client, *PATTERNS)
        with fail_after(10):
            async with listener.listen(channel("a")) as messages:
                assert [await anext(messages), await anext(messages)] == ["", ""]
