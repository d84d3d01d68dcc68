"""Progress is heard by those who listen, also after they gave up waiting once, and after Redis was away."""

import msgspec
import pytest
from anyio import fail_after, move_on_after
from redis import Redis

from service.queue.connection import connect, connect_async
from service.queue.embedded import EmbeddedValkey
from service.queue.progress import channel, listen, publish
from service.wire.advice import AdviceEvent

LISTING = AdviceEvent("a", "running", "listing the repo")
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_listener_hears_what_is_published_after_it_entered(redis: Redis, valkey: EmbeddedValkey) -> None:
    client = connect_async(valkey.url)
    async with client, listen(client, channel("a")) as messages:
        publish(redis, AdviceEvent("b", "running", "of another advice"))
        publish(redis, LISTING)
        with fail_after(10):
            assert msgspec.json.decode(await anext(messages), type=AdviceEvent) == LISTING


async def test_a_listener_that_gave_up_once_hears_the_next_message(redis: Redis, valkey: EmbeddedValkey) -> None:
    client = connect_async(valkey.url)
    async with client, listen(client, channel("a")) as messages:
        with move_on_after(0.05) as waited:
            await anext(messages)
        assert waited.cancelled_caught
        publish(redis, LISTING)
        with fail_after(10):
            assert msgspec.json.decode(await anext(messages), type=AdviceEvent) == LISTING


async def test_a_listener_outlives_a_restart_of_redis(valkey: EmbeddedValkey) -> None:
    client = connect_async(valkey.url)
    async with client, listen(client, channel("a")) as messages:
        valkey.stop()
        with move_on_after(0.2):
            await anext(messages)
        valkey.start()
        heard = None
        with fail_after(20):
            while heard is None:
                publish(connect(valkey.url), LISTING)
                with move_on_after(0.2):
                    heard = await anext(messages)
        assert msgspec.json.decode(heard, type=AdviceEvent) == LISTING


async def test_publishing_without_redis_harms_nothing(tmp_path: object) -> None:
    publish(connect(f"unix://{tmp_path}/none.sock"), LISTING)
    async with connect_async(f"unix://{tmp_path}/none.sock") as client, listen(client, channel("a")) as messages:
        with move_on_after(0.2) as waited:
            await anext(messages)
        assert waited.cancelled_caught
