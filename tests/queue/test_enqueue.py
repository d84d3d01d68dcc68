"""Jobs: one an advice, and again when it is lost."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from redis import Redis
from rq.job import Job, JobStatus

from service.errors import QueueUnavailable
from service.queue.connection import connect
from service.queue.enqueue import SERIALIZER, enqueue_call, ensure_enqueued, queue_on

BEAT = 5  # seconds


def job_of(redis: Redis) -> Job:
    return Job.fetch("advice-a", connection=redis, serializer=SERIALIZER)


def test_an_advice_has_one_job(redis: Redis) -> None:
    assert [enqueue_call(redis, "a"), enqueue_call(redis, "a")] == [True, False]
    assert queue_on(redis).job_ids == ["advice-a"]
    assert job_of(redis).func_name == "workers.tasks.compute_advice"
    assert job_of(redis).args == ["a"]


def test_a_waiting_job_is_left_alone(redis: Redis) -> None:
    enqueue_call(redis, "a")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert not ensure_enqueued(redis, "a", tomorrow, BEAT)


def test_a_wiped_redis_gets_its_job_back(redis: Redis) -> None:
    enqueue_call(redis, "a")
    redis.flushall()
    assert ensure_enqueued(redis, "a", datetime.now(UTC), BEAT)
    assert queue_on(redis).job_ids == ["advice-a"]


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.STOPPED, JobStatus.FINISHED, JobStatus.CANCELED])
def test_a_job_that_is_over_is_enqueued_again(redis: Redis, status: JobStatus) -> None:
    enqueue_call(redis, "a")
    queue_on(redis).remove("advice-a")
    job_of(redis).set_status(status)
    assert ensure_enqueued(redis, "a", datetime.now(UTC), BEAT)
    assert queue_on(redis).job_ids == ["advice-a"]


@pytest.mark.parametrize(("silent_seconds", "enqueued"), [(1, False), (60, True)])
def test_a_started_job_is_enqueued_again_only_when_it_has_fallen_silent(
    redis: Redis, silent_seconds: int, enqueued: bool
) -> None:
    enqueue_call(redis, "a")
    queue_on(redis).remove("advice-a")
    now = datetime.now(UTC)
    job_of(redis).set_status(JobStatus.STARTED)
    job_of(redis).heartbeat(now, 60)
    assert ensure_enqueued(redis, "a", now + timedelta(seconds=silent_seconds), BEAT) is enqueued


def test_a_job_lost_between_the_queue_and_its_worker_is_enqueued_again(redis: Redis) -> None:
    enqueue_call(redis, "a")
    redis.lmove("rq:queue:advice", "rq:queue:advice:intermediate")  # as a worker does that dies then
    assert not ensure_enqueued(redis, "a", datetime.now(UTC), BEAT)
    assert ensure_enqueued(redis, "a", datetime.now(UTC) + timedelta(minutes=1), BEAT)
    assert queue_on(redis).intermediate_queue.get_job_ids() == []


def test_without_redis_the_error_says_so(tmp_path: Path) -> None:
    nowhere = connect(f"unix://{tmp_path}/none.sock")
    with pytest.raises(QueueUnavailable):
        enqueue_call(nowhere, "a")
    with pytest.raises(QueueUnavailable):
        ensure_enqueued(nowhere, "a", datetime.now(UTC), BEAT)
