"""Runs as hosts take them: a lease, progress, a report. The database decides; Redis only spreads the word."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from service import metrics
from service.engine.catalogue import resolve
from service.engine.check import compare_predicted
from service.engine.errors import InvalidInput
from service.engine.measured import Failure, MeasuredRow, Prediction, measured_speed, require_possible, rig_identity
from service.engine.reduction import reduced
from service.errors import HostNotActive, LeaseLost, RunNotFound
from service.flows import trust, tuning
from service.flows.context import Context
from service.flows.signed_calls import SignedHost
from service.logs import Log
from service.queue.progress import publish
from service.store import runs
from service.store.ids import is_id
from service.store.results import StoredResult, filed_under, rows_key_of
from service.store.runs import MAX_ATTEMPTS, StoredRun
from service.store.trust import writing
from service.wire.agent import Accepted, LeasedRun, Progress, Renewed, Report, RunDocument
from service.wire.results import ResultModel, Seen
from service.wire.runs import ValidationEvent

log = Log("runs")

_TO_REPORT = timedelta(minutes=15)  # checking and hashing files before a run, and saying what came of it
_CANCELLED = "the validation was cancelled"
_NOT_COUNTED = ("gave_way",)  # a host that gave way to its owner did nothing wrong
_OF_THE_HOST = ("refused_by_policy", "model_missing", "engine_missing")  # others may do it: no attempt, and no result


def lease(context: Context, host: SignedHost) -> LeasedRun | None:
    """Return the next run for a host, its own until the lease is over; None when there is none for it.

    What the host held before goes back to the queue: who asks again has lost it. Raises HostNotActive.
    """
    _require_active(host)
    runs.release(context.engine, host.id, context.clock())
    sweep(context)
    return next_run(context, host)


def next_run(context: Context, host: SignedHost) -> LeasedRun | None:
    """Return what `lease` returns, for a host that has asked already and waits."""
    now = context.clock()
    until = now + timedelta(seconds=context.settings.lease_seconds)
    allowance = context.settings.gpu_minutes_per_day * 60.0
    leased = runs.lease(context.engine, host.id, host.account_id, now, until, allowance)
    if leased is None:
        return None
    _tell(context, leased.run)
    log.info("run.leased", **_named(leased.run, host))
    outline = {name: getattr(leased.run.outline, name) for name in leased.run.outline.__struct_fields__}
    own = leased.eligible
    document = RunDocument(**outline, engine_builds=own.engine_builds, gpus=own.gpus)
    return LeasedRun(
        run=leased.run.id, fence=leased.run.fence, lease_seconds=context.settings.lease_seconds, document=document,
        request=leased.run.request_id,
    )  # fmt: skip


def _named(run: StoredRun, host: SignedHost) -> dict[str, object]:
    """The ids by which a run is found in logs; the request is the one that asked for it, not the host's."""
    named = {"run_id": run.id, "host_id": host.id, "validation_id": run.validation_id, "request_id": run.request_id}
    return {name: identity for name, identity in named.items() if identity}


def note_progress(context: Context, host: SignedHost, run_id: str, said: Progress) -> Renewed:
    """Lengthen the lease and keep what was measured so far. Raises RunNotFound, LeaseLost, or InvalidInput."""
    run = _run(context, run_id)
    require_possible(said.rows, run.prediction.most_tg, run.prediction.most_pp)
    until = min(context.clock() + timedelta(seconds=context.settings.lease_seconds), _latest(run, host))
    text = f"{said.step}: {reduced(said.text)}" if said.text else said.step
    held = runs.renew(context.engine, run_id, host.id, said.fence, until, text, said.rows)
    if held is None:
        return _stopped(context, host, run_id, said.fence)
    _tell(context, held, said.rows)
    if host.state != "active":
        return Renewed(stop=True, why=f"the host is {host.state}")
    return Renewed(stop=False)


def _latest(run: StoredRun, host: SignedHost) -> datetime:
    """When a lease is over, whatever its host says: it gives no run longer than its policy says."""
    minutes = host.probe.max_minutes if host.probe else 0
    return (run.leased_at or run.created_at) + timedelta(minutes=minutes) + _TO_REPORT


def _stopped(context: Context, host: SignedHost, run_id: str, fence: int) -> Renewed:
    run = _run(context, run_id)
    if run.state == "cancelled" and run.host_id == host.id and run.fence == fence:
        return Renewed(stop=True, why=_CANCELLED)
    raise _lease_lost()


def report(context: Context, host: SignedHost, run_id: str, said: Report) -> Accepted:
    """End a run with what was measured, or why nothing was; the same report again gives the same answer.

    A failure that may pass sends the run back to the queue, three times. Raises RunNotFound, LeaseLost, InvalidInput.
    """
    run, key = _run(context, run_id), _key_of(said)
    if run.report_key == key and run.host_id == host.id and run.fence == said.fence:
        return Accepted(result=run.result_id, again=run.state == "queued")
    rows, failure = _checked(run, said)
    if failure is not None and failure.kind in _OF_THE_HOST:
        others = _held_by(run, host, said) and runs.withdraw(context.engine, run_id, host.id)
        failure = msgspec.structs.replace(failure, transient=bool(others))
    ended = _ending(run, rows, failure, _spent(run, host, said, context.clock()), context.clock())
    result = _result(context, host, run, said, rows, failure) if ended.is_final else None
    result = trust.judged(context, result) if result else None
    values = {**ended.values, "result_id": result.id if result else None}
    with writing(context.engine) as connection:
        text = reduced(said.log)
        ours = runs.finish(connection, run_id, host.id, said.fence, key, values, result, text)
        if ours and result is not None:
            trust.settle_in(connection, result.cell, context.clock())
    if not ours:
        if run.state == "cancelled" and run.host_id == host.id:
            return Accepted(result=None, again=False)
        raise _lease_lost()
    stored = _run(context, run_id)
    _count(stored, result)
    why = failure.kind if failure else None
    log.info("run.reported", outcome=stored.state, failure=why, result_id=stored.result_id, **_named(stored, host))
    if ended.is_final:
        tuning.go_on(context, stored.validation_id)
    _tell(context, stored)
    return Accepted(result=stored.result_id, again=not ended.is_final)


def _count(run: StoredRun, result: StoredResult | None) -> None:
    """Count how a run ended, and how far what was predicted of it was from what was measured."""
    metrics.RUNS_ENDED.of(run.state).inc()
    prediction = result.prediction if result else None
    if result is None or prediction is None or not prediction.own_rig:
        return
    for one in compare_predicted((), prediction.speed, measured_speed(result.rows), ()):
        if one.expected > 0:
            metrics.PREDICTED.of(result.engine, one.what).observe(one.measured / one.expected)


def _held_by(run: StoredRun, host: SignedHost, said: Report) -> bool:
    return run.host_id == host.id and run.fence == said.fence and run.state in ("leased", "running")


def sweep(context: Context) -> int:
    """Take back runs of hosts that fell silent, and end those that nobody takes; return how many those were."""
    now = context.clock()
    taken_back = runs.expire(context.engine, now, now - timedelta(days=context.settings.run_waits_days))
    if taken_back:
        metrics.LEASES_LOST.only.inc(taken_back)
        log.warning("runs.taken_back", n=taken_back)
    return taken_back + tuning.sweep(context)


class _Ending(NamedTuple):
    is_final: bool
    values: dict[str, object]


def _spent(run: StoredRun, host: SignedHost, said: Report, now: datetime) -> float:
    """Return the GPU-seconds of a run: it is the asker's quota, so no host may say more than it can have used."""
    cards = sum(gpu.count for gpu in host.probe.hardware.gpus) if host.probe else 0
    since = (now - run.started_at).total_seconds() if run.started_at else 0.0
    return min(run.gpu_seconds + said.gpu_seconds, cards * max(since, 0.0))


def _ending(
    run: StoredRun, rows: tuple[MeasuredRow, ...], failure: Failure | None, gpu_seconds: float, now: datetime
) -> _Ending:
    spent: dict[str, object] = {"gpu_seconds": gpu_seconds, "progress": None}
    if failure is None:
        return _Ending(True, {**spent, "state": "succeeded", "rows": list(rows), "failure": None, "ended_at": now})
    counted = run.attempt + (failure.kind not in (*_NOT_COUNTED, *_OF_THE_HOST))
    again = failure.transient and counted < MAX_ATTEMPTS
    if again:
        return _Ending(False, {**spent, "state": "queued", "attempt": counted, "rows": [], "failure": failure})
    ended: dict[str, object] = {"state": "failed", "attempt": counted, "rows": list(rows), "failure": failure}
    return _Ending(True, {**spent, **ended, "ended_at": now})


def _checked(run: StoredRun, said: Report) -> tuple[tuple[MeasuredRow, ...], Failure | None]:
    if not said.rows and said.failure is None:
        raise InvalidInput("a report has rows, or says why there are none", field="rows")
    require_possible(said.rows, run.prediction.most_tg, run.prediction.most_pp)
    failure = said.failure and msgspec.structs.replace(said.failure, text=reduced(said.failure.text)[:500])
    return said.rows, failure


def _result(
    context: Context, host: SignedHost, run: StoredRun, said: Report, rows: tuple[MeasuredRow, ...],
    failure: Failure | None,
) -> StoredResult | None:  # fmt: skip
    """Return what is kept for good: what was measured, or a failure that would come again."""
    if host.probe is None or (failure is not None and (failure.transient or failure.kind in _OF_THE_HOST)):
        return None
    outline, now = run.outline, context.clock()
    hardware = msgspec.structs.replace(host.probe.hardware, notes=None)
    return StoredResult(
        id=secrets.token_urlsafe(16),
        origin="agent",
        tier="self-reported",
        account_id=host.account_id,
        host_id=host.id,
        cell=run.cell,
        hardware_key=host.hardware_key,
        engine=outline.engine,
        build=said.engine_commit or said.engine_version,
        repo=outline.repo,
        variant=run.variant,
        model=ResultModel(repo=outline.repo, revision=outline.revision, variant=run.variant, files=outline.files),
        flags=outline.flags,
        hardware=hardware,
        rows=list(rows),
        rows_key=rows_key_of(run.identity.slug, outline.engine, rows),
        failure=failure,
        seen=_seen(said),
        prediction=_prediction(context, run, host),
        confirmed=said.files_confirmed,
        measured_at=now,
        created_at=now,
        **filed_under(run.identity, rig_identity(hardware, resolve(hardware))),
    )


def _prediction(context: Context, run: StoredRun, host: SignedHost) -> Prediction:
    """What the advice says of its own machine is not what it would say of a host that is only near to it."""
    match = runs.matches(context.engine, [run.id]).get((run.id, host.id))
    return msgspec.structs.replace(run.prediction, own_rig=match == "exact")


def _seen(said: Report) -> Seen:
    shared = {name: getattr(said, name) for name in Seen.__struct_fields__ if name in Report.__struct_fields__}
    return Seen(**shared)


def _run(context: Context, run_id: str) -> StoredRun:
    run = runs.read(context.engine, run_id) if is_id(run_id) else None
    if run is None:
        raise RunNotFound("there is no run with this id", field="id")
    return run


def _key_of(said: Report) -> str:
    return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()


def _require_active(host: SignedHost) -> None:
    if host.state != "active":
        raise HostNotActive(f"{host.pseudonym} is {host.state}")


def _lease_lost() -> LeaseLost:
    return LeaseLost("the lease is over: the run went back to the queue, or to another host", field="fence")


def _tell(context: Context, run: StoredRun, rows: tuple[MeasuredRow, ...] = ()) -> None:
    publish(context.redis, ValidationEvent(run.validation_id, run.id, run.state, run.progress, list(rows)))
