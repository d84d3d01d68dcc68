"""Runs the jobs of service.flows.operations.schedule in an API process, sharing them with its replicas."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import NoReturn

from anyio import to_thread

from service import metrics
from service.errors import ServiceUnavailable
from service.flows.context import Context
from service.flows.operations.schedule import Job, log_done, schedule
from service.logs import Log
from service.store.operations import jobs

log = Log("scheduler")

JOB_MODULE = "workers.job"
_LOOK_SECONDS, _LEASE = 5.0, timedelta(seconds=20)  # a lease that is not renewed for so long counts as lost


class Scheduler:
    """Checks every few seconds which jobs are due, and runs those that no other process has claimed."""

    def __init__(self, context: Context, run_module: Callable[..., Awaitable[int]]) -> None:
        """`run_module(*words)`: runs `python -m words` as a child process and returns its exit code."""
        self._context, self._run_module = context, run_module
        self._jobs = {job.name: job for job in schedule(context.settings)}
        self._holder = secrets.token_urlsafe(16)
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> NoReturn:
        """Run until cancelled. If the database does not answer, it is asked again at the next look."""
        prepared = False
        try:
            while True:
                try:
                    prepared = prepared or await to_thread.run_sync(self._prepare)
                    await self._look()
                except Exception as error:
                    log.error("task.failed", error, task="schedule")
                await asyncio.sleep(min(_LOOK_SECONDS, self._context.settings.sweep_seconds))
        finally:
            tasks = list(self._running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _prepare(self) -> bool:
        engine, now = self._context.engine, self._context.clock()
        jobs.ensure(engine, {name: job.next_due(now) for name, job in self._jobs.items()})
        for name, job in self._jobs.items():
            if job.at_start:
                jobs.hasten(engine, name, now)
        return True

    async def _look(self) -> None:
        """Start the jobs that are due, and renew the leases of running ones."""
        for name in await to_thread.run_sync(self._claimed):
            self._running[name] = asyncio.create_task(self._do(self._jobs[name]))

    def _claimed(self) -> list[str]:
        engine, now = self._context.engine, self._context.clock()
        until = now + _LEASE
        if running := tuple(self._running):
            jobs.renew(engine, running, self._holder, until)
        due = [name for name, state in jobs.states(engine).items() if name in self._jobs and state.due_at <= now]
        return [
            name for name in due if name not in self._running and jobs.claim(engine, name, self._holder, now, until)
        ]

    async def _do(self, job: Job) -> None:
        try:
            await self._do_and_give_back(job)
        finally:
            del self._running[job.name]

    async def _do_and_give_back(self, job: Job) -> None:
        claimed_at = self._context.clock()
        succeeded = await self._succeeds(job)
        now = self._context.clock()
        due_at = job.next_due(now) if succeeded else job.due_after_failure(now)
        try:
            finish = partial(jobs.finish, self._context.engine, job.name, self._holder, claimed_at, now, due_at)
            await to_thread.run_sync(lambda: finish(succeeded=succeeded))
        except ServiceUnavailable as error:  # the lease ends by itself
            log.warning("task.failed", task=job.name, detail=error.detail)

    async def _succeeds(self, job: Job) -> bool:
        try:
            if job.own_process:
                code = await self._run_module(JOB_MODULE, job.name)
                if code:
                    log.error("task.failed", task=job.name, code=code)
                    return False
            else:
                log_done(job, await to_thread.run_sync(job.call, self._context))
        except Exception as error:
            log.error("task.failed", error, task=job.name)
            return False
        metrics.JOB_SUCCEEDED.of(job.name).set_to_current_time()
        return True
