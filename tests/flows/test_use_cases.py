"""The flows as the web calls them."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from anyio import fail_after, to_thread
from redis import asyncio as redis_async

from service.errors import InvalidSetting, QueueUnavailable
from service.flows.context import Context, open_context
from service.flows.use_cases import UseCases
from service.queue.connection import connect, connect_async
from service.queue.embedded import EmbeddedValkey
from service.queue.progress import publish
from service.settings import Settings
from service.store.engines import make_engine
from service.wire.advice import AdviceEvent, AdviceRequest
from workers.run import make_worker

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def listener(valkey: EmbeddedValkey) -> AsyncIterator[redis_async.Redis]:
    async with connect_async(valkey.url) as client:
        yield client


@pytest.fixture
def use_cases(context: Context, listener: redis_async.Redis) -> UseCases:
    return UseCases(context, listener)


async def test_an_advice_is_asked_followed_read_and_deleted(use_cases: UseCases, context: Context) -> None:
    request = AdviceRequest(repo="Qwen/Qwen3-0.6B-GGUF", hardware="RTX 3090")
    requested = await to_thread.run_sync(use_cases.request_advice, request, lambda: None)
    async with use_cases.progress(requested.advice.id) as hints:
        publish(context.redis, AdviceEvent(requested.advice.id, "running", "planning"))
        with fail_after(10):
            assert "planning" in await anext(hints)
    assert use_cases.read_advice(requested.advice.id) == requested.advice
    use_cases.delete_advice(requested.advice.id, requested.delete_key or "")


async def test_hardware_is_parsed_and_the_catalogue_listed(use_cases: UseCases) -> None:
    parsed = use_cases.parse_hardware("2x RTX 3090, 128GB DDR4")
    assert sum(gpu.count for gpu in parsed.hardware.gpus) == 2
    assert any(row["name"] == "NVIDIA GeForce RTX 3090" for row in use_cases.known_gpus())
    assert len(use_cases.known_cpus()) >= 40


async def test_readiness_says_which_part_is_missing(
    use_cases: UseCases, context: Context, listener: redis_async.Redis, settings: Settings, tmp_path: Path
) -> None:
    ready = use_cases.readiness()
    assert (ready.database, ready.redis, ready.worker) == (True, True, False)
    worker = make_worker(settings)
    worker.register_birth()  # type: ignore[no-untyped-call]
    assert use_cases.readiness().worker
    worker.register_death()  # type: ignore[no-untyped-call]
    away = context._replace(
        redis=connect(f"unix://{tmp_path}/none.sock"), engine=make_engine(f"postgresql://x@/x?host={tmp_path}")
    )
    ready = UseCases(away, listener).readiness()
    assert (ready.database, ready.redis, ready.worker) == (False, False, False)
    away.engine.dispose()


def test_a_context_needs_a_redis_and_a_database_that_can_be(settings: Settings) -> None:
    with pytest.raises(QueueUnavailable, match="REDIS_URL"), open_context(Settings()):
        pass
    bad = msgspec.structs.replace(settings, database_url="mysql://x")
    with pytest.raises(InvalidSetting), open_context(bad):
        pass
