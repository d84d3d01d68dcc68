"""The only place that enqueues. A job is a call for a worker; which advice it computes, the database decides.

Jobs are named after advices, unique by their names, run at least once, and may be lost at any time: code that enqueues
them has committed a row before, and enqueues them again when its job is gone.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from redis import Redis
from rq import Queue, Retry
from rq.exceptions import DuplicateJobError, NoSuchJobError
from rq.job import Job, JobStatus
from rq.worker_registration import get_keys

from service.queue.connection import unavailable_as_such

QUEUE = "advice"
SERIALIZER = "json"
JOB_SECONDS = 15 * 60
_SILENT_BEATS = 4  # of a worker, after which its job is thought to be dead
_COMPUTE_ADVICE = "workers.tasks.compute_advice"


def queue_on(redis: Redis) -> Queue:
    """Return the queue of our jobs."""
    return Queue(QUEUE, connection=redis, serializer=SERIALIZER)


def enqueue_call(redis: Redis, name: str) -> bool:
    """Enqueue a call for a worker; False when one of this name is there already. Raises QueueUnavailable."""
    with unavailable_as_such():
        try:
            queue_on(redis).enqueue(
                _COMPUTE_ADVICE,
                name,
                job_id=_job_id(name),
                unique=True,
                retry=Retry(max=2),
                job_timeout=JOB_SECONDS,
                result_ttl=0,
                failure_ttl=JOB_SECONDS,
                description=f"advice {name}",
            )
        except DuplicateJobError:
            return False
        return True


def ensure_enqueued(redis: Redis, name: str, now: datetime, heartbeat_seconds: int) -> bool:
    """Enqueue a call whose job is missing, over, or silent since its worker died. True if it was enqueued.

    `heartbeat_seconds`: how often a worker says that a job is alive. A job that is only thought to be dead then runs
    twice, which changes nothing. Raises QueueUnavailable.
    """
    queue, since = queue_on(redis), now - timedelta(seconds=_SILENT_BEATS * heartbeat_seconds)
    with unavailable_as_such():
        try:
            job = Job.fetch(_job_id(name), connection=redis, serializer=SERIALIZER)
            if _is_alive(job, queue, since):
                return False
            job.delete(remove_from_queue=True)
        except NoSuchJobError:
            pass
        # Where a worker died between taking it and saying so: RQ would fail the new job of this name a minute later.
        queue.intermediate_queue.remove(_job_id(name))
    return enqueue_call(redis, name)


def give_back(redis: Redis, job: Job) -> None:
    """Enqueue again a job of ours that its worker ended in the middle. Raises QueueUnavailable."""
    with unavailable_as_such():
        job.delete(remove_from_queue=True)
    enqueue_call(redis, str(job.args[0]))


def _is_alive(job: Job, queue: Queue, since: datetime) -> bool:
    status = job.get_status(refresh=False)
    if status == JobStatus.QUEUED:
        return queue.get_job_position(job) is not None or _is_recent(job.enqueued_at, since)
    return status == JobStatus.STARTED and _is_recent(job.last_heartbeat, since)


def _is_recent(instant: datetime | None, since: datetime) -> bool:
    return instant is not None and instant > since


def _job_id(name: str) -> str:
    return f"advice-{name}"


def n_workers(redis: Redis) -> int:
    """Return how many workers of our queue are alive: a minute after the next word of one was due it is none.

    RQ's own count goes on with those that were killed, until another worker tidies up. Raises RedisError, OSError.
    """
    keys = get_keys(queue_on(redis))
    return int(redis.exists(*keys)) if keys else 0
