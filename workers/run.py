"""A worker process: `python -m workers.run`. Needs REDIS_URL; ends if Redis is lost in the middle of a job."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from types import FrameType

from redis.client import Pipeline
from redis.exceptions import RedisError
from rq import Queue, Worker
from rq.job import Job
from rq.worker_registration import register

from service import logs
from service.engine.errors import AdvisorError
from service.errors import QueueUnavailable
from service.flows.context import preload
from service.flows.operations.components import send_counts
from service.logs import Log
from service.queue.connection import connect_worker
from service.queue.enqueue import QUEUE, SERIALIZER, give_back
from service.queue.processes import die_with_parent
from service.settings import Settings, load_settings
from workers import tasks

log = Log("worker")

IDLE_BEATS = 6  # heartbeats, plus a minute, after which /ready forgets a silent idle worker
TIDY_BEATS = 12  # heartbeats between looks for what killed workers left in Redis
RECONNECT_BEATS = 2  # heartbeats, at most, between attempts to reconnect to Redis
TASKS = frozenset({f"{tasks.__name__}.compute_advice"})


class PinnedWorker(Worker):
    """Runs only our own tasks, whatever is written to Redis; its work horse dies with it."""

    def perform_job(self, job: Job, queue: Queue) -> bool:
        """Run a job of ours; fail any other without importing what it names."""
        if job.func_name not in TASKS:
            self.handle_job_failure(job=job, queue=queue, exc_string=f"{job.func_name} is not a task of this service")
            return False
        try:
            return bool(super().perform_job(job, queue))
        finally:
            with suppress(AdvisorError):  # Redis does not answer: this job's counts are lost with its process
                send_counts(self.connection)

    def heartbeat(self, timeout: int | None = None, pipeline: Pipeline | None = None) -> None:
        """Send a heartbeat and register again, in case Redis was wiped and forgot that this worker is ours."""
        super().heartbeat(timeout, pipeline)
        register(self, pipeline)

    def request_force_stop(self, signum: int, frame: FrameType | None) -> None:
        """End at once, on a second signal, and give the job back so that no worker waits for our heartbeat to time
        out."""
        job = self.get_current_job()
        try:
            super().request_force_stop(signum, frame)
        except SystemExit:
            if job is not None:
                give_back(self.connection, job)
            raise

    def main_work_horse(self, job: Job, queue: Queue) -> None:
        """Run a job in the forked child. It ends with the job, so garbage collection, a third of the time, is turned
        off."""
        gc.disable()
        if self.pid is not None:
            die_with_parent(self.pid)
        super().main_work_horse(job, queue)


def make_worker(settings: Settings) -> PinnedWorker:
    """Return a worker on our queue. Raises QueueUnavailable if REDIS_URL is not set."""
    if settings.redis_url is None:
        raise QueueUnavailable("a worker needs REDIS_URL; `advisor serve` starts its own workers", field="REDIS_URL")
    worker = PinnedWorker(
        [QUEUE],
        connection=connect_worker(settings.redis_url),
        serializer=SERIALIZER,
        job_monitoring_interval=settings.heartbeat_seconds,
        worker_ttl=IDLE_BEATS * settings.heartbeat_seconds,
        maintenance_interval=TIDY_BEATS * settings.heartbeat_seconds,
        log_job_description=False,
    )
    worker.max_connection_wait_time = float(RECONNECT_BEATS * settings.heartbeat_seconds)
    return worker


def main() -> int:
    """Work until told to stop: SIGTERM lets the current job finish, a second one does not."""
    try:
        settings = load_settings(os.environ)
        logs.configure("worker", settings.log_level)
        worker = make_worker(settings)
        preload(settings)
        log.info("process.started")
        worker.work(logging_level=None)
    except AdvisorError as error:
        print(f"worker: {error.detail}", file=sys.stderr)
        return 1
    except RedisError as error:  # lost in the middle of a job, or while the worker signs off
        log.error("redis.silent", error=type(error).__name__, detail=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
