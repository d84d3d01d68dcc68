"""Validations as they are read: the state of their runs, and measured figures next to predicted ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from service.engine.goal import Goal
from service.engine.measured.classify import in_plain_words
from service.engine.measured.identity import MatchKind
from service.engine.measured.summary import measured_seconds
from service.errors import NotAllowed, ValidationNotFound
from service.flows.accounts import Caller, viewer_of
from service.flows.context import Context
from service.flows.measuring.tuning import best_run, decided
from service.flows.results.read_results import outcome_of
from service.queue.progress import publish
from service.store.advice import advices
from service.store.measuring import runs, validations
from service.store.measuring.runs import OPEN, StoredRun
from service.store.measuring.validations import StoredValidation
from service.store.results import results
from service.store.results.listed_results import SEEN
from service.store.results.results import StoredResult
from service.store.viewers import ANYBODY
from service.structs import made_from
from service.wire.measuring.runs import HostMatch, Run, RunOutcome, Validation, ValidationEvent

_MOST_SHOWN = 5  # validations on the page of an advice


def read_validation(context: Context, validation_id: str, caller: Caller | None = None) -> Validation:
    """Return a validation as it is now, without results that were hidden or deleted.

    If a private host may take part, only the asker, the host's owner and operators see it. Raises ValidationNotFound.
    """
    row = _row(context, validation_id, caller)
    its_runs = runs.of_validation(context.engine, row.id)
    found = _seen(context, its_runs)
    ids = [run.id for run in its_runs]
    matches = runs.matches(context.engine, ids)
    host_ids = sorted({host for _, host in matches} | {run.host_id for run in its_runs if run.host_id})
    names = validations.pseudonyms(context.engine, host_ids)
    outcomes = {run.id: outcome_of(found[run.result_id]) for run in its_runs if run.result_id in found}
    advice = advices.read(context.engine, row.advice_id)
    goal = advice.body.goal if advice and advice.body else None
    tunes = row.mode == "tune" and row.cancelled_at is None
    goes_on = tunes and not any(run.state in OPEN for run in its_runs) and bool(decided(context, row, its_runs).trials)
    return made_from(
        Validation,
        row,
        advice=row.advice_id,
        state=_state(row, its_runs) if not goes_on else "running",
        runs=[_shown(_for_others(_emptied(run, found)), names, matches, outcomes.get(run.id)) for run in its_runs],
        hosts=[
            HostMatch(host=host, pseudonym=names.get(host, ""), match=match)
            for host, match in sorted({host: match for (_, host), match in matches.items()}.items())
        ],
        best=best_run(context, row, its_runs) if row.mode == "tune" else _best(its_runs, outcomes, goal),
    )


def validations_of_advice(context: Context, advice_id: str) -> list[Validation]:
    """Return an advice's last five publicly visible validations, oldest first."""
    engine = context.engine
    found = [row for row in validations.of_advice(engine, advice_id) if validations.is_seen_by(engine, row, ANYBODY)]
    return [read_validation(context, row.id) for row in found[-_MOST_SHOWN:]]


def cancel_validation(context: Context, caller: Caller, validation_id: str) -> None:
    """Cancel a validation's unfinished runs. Raises ValidationNotFound, or NotAllowed for another account's."""
    row = _row(context, validation_id, caller)
    if row.account_id != caller.account_id and "operator" not in caller.scopes:
        raise NotAllowed("this validation belongs to another account")
    validations.cancel(context.engine, row.id, context.clock())
    publish(context.redis, ValidationEvent(row.id, None, "cancelled"))


def _row(context: Context, validation_id: str, caller: Caller | None) -> StoredValidation:
    row = validations.read(context.engine, validation_id)
    if row is None or not validations.is_seen_by(context.engine, row, viewer_of(caller)):
        raise ValidationNotFound("there is no validation with this id", field="id")
    return row


def _state(row: StoredValidation, its_runs: Sequence[StoredRun]) -> Literal["queued", "running", "done", "cancelled"]:
    states = {run.state for run in its_runs}
    if not states.intersection(OPEN):
        return "cancelled" if row.cancelled_at is not None else "done"
    return "queued" if all(run.state == "queued" or run.previous for run in its_runs) else "running"


def _seen(context: Context, its_runs: Sequence[StoredRun]) -> dict[str, StoredResult]:
    """Return the runs' results that were neither hidden nor deleted, by id."""
    found = results.of_ids(context.engine, [run.result_id for run in its_runs if run.result_id])
    return {name: one for name, one in found.items() if one.state in SEEN}


def _emptied(run: StoredRun, seen: Mapping[str, StoredResult]) -> StoredRun:
    """Return a run without its figures and link if its result may not be seen."""
    if run.result_id is None or run.result_id in seen:
        return run
    return msgspec.structs.replace(run, result_id=None, rows=[], failure=None)


def _for_others(run: StoredRun) -> StoredRun:
    """Return a run whose failure is in our words if a stranger's host wrote it; the service's own reasons stay."""
    own = run.record is not None and run.record.owner_id == run.account_id
    if run.failure is None or own or (run.report_key is None and not run.previous):
        return run
    return msgspec.structs.replace(run, failure=in_plain_words(run.failure))


def _shown(
    run: StoredRun, names: dict[str, str], matches: dict[tuple[str, str], MatchKind],
    outcome: RunOutcome | None,
) -> Run:  # fmt: skip
    held = run.host_id if run.state != "queued" else None
    return made_from(
        Run,
        run,
        config=run.config_id,
        engine=run.outline.engine,
        flags=run.outline.flags,
        host=names.get(held) if held else None,
        match=matches.get((run.id, held)) if held else None,
        outcome=outcome,
        step=run.changed,
        result=run.result_id,
    )


def _best(its_runs: Sequence[StoredRun], outcomes: dict[str, RunOutcome], goal: Goal | None) -> str | None:
    """Return the config with the shortest measured time for the goal, or for a tuning the run."""

    times = {
        run.config_id or run.id: seconds
        for run in its_runs
        if goal and run.id in outcomes and run.kind != "baseline" and run.failure is None
        and (seconds := measured_seconds(outcomes[run.id].speed, goal)) is not None
    }  # fmt: skip
    return min(times, key=lambda name: times[name], default=None)
