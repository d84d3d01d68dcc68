"""The agent's main loop: it describes the machine, waits for runs, measures one at a time, and reports it."""

from __future__ import annotations

import os
import shlex
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from service import logs
from service.engine.errors import AdvisorError, InvalidFlags
from service.engine.measured.classify import Failure
from service.logs import Log
from service.wire.measuring.agent import LeasedRun, Report, RunDocument
from workers.agent import journal
from workers.agent.arguments import engine_command
from workers.agent.askers import require_welcome
from workers.agent.client import Client
from workers.agent.download import download, is_allowed, touch
from workers.agent.errors import NotEnrolled, ServiceError, Unsafe
from workers.agent.journal import Ran, utc_now
from workers.agent.lease import Lease, LeaseLost, pause_after
from workers.agent.measure import measure
from workers.agent.policy import InvalidPolicy, Policy, is_within_hours, log_path, pause_path, read_policy
from workers.agent.preflight import Declined, Prepared, are_confirmed, prepare
from workers.agent.process import Confinement
from workers.agent.state import DOING, Doing, State
from workers.agent.usage import UsageOfDay
from workers.agent.watcher import Watcher

log = Log("agent")

IDLE_SECONDS = 15.0
_LOOK_SECONDS = 1.0
_LASTING = ("host-not-active", "invalid-request")  # refusals that only a person ends


class EndRequested(BaseException):
    """The agent was asked to end while it waited for the service."""


class Agent:
    """The agent; `serve` runs until it is asked to end."""

    def __init__(
        self, state: State, policy: Path, client: Client, machine: Watcher, *, held: Confinement,
        ending: threading.Event, say: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        """`policy`: its file, read again before every decision. `held`: what confines engines on this machine.
        `say`: prints what a dry run shows."""
        self.state, self.policy_path, self.client = state, policy, client
        self.machine, self.say, self.ending = machine, say, ending
        self.held, self.usage = held, UsageOfDay(state)
        self._sent: bytes | None = None
        self._failures = 0
        self._said = self._why_not = ""
        self._once = self._waiting = False

    def end(self, *_: Any) -> None:
        """End gracefully: a running run is stopped and reported. Called by signals."""
        self.ending.set()
        if self._waiting:
            raise EndRequested

    def serve(self, *, once: bool = False, dry_run: bool = False) -> bool:
        """Work until asked to end, and return whether it could. Raises HostError if it can never work.

        `once`: end after one run, or if none is waiting, or nothing may run now, which is said. A service that does not
        answer is waited for.
        """
        self._once = once
        with suppress(EndRequested):
            self._note("starting")
            while not (self.ending.is_set() or self._why_not):
                if self._turn(dry_run) and once:
                    break
        self._note("stopped")
        return not self._why_not

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let a signal end the agent at once within the block, because it is only waiting for the service."""
        self._waiting = True
        try:
            if self.ending.is_set():
                raise EndRequested
            yield
        finally:
            self._waiting = False

    def _turn(self, dry_run: bool) -> bool:
        """Take one turn; return whether the service was asked for a run (and it was done, if there was one)."""
        try:
            policy = read_policy(self.policy_path)
            if not dry_run:
                require_safe(policy, self.policy_path, self.held)
            paused = why_idle(policy, self.state) or self.usage.why_over(policy)
            self._introduce(policy, paused=paused is not None)
            if why := paused or self.machine.in_use(policy):
                self._idle(why, IDLE_SECONDS)
                return False
            self._note("waiting", "for a run")
            with self._interruptible():
                leased = self.client.lease()
            self._failures = 0
        except InvalidPolicy as error:
            self._idle(error.detail, IDLE_SECONDS)
            return False
        except ServiceError as error:
            self._back_off(error)
            return False
        if leased is not None:
            self._do(leased, policy, dry_run)
        elif self._once:
            self.say("no run is waiting for this host")
        return True

    def _introduce(self, policy: Policy, *, paused: bool) -> None:
        """Tell the service what the machine is, if that has changed since last time."""
        machine = self.machine.look(policy)
        probe = msgspec.structs.replace(machine.probe, paused=paused)
        said = msgspec.json.encode(probe)
        if said != self._sent:
            with self._interruptible():
                self.client.probe(probe)
            self._sent = said

    def _back_off(self, error: ServiceError) -> None:
        """Wait before asking the service again. Raises NotEnrolled if it will never answer."""
        if error.slug in ("host-not-active", "not-authenticated"):
            with self._interruptible():
                self._look_at_state(error)
        self._failures += 1
        self._sent = None
        self._idle(error.detail, pause_after(self._failures), passes=error.slug not in _LASTING)

    def _look_at_state(self, error: ServiceError) -> None:
        try:
            self.client.open_session()
        except ServiceError as refused:
            if refused.slug in ("host-not-active", "not-authenticated"):
                raise NotEnrolled(f"the service no longer knows this host: {error.detail}") from None

    def _idle(self, why: str, seconds: float, *, passes: bool = False) -> None:
        """Wait before the next turn. `passes`: it is over soon, so that who came for one run waits too."""
        self._note("idle", why)
        if self._once and not passes:
            self._why_not = why
            self.say(why)
            return
        if why != self._said:
            log.info("agent.idle", detail=why)
            self._said = why
        self.ending.wait(seconds)

    def _note(self, what: Any, text: str = "", run: str | None = None) -> None:
        self.state.write(DOING, msgspec.json.encode(Doing(what=what, at=utc_now(), text=text[:300], run=run)))

    def _do(self, leased: LeasedRun, policy: Policy, dry_run: bool) -> None:
        """Measure and report one run, whatever happens."""
        run = _LeasedRun(self, leased, policy)
        self._said = ""
        self.machine.rest(False)
        self.client.request_id = leased.request
        try:
            with logs.bound(run_id=leased.run, request_id=leased.request):
                run.preview() if dry_run else run.measure()
        finally:
            self.client.request_id = None
            self.machine.rest(True)


class _LeasedRun:
    """The handling of one leased run."""

    def __init__(self, agent: Agent, leased: LeasedRun, policy: Policy) -> None:
        self.agent, self.leased, self.policy = agent, leased, policy
        self.document = leased.document
        self.lease = Lease(agent.client, leased, agent.ending)
        self.words: tuple[str, ...] = ()
        self._looked = 0.0
        self._why: str | None = None

    def measure(self) -> None:
        """Measure, report, and write it to the journal."""
        began = time.monotonic()
        self.agent._note("measuring", self.document.repo, self.leased.run)
        log.info("run.began", repo=self.document.repo, file=self.document.files[0].path)
        try:
            self.lease.begin()
        except LeaseLost as error:
            self._finish(f"not begun: {error}", began)
            return
        report = self._measured()
        accepted = self.lease.end(report)
        outcome = _outcome(report) + ("" if accepted else " (not taken by the service)")
        self._finish(outcome, began)

    def preview(self) -> None:
        """Show what would run, and give the run back."""
        try:
            prepared = prepare(self.document, self.agent.machine.look(self.policy), self.policy)
            shown = shlex.join(words_of(self.document, prepared))
        except (Declined, AdvisorError) as error:
            shown = f"nothing: {error}"
        self.agent.say(f"run {self.leased.run} of {self.document.repo} would be:\n{shown}")
        failure = Failure(kind="gave_way", transient=True, text="a dry run: nothing was started")
        with suppress(LeaseLost):
            self.lease.begin()
            self.lease.end(Report(fence=self.leased.fence, failure=failure))

    def _measured(self) -> Report:
        """Return the engine's figures, or why there are none."""
        fence = self.leased.fence
        try:
            require_welcome(self.leased, self.policy, self.agent.state)
            prepared = self._prepared()
            machine = self.agent.machine.look(self.policy)
            self.words = words_of(self.document, prepared)
            journal.write(log_path(self.policy, self.agent.state.path), self._ran("started", 0))
            touch(prepared.files)
            self.lease.step("loading")
            result = measure(
                self.document,
                prepared.program,
                prepared.files,
                machine.gpus,
                self.policy,
                self.lease.add_row,
                self._stop,
                watched=self.agent.machine.gpus,
                state=self.agent.state.path,
                usage=self.agent.usage,
            )
            models = _same(prepared, self.agent.machine.look(self.policy).models)
            confirmed = are_confirmed(self.document, models)
            return self._excused(result.report(fence, prepared.program, files_confirmed=confirmed))
        except Declined as refused:
            return Report(fence=fence, failure=refused.failure)
        except InvalidFlags as error:
            return Report(fence=fence, failure=Failure(kind="unknown_flag", transient=False, text=error.detail[:500]))
        except Exception as error:  # a bug of the agent: give the run back at once, the next host may do better
            log.error("run.crashed", error)  # only in the local log: it may name paths
            text = f"the agent failed: {type(error).__name__}"
            return Report(fence=fence, failure=Failure(kind="crashed", transient=True, text=text))

    def _excused(self, report: Report) -> Report:
        """If the owner stopped the run, report that it gave way, which is not held against it."""
        failure = report.failure
        if failure is None or failure.kind != "stopped" or not (self.agent.ending.is_set() or self._why):
            return report
        return msgspec.structs.replace(report, failure=msgspec.structs.replace(failure, kind="gave_way"))

    def _prepared(self) -> Prepared:
        """Return what the run is measured with, after a download if one is needed and allowed. Raises Declined."""
        try:
            return prepare(self.document, self.agent.machine.look(self.policy), self.policy)
        except Declined as refused:
            if refused.failure.kind != "model_missing" or not is_allowed(self.document, self.policy):
                raise
        self.lease.step("downloading")
        paths = download(self.document, self.policy, self._stop, self.agent.usage)
        contents = {path: file.sha256 for path, file in zip(paths, self.document.files, strict=True)}
        self.agent.machine.fetched(contents)
        return prepare(self.document, self.agent.machine.look(self.policy), self.policy)

    def _stop(self) -> str | None:
        """Return why the run must end. Asked often, so the disk is checked only once a second."""
        if self.agent.ending.is_set():
            return "the agent was asked to end"
        now = time.monotonic()
        if now > self._looked + _LOOK_SECONDS:
            self._looked = now
            self._why = self._local_reason()
        return self.lease.why_stop() or self._why

    def _local_reason(self) -> str | None:
        """Return the owner's reason in words that may be sent: those meant for the owner name paths."""
        try:
            idle = why_idle(read_policy(self.agent.policy_path), self.agent.state)
        except InvalidPolicy:
            return "this host's policy cannot be read"
        return "this host's owner paused it, or its hours are over" if idle else None

    def _finish(self, outcome: str, began: float) -> None:
        seconds = time.monotonic() - began
        log.info("run.ended", outcome=outcome, duration_ms=round(seconds * 1000))
        journal.write(log_path(self.policy, self.agent.state.path), self._ran(outcome, seconds))

    def _ran(self, outcome: str, seconds: float) -> Ran:
        return Ran(
            at=utc_now(), run=self.leased.run, repo=self.document.repo, file=self.document.files[0].path,
            words=self.words, outcome=outcome, seconds=round(seconds, 1),
        )  # fmt: skip


def require_safe(policy: Policy, path: Path, held: Confinement) -> None:
    """Raise Unsafe if the agent is root or engines are unconfined, unless the policy file at `path` allows it. An
    engine run by root could read files that only root owns."""
    if os.geteuid() == 0 and not policy.allow_root:
        raise Unsafe(f"the agent runs as root: start it as its own user, or write allow_root = true in {path}")
    if held.missing and not policy.allow_unconfined:
        raise Unsafe(
            f"engines cannot be kept from {held.missing} here: run the agent in a container or a virtual machine, and "
            f"write allow_unconfined = true in {path}"
        )


def why_idle(policy: Policy, state: State, now: datetime | None = None) -> str | None:
    """Return why nothing may run now, None if something may."""
    pause = pause_path(policy, state.path)
    if pause.exists():
        return f"paused: {pause} is there (`advisor host resume` removes it)"
    if not is_within_hours(policy, (now or datetime.now()).time()):
        return f"outside the policy's hours: {', '.join(policy.hours)}"
    return None


def words_of(document: RunDocument, prepared: Prepared) -> tuple[str, ...]:
    """Return the command of a run's first pass. Raises InvalidFlags for what this engine or host does not support."""
    program, first = prepared.program, str(prepared.files[0])
    options, numactl = program.build.options, shutil.which("numactl")
    return engine_command(document, str(program.path), options, first, {}, numactl=numactl).words


def _same(prepared: Prepared, models: Sequence[Any]) -> list[Any]:
    """Return the models that were run, as they are known now."""
    paths = set(prepared.files)
    return [model for model in models if model.path in paths]


def _outcome(report: Report) -> str:
    if report.failure is not None:
        return report.failure.text
    return f"measured {len(report.rows)} rows"
