"""What runs on a schedule: one process at a time runs each job, at its time, whatever is restarted or killed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from service import metrics
from service.flows.context import Context
from service.flows.operations import schedule as listed
from service.flows.operations.schedule import Job, schedule
from service.scheduler import Scheduler
from service.settings import Settings
from service.store.operations import jobs
from tests.flows.conftest import Clock

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
EVERYTHING = schedule(Settings(calibrate_days=7))


def one_job(monkeypatch: pytest.MonkeyPatch, context: Context, job: Job) -> Context:
    """Return a context whose schedule is `job` alone, which is due."""
    jobs.ensure(context.engine, {job.name: NOON})
    monkeypatch.setattr("service.scheduler.schedule", lambda settings: (job,))
    return context._replace(settings=msgspec.structs.replace(context.settings, sweep_seconds=0.2))


async def run_for_looks(*schedulers: Scheduler, looks: int = 1) -> None:
    """Let processes prepare, look so often each, and finish what they began."""
    for scheduler in schedulers:
        scheduler._prepare()
    for _ in range(looks):
        await asyncio.gather(*(scheduler._look() for scheduler in schedulers))
        await asyncio.gather(*(task for one in schedulers for task in one._running.values()))


async def no_module(*words: str) -> int:
    raise AssertionError(words)


def test_of_several_replicas_one_runs_a_job_and_not_again_before_it_is_due(
    context: Context, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[datetime] = []
    job = Job("dumps", timedelta(hours=1), lambda c: ran.append(c.clock()) or 1, "")  # type: ignore[func-returns-value]
    replicas = [Scheduler(one_job(monkeypatch, context, job), no_module) for _ in range(3)]
    asyncio.run(run_for_looks(*replicas, looks=3))
    assert ran == [NOON]
    restarted = Scheduler(one_job(monkeypatch, context, job), no_module)
    asyncio.run(run_for_looks(restarted))
    assert ran == [NOON]
    clock.pass_minutes(60)
    asyncio.run(run_for_looks(*replicas, restarted))
    assert len(ran) == 2


def test_a_job_whose_process_was_killed_is_taken_over_when_its_lease_is_over(context: Context, clock: Clock) -> None:
    jobs.ensure(context.engine, {"purge": NOON})
    assert jobs.claim(context.engine, "purge", "killed", NOON, NOON + timedelta(minutes=1))
    assert not jobs.claim(context.engine, "purge", "other", NOON, NOON + timedelta(minutes=1))
    jobs.renew(context.engine, ["purge"], "killed", NOON + timedelta(minutes=2))
    later = NOON + timedelta(seconds=90)
    assert not jobs.claim(context.engine, "purge", "other", later, later + timedelta(minutes=1))
    later = NOON + timedelta(minutes=3)
    assert jobs.claim(context.engine, "purge", "other", later, later + timedelta(minutes=1))
    jobs.finish(context.engine, "purge", "killed", NOON, later, NOON + timedelta(days=9), succeeded=True)
    assert jobs.states(context.engine)["purge"].due_at == NOON


def test_what_fails_is_tried_again_soon_and_stops_nothing_else(
    context: Context, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Context) -> int:
        raise OSError("no space left on device")

    scheduler = Scheduler(one_job(monkeypatch, context, Job("dumps", timedelta(days=1), fail, "")), no_module)
    asyncio.run(run_for_looks(scheduler))
    state = jobs.states(context.engine)["dumps"]
    assert (state.failed_at, state.succeeded_at, state.held_until) == (NOON, None, None)
    assert state.due_at == NOON + timedelta(hours=1)


def test_what_is_made_due_while_it_runs_is_done_again(
    context: Context, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(context: Context) -> int:
        clock.pass_minutes(1)
        jobs.hasten(context.engine, "dumps", clock())
        return 1

    scheduler = Scheduler(one_job(monkeypatch, context, Job("dumps", timedelta(days=1), interrupted, "")), no_module)
    asyncio.run(run_for_looks(scheduler))
    assert jobs.states(context.engine)["dumps"].due_at == clock()


def test_a_command_that_fails_counts_as_failed(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*words: str) -> int:
        assert words == ("workers.job", "dumps")
        return 1

    job = Job("dumps", timedelta(days=1), lambda _: 0, "", own_process=True)
    asyncio.run(run_for_looks(Scheduler(one_job(monkeypatch, context, job), fail)))
    assert jobs.states(context.engine)["dumps"].failed_at == NOON


def test_what_is_done_at_an_hour_is_due_there_once_a_day() -> None:
    dumps = next(job for job in EVERYTHING if job.name == "dumps")
    assert dumps.next_due(NOON) == datetime(2026, 11, 22, 3, tzinfo=UTC)
    assert dumps.next_due(datetime(2026, 11, 22, 3, tzinfo=UTC)) == datetime(2026, 11, 23, 3, tzinfo=UTC)


def test_the_speed_model_is_fitted_only_where_it_is_asked_for() -> None:
    assert {job.name for job in EVERYTHING} - {job.name for job in schedule(Settings())} == {"calibrate"}


def test_a_refused_fit_is_no_failure(context: Context, caplog: pytest.LogCaptureFixture) -> None:
    assert listed._calibrate(context) == 0


def test_metrics_and_docs_have_every_job() -> None:
    names = tuple(job.name for job in EVERYTHING)
    assert metrics.JOB_SUCCEEDED.labels == {"job": names}
    page = (Path(__file__).parents[3] / "docs" / "operating.md").read_text()
    for job in EVERYTHING:
        assert f"| `{job.name}` | {job.text} |" in page
