"""Workers: only our tasks, the whole way of a request, and nothing lost when they are killed."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import psutil
import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from rq.job import Job, JobStatus

from service.engine.hardware import Gpu, Hardware
from service.errors import QueueUnavailable
from service.flows.advice.advise import read_advice, request_advice
from service.flows.advice.fair_queue import requeue_unfinished
from service.flows.context import Context
from service.queue.enqueue import SERIALIZER, n_workers, queue_on
from service.settings import Settings
from service.wire.advice.advice import AdviceRequest
from tests.local_hub import Fault, LocalHub
from tests.waiting import wait_for
from tests.workers.conftest import running_worker, wait_until_final
from workers.run import TASKS, PinnedWorker, main, make_worker

QWEN = "Qwen/Qwen3-0.6B-GGUF"
REQUEST = AdviceRequest(repo=f"{QWEN}:Q8_0", hardware=Hardware(gpus=[Gpu(name="NVIDIA GeForce RTX 3090")]))


def hold_reading(local_hub: LocalHub, seconds: float = 15.0) -> None:
    """Let the next read of a header take long: a worker is then in the middle of an advice."""
    local_hub.fail(Fault("delay", "cdn", repo=QWEN, times=1, seconds=seconds))


def wait_until_reading(context: Context, advice_id: str, local_hub: LocalHub) -> None:
    wait_for(
        lambda: (read_advice(context, advice_id).progress or "").startswith("reading") and _held(local_hub),
        "the worker does not read",
    )


def _held(local_hub: LocalHub) -> bool:
    return all(fault.times == 0 for fault in local_hub.state.faults)


def later(context: Context) -> Context:
    """The same after a dead worker's silence has been noticed."""
    return context._replace(clock=lambda: datetime.now(UTC) + timedelta(minutes=1))


def job_of(redis: Redis, advice_id: str) -> Job:
    return Job.fetch(f"advice-{advice_id}", connection=redis, serializer=SERIALIZER)


def test_a_worker_is_seen_again_after_redis_was_wiped(redis: Redis, settings: Settings) -> None:
    worker = make_worker(settings)
    worker.register_birth()  # type: ignore[no-untyped-call]
    redis.flushall()
    worker.heartbeat()
    assert n_workers(redis) == 1


def test_a_worker_that_was_killed_is_not_counted_for_long(redis: Redis, settings: Settings) -> None:
    worker = make_worker(settings)
    worker.register_birth()  # type: ignore[no-untyped-call]
    assert 0 < redis.ttl(worker.key) <= 60 + 30
    redis.delete(worker.key)  # as when that time is over
    assert n_workers(redis) == 0


def test_a_job_that_is_no_task_of_ours_is_not_run(redis: Redis, settings: Settings) -> None:
    job = queue_on(redis).enqueue("os.mkdir", f"{settings.state_dir}/made-by-a-stranger")
    burst = "import os; from service.settings import load_settings; from workers.run import make_worker\n"
    burst += "make_worker(load_settings(os.environ)).work(burst=True)"
    with running_worker(settings, burst) as process:
        process.wait(60)
    assert job.get_status(refresh=True) == JobStatus.FAILED
    assert not (settings.state_dir / "made-by-a-stranger").exists()
    assert frozenset({"workers.tasks.compute_advice"}) == TASKS


def test_a_worker_without_redis_says_what_it_needs() -> None:
    with pytest.raises(QueueUnavailable, match="REDIS_URL"):
        make_worker(Settings())


def test_a_worker_that_loses_redis_says_so_in_its_log_and_ends(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def lose(worker: PinnedWorker, **_: object) -> bool:
        raise RedisConnectionError("Connection refused")

    monkeypatch.setenv("REDIS_URL", settings.redis_url or "")
    monkeypatch.setenv("DATABASE_URL", settings.database)
    monkeypatch.setattr(PinnedWorker, "work", lose)
    assert main() == 1
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["detail"] for line in lines if line["event"] == "redis.silent"] == ["Connection refused"]


def test_a_request_becomes_a_ready_advice_that_a_late_job_does_not_compute_again(
    context: Context, worker: psutil.Process, redis: Redis
) -> None:
    advice = wait_until_final(context, request_advice(context, REQUEST).advice.id)
    assert (advice.problem, advice.state) == (None, "ready")
    assert {config.variant for config in advice.configs} == {"Q8_0"}
    wait_for(lambda: not context.redis.exists(f"rq:job:advice-{advice.id}"), "the finished job stays in Redis")
    job = queue_on(redis).enqueue("workers.tasks.compute_advice", advice.id, result_ttl=60)
    wait_for(lambda: job.get_status(refresh=True) == JobStatus.FINISHED, "the late job does not finish")
    assert read_advice(context, advice.id) == advice


@pytest.mark.full
def test_a_killed_work_horse_is_replaced_by_the_queue(
    context: Context, worker: psutil.Process, local_hub: LocalHub
) -> None:
    hold_reading(local_hub)
    advice = request_advice(context, REQUEST).advice
    wait_until_reading(context, advice.id, local_hub)
    (horse,) = worker.children()
    horse.kill()
    assert wait_until_final(context, advice.id).state == "ready"


@pytest.mark.full
def test_a_worker_killed_in_the_middle_of_an_advice_loses_nothing(
    context: Context, settings: Settings, local_hub: LocalHub
) -> None:
    hold_reading(local_hub)
    advice = request_advice(context, REQUEST).advice
    with running_worker(settings) as worker:
        wait_until_reading(context, advice.id, local_hub)
        horses = worker.children()
        worker.kill()
        _, alive = psutil.wait_procs(horses, timeout=60)
        assert [horse for horse in alive if horse.status() != psutil.STATUS_ZOMBIE] == []
    assert read_advice(context, advice.id).state == "running"
    with running_worker(settings):
        assert requeue_unfinished(later(context)) == 1
        assert wait_until_final(context, advice.id).state == "ready"


@pytest.mark.full
def test_a_worker_that_may_not_finish_gives_its_advice_back(
    context: Context, settings: Settings, redis: Redis, local_hub: LocalHub
) -> None:
    hold_reading(local_hub, seconds=60)
    advice = request_advice(context, REQUEST).advice
    with running_worker(settings) as worker:
        wait_until_reading(context, advice.id, local_hub)
        worker.terminate()
        time.sleep(1.5)  # RQ takes a second signal within a second for the first one
        assert worker.is_running()
        worker.terminate()
        worker.wait(60)
    assert job_of(redis, advice.id).get_status() == JobStatus.QUEUED
    with running_worker(settings):
        assert wait_until_final(context, advice.id).state == "ready"


@pytest.mark.full
def test_redis_wiped_in_the_middle_of_an_advice_loses_nothing(
    context: Context, settings: Settings, redis: Redis, local_hub: LocalHub
) -> None:
    hold_reading(local_hub, seconds=2)
    running = request_advice(context, REQUEST).advice
    with running_worker(settings):
        wait_until_reading(context, running.id, local_hub)
        waiting = request_advice(context, AdviceRequest(repo=f"{QWEN}:Q4_K_M", hardware=REQUEST.hardware)).advice
        redis.flushall()
        assert wait_until_final(context, running.id).state == "ready"
        requeue_unfinished(context)
        assert wait_until_final(context, waiting.id).state == "ready"
