"""The scheduled jobs, in one list that every API process works from. docs/operating.md shows it as a table.

The database says when each job is due and who runs it (service.store.operations.jobs), so that exactly one of several
replicas does, and a restart neither repeats nor forgets any. A job may run twice if its process was suspended for
longer than its lease; every job is written so that this does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from service.errors import CalibrationRefused
from service.flows.advice.fair_queue import requeue_unfinished
from service.flows.context import Context
from service.flows.measuring import runs
from service.flows.operations.retention import purge
from service.flows.results import calibration, dumps, imports, trust
from service.flows.results.differences import compare_logs
from service.logs import Log
from service.settings import Settings

log = Log("jobs")

_DAY = timedelta(days=1)
_TEN_MINUTES = timedelta(minutes=10)
_RETRIES = 24  # a failed job is retried after its interval divided by this


class Job(NamedTuple):
    """A scheduled job. `at_hour`: the hour of the day in UTC, for daily jobs.

    `call` returns how many things it changed. `own_process`: it computes for so long that it would delay requests.
    `at_start`: it also runs whenever an API process starts.
    """

    name: str
    every: timedelta
    call: Callable[[Context], int]
    text: str
    at_hour: int | None = None
    own_process: bool = False
    at_start: bool = False

    def next_due(self, now: datetime) -> datetime:
        """Return when the job is due next, either after it was done, or in a new database."""
        if self.at_hour is None:
            return now + self.every
        today = now.replace(hour=self.at_hour, minute=0, second=0, microsecond=0)
        return today if today > now else today + _DAY

    def due_after_failure(self, now: datetime) -> datetime:
        """Return when the job is retried after a failure."""
        return now + self.every / _RETRIES


def schedule(settings: Settings) -> tuple[Job, ...]:
    """Return the jobs enabled by these settings."""
    sweep = timedelta(seconds=settings.sweep_seconds)
    jobs = (
        Job(
            "advices",
            sweep,
            requeue_unfinished,
            "queues requests for advice again if no worker is computing them any more",
            at_start=True,
        ),
        Job("runs", sweep, runs.sweep, "takes runs back from hosts that went silent, and ends runs that no host took"),
        Job("trust", _TEN_MINUTES, trust.sweep, "decides on results whose account has become old enough"),
        Job(
            "logs",
            _TEN_MINUTES,
            compare_logs,
            "compares the buffers printed in logs with the computed ones",
            own_process=True,
        ),
        Job("published", _DAY, _import_published, "adds the package's published results", at_start=True),
        Job("dumps", _DAY, _write_dumps, "writes the dumps of all results", at_hour=3, own_process=True),
        Job("purge", _DAY, _purge, "removes what is older than the settings allow", at_hour=4),
    )
    if not settings.calibrate_days:
        return jobs
    every = timedelta(days=settings.calibrate_days)
    return (
        *jobs,
        Job("calibrate", every, _calibrate, "fits the speed model to this service's results", own_process=True),
    )


def _import_published(context: Context) -> int:
    return imports.import_published(context.engine, context.clock())


def _write_dumps(context: Context) -> int:
    return len(dumps.write_dumps(context.engine, dumps.folder_of(context.settings), context.clock()).dumps)


def _purge(context: Context) -> int:
    purged = purge(context, context.settings)
    for one in purged:
        log.info("rows.purged", n=one.rows, detail=f"{one.kind} older than {one.days} days")
    return sum(one.rows for one in purged)


def _calibrate(context: Context) -> int:
    """Refit; too few results or a worse fit is no failure, so the job simply comes again in its interval."""
    try:
        return calibration.calibrate(context).n_results
    except CalibrationRefused as error:
        log.info("calibration.refused", detail=error.detail)
        return 0


def log_done(job: Job, n: int) -> None:
    """Log what a job changed, unless it was a sweep that found nothing."""
    if n or job.own_process:
        log.info("job.ended", task=job.name, n=n)
