"""The only place that enqueues. A job merely calls a worker; the database decides which advice it computes.

Jobs are named after advices, unique by name, run at least once, and may be lost at any time: whoever enqueues has
committed a row before, and enqueues again when its job is gone.
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
_SILENT_BEATS = 4  # heartbeats that a worker may miss before its job counts as dead
_COMPUTE_ADVICE = "workers.tasks.compute_advice"


def queue_on(redis: Redis) -> Queue:
    return Queue(QUEUE, connection=redis, serializer=SERIALIZER)


def enqueue_call(redis: Redis, name: str) -> bool:
    """Enqueue a call for a worker; return False if one of this name exists. Raises QueueUnavailable."""
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
    """Enqueue a call whose job is missing, finished, or silent because its worker died; return whether it was enqueued.

    `heartbeat_seconds`: how often a worker confirms that a job is alive. A job wrongly thought dead runs twice, which
    is harmless. Raises QueueUnavailable.

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
        # A worker may have died between taking the job and saying so; RQ would then fail the new job a minute later.
        queue.intermediate_queue.remove(_job_id(name))
    return enqueue_call(redis, name)


def give_back(redis: Redis, job: Job) -> None:
    """Re-enqueue a job that its worker abandoned half done. Raises QueueUnavailable."""
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
    """Return how many workers of our queue are alive: one counts until a minute after its next heartbeat was due.

    RQ's own count includes killed workers until another worker tidies up. Raises RedisError, OSError.
    """
    keys = get_keys(queue_on(redis))
    return int(redis.exists(*keys)) if keys else 0
