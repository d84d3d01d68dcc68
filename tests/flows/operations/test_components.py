"""The parts of the service, each asked by itself; what waits; and that the web's listener hears progress."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from anyio import fail_after, to_thread
from redis import asyncio as redis_async

from service.engine.hardware import Gpu, Hardware
from service.errors import InvalidSetting, QueueUnavailable, ServiceUnavailable
from service.flows.advice.advise import delete_advice, read_advice, request_advice
from service.flows.context import Context, open_context
from service.flows.operations import components
from service.queue.connection import connect, connect_async
from service.queue.embedded import EmbeddedValkey
from service.queue.progress import PATTERNS, Listener, channel, publish
from service.settings import Settings
from service.store.engines import make_engine
from service.wire.advice.advice import AdviceEvent, AdviceRequest
from service.wire.health import PartName
from workers.run import make_worker

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def listener(valkey: EmbeddedValkey) -> AsyncIterator[redis_async.Redis]:
    async with connect_async(valkey.url) as client:
        yield client


async def test_an_advice_is_asked_followed_read_and_deleted(context: Context, listener: redis_async.Redis) -> None:
    request = AdviceRequest(repo="Qwen/Qwen3-0.6B-GGUF", hardware="RTX 3090")
    requested = await to_thread.run_sync(request_advice, context, request)
    async with Listener(listener, *PATTERNS).listen(channel(requested.advice.id)) as hints:
        publish(context.redis, AdviceEvent(requested.advice.id, "running", "planning"))
        with fail_after(10):
            assert "planning" in await anext(hints)
    assert read_advice(context, requested.advice.id) == requested.advice
    delete_advice(context, requested.advice.id, requested.delete_key or "")


def state_of(context: Context) -> dict[str, str]:
    """What each part says, good or not."""
    names: tuple[PartName, ...] = get_args(PartName)
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = components.part(context, name)
        except ServiceUnavailable as error:
            found[name] = f"bad: {error.detail}"
    return found


def test_each_part_says_whether_it_is_good_and_why_not(context: Context, settings: Settings, tmp_path: Path) -> None:
    found = state_of(context)
    assert (found["database"], found["redis"], found["hub"]) == ("answers", "answers", "not asked yet")
    assert found["workers"] == "bad: no worker has been seen lately"
    assert found["bots"].startswith("bad: the bots' process")
    assert found["disk"].endswith("GiB free")
    worker = make_worker(settings)
    worker.register_birth()  # type: ignore[no-untyped-call]
    components.bots_are_there(context.redis)
    found = state_of(context)
    assert (found["workers"], found["bots"]) == ("1 seen lately", "seen lately")
    worker.register_death()  # type: ignore[no-untyped-call]
    away = context._replace(
        redis=connect(f"unix://{tmp_path}/none.sock"), engine=make_engine(f"postgresql://x@/x?host={tmp_path}")
    )
    found = state_of(away)
    assert all(found[name].endswith("does not answer") for name in ("database", "redis", "workers", "bots", "hub"))
    away.engine.dispose()


def test_a_database_without_this_versions_tables_is_not_good(context: Context, tmp_path: Path) -> None:
    empty = context._replace(engine=make_engine(f"sqlite:///{tmp_path}/empty.db"))
    with pytest.raises(ServiceUnavailable, match="its tables are not this version's"):
        components.part(empty, "database")
    empty.engine.dispose()


def test_a_full_disk_is_not_good(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(components, "_free", lambda _: 100 << 20)
    with pytest.raises(ServiceUnavailable, match="100 MiB are left"):
        components.part(context, "disk")


async def test_what_waits_is_counted_by_state_and_age(context: Context) -> None:
    asked = AdviceRequest(
        repo="Qwen/Qwen3-0.6B-GGUF:Q8_0", hardware=Hardware(gpus=[Gpu(name="NVIDIA GeForce RTX 3090")])
    )
    await to_thread.run_sync(request_advice, context, asked)
    found = components.backlog(context._replace(clock=lambda: context.clock() + timedelta(seconds=90)))
    assert found.work.advices == {"queued": 1}
    assert found.work.oldest_advice_seconds == pytest.approx(90, abs=2)
    assert (found.work.runs, found.work.hosts_online, found.n_workers) == ({}, 0, 0)


def test_a_context_needs_a_redis_and_a_database_that_can_be(settings: Settings) -> None:
    with pytest.raises(QueueUnavailable, match="REDIS_URL"), open_context(Settings()):
        pass
    bad = msgspec.structs.replace(settings, database_url="mysql://x")
    with pytest.raises(InvalidSetting), open_context(bad):
        pass
