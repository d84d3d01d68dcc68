"""Tuning: searches around one config of an advice for a faster one, measured on one host; each step is a run.

What comes next depends only on the rows: asking again, after a restart or concurrently, asks for the same runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from service.engine.advice import AdviceBody
from service.engine.calibration import Calibration
from service.engine.catalogue import cards_named, engine_devices, rigs_of
from service.engine.config import CPU
from service.engine.errors import InvalidFlags, InvalidInput
from service.engine.estimate import Estimate
from service.engine.goal import Constraints, Goal
from service.engine.measured.chosen import Measurement
from service.engine.measured.summary import goal_point, measured_speed
from service.engine.model import Model
from service.engine.planner.pricing.candidate import Cards
from service.engine.planner.search.outcome import SearchCase
from service.engine.run_flags import RunFlags, closed, to_flags
from service.engine.tune import Next, Step, Tried, next_trials, steps_around
from service.flows.context import Context
from service.queue.progress import wake_hosts
from service.store.advice import advices
from service.store.measuring import runs, validations
from service.store.measuring.runs import OPEN, StoredRun
from service.store.measuring.validations import StoredValidation
from service.store.results import results
from service.store.results.results import StoredResult

_A_RUNG = 100  # run positions per rung of the search, more than there are steps
_DAY = timedelta(days=1)


def steps_of(
    one: Measurement, body: AdviceBody, model: Model, constraints: Constraints, budget: float,
    calibration: Calibration | None = None,
) -> list[tuple[Measurement, str, int]]:  # fmt: skip
    """Return the first steps, the starting config first: each with what it changes, and its seconds.

    `budget` (seconds) limits how many there are. Raises InvalidInput if no step around the config is worth measuring.

    """
    case, cards = _case(one, body, model, constraints, calibration)
    found: dict[RunFlags, tuple[Measurement, Step]] = {}  # steps that differ only in flags that hosts ignore are one
    for step in steps_around(case, cards, to_flags(one.flags)):
        measurement = _closed(one, step)
        if measurement is not None:
            found.setdefault(measurement.flags, (measurement, step))
    steps = list(found.values())
    first = next_trials(len(steps), (), budget).trials if len(steps) > 1 else ()
    if not first:
        raise InvalidInput("nothing near this config is worth measuring", field="mode")
    return [(steps[t.step][0], steps[t.step][1].changed, max(int(t.seconds), 10)) for t in first]


def _case(
    one: Measurement, body: AdviceBody, model: Model, constraints: Constraints, calibration: Calibration | None
) -> tuple[SearchCase, Cards]:  # fmt: skip
    """Return the search problem that the config solves, on the rig and with the device names of its build."""
    wanted = [device for device in one.devices if device.device != CPU]
    for rig in rigs_of(body.hardware, calibration):
        cards = tuple(i for i in cards_named(rig, [device.gpu for device in wanted]) if i is not None)
        if len(cards) == len(wanted):
            names = [device.name for device in engine_devices(rig, one.engine, cards)]
            if names == [device.device for device in wanted]:
                return SearchCase(one.engine, 0, model, rig, body.goal, constraints), cards
    raise InvalidInput("the cards in the advice no longer match its hardware: ask for it again", field="id")


def _closed(start: Measurement, step: Step) -> Measurement | None:
    """Return a step as a measurement, None if hosts may not run its flags."""
    try:
        flags = closed(step.flags).flags
    except InvalidFlags:
        return None
    return msgspec.structs.replace(start, kind="step", flags=flags, n_prompt=min(flags.n_ubatch, flags.n_ctx))


def run_id(validation_id: str, rung: int, step: int) -> str:
    """Return a trial's run id, derived from its place, so that the same trial asked for twice is one row."""
    return hashlib.sha256(f"{validation_id}/{rung}/{step}".encode()).hexdigest()[:22]


def go_on(context: Context, validation_id: str) -> bool:
    """Queue a tuning's next runs once all queued ones have ended; return whether there were any."""
    row = validations.read(context.engine, validation_id)
    if row is None or row.mode != "tune" or row.cancelled_at is not None:
        return False
    its_runs = runs.of_validation(context.engine, row.id)
    if any(run.state in OPEN for run in its_runs):
        return False
    trials = decided(context, row, its_runs).trials
    first = {run.position: run for run in its_runs if run.position < _A_RUNG}
    new = [
        msgspec.structs.replace(
            _again(first[trial.step], context),
            id=run_id(row.id, trial.rung, trial.step),
            position=trial.rung * _A_RUNG + trial.step,
            outline=msgspec.structs.replace(first[trial.step].outline, seconds=max(int(trial.seconds), 10)),
        )
        for trial in trials
    ]
    if not new or not validations.add_runs(
        context.engine, [(run, runs.eligible(context.engine, first[run.position % _A_RUNG].id)) for run in new]
    ):
        return False
    wake_hosts(context.redis)
    return True


def _again(run: StoredRun, context: Context) -> StoredRun:
    kept = "validation_id account_id kind config_id variant cell outline prediction identity changed request_id"
    shared = {name: getattr(run, name) for name in kept.split()}
    return StoredRun(id="", position=0, created_at=context.clock(), **shared)


def decided(context: Context, row: StoredValidation, its_runs: Sequence[StoredRun]) -> Next:
    """Return a tuning's next trials, or, if it is over, the best step and why."""
    advice = advices.read(context.engine, row.advice_id)
    found = results.of_ids(context.engine, [run.result_id for run in its_runs if run.result_id])
    over = [run for run in its_runs if run.state not in OPEN]
    goal = advice.body.goal if advice and advice.body else None
    tried = [_tried(run, found.get(run.result_id or ""), goal) for run in over]
    n_steps = sum(run.position < _A_RUNG for run in its_runs)
    return next_trials(n_steps, tried, row.request.minutes * 60.0)


def _tried(run: StoredRun, result: StoredResult | None, goal: Goal | None) -> Tried:
    seconds = _seconds(result, goal) if result and goal and result.failure is None else None
    return Tried(run.position % _A_RUNG, run.position // _A_RUNG, seconds, float(run.outline.seconds))


def _seconds(result: StoredResult, goal: Goal) -> Estimate | None:
    at = goal_point(measured_speed(result.rows), goal)
    if at is None or min(at.pp_low, at.tg_low) <= 0:
        return None
    low, expected, high = (
        goal.prompt / pp + goal.output / tg
        for pp, tg in ((at.pp_high, at.tg_high), (at.pp_tps, at.tg_tps), (at.pp_low, at.tg_low))
    )
    return Estimate(low, expected, high, "measured")


def best_run(context: Context, row: StoredValidation, its_runs: Sequence[StoredRun]) -> str | None:
    """Return the id of the best step's last run, None while the tuning goes on."""
    best = decided(context, row, its_runs).best
    of_it = [run for run in its_runs if best is not None and run.position % _A_RUNG == best and run.result_id]
    return max(of_it, key=lambda run: run.position).id if of_it else None


def sweep(context: Context) -> int:
    """Continue tunings that were interrupted between a report and its next runs; return how many."""
    ids = validations.tunings_since(context.engine, context.clock() - _DAY)
    return sum(go_on(context, validation_id) for validation_id in ids)
