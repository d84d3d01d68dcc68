"""Runs from the hosts' side: lease, progress, report. The database decides; Redis only spreads the word."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Connection

from service import metrics
from service.engine.catalogue import resolve
from service.engine.check.compare import compare_predicted
from service.engine.errors import InvalidInput
from service.engine.measured.classify import Failure
from service.engine.measured.identity import rig_identity
from service.engine.measured.roofline import Prediction, require_possible
from service.engine.measured.rows import MeasuredRow
from service.engine.measured.summary import measured_speed
from service.engine.reduction import reduced
from service.errors import HostNotActive, LeaseLost, RunNotFound
from service.flows.context import Context
from service.flows.measuring import tuning
from service.flows.measuring.run_plans import STATES
from service.flows.results import trust
from service.logs import Log
from service.queue.progress import publish
from service.store import accounts
from service.store.measuring import runs
from service.store.measuring.hosts import SignedHost
from service.store.measuring.runs import RunRecord, StoredRun
from service.store.queries import new_id
from service.store.results.results import StoredResult, filed_under, rows_key_of
from service.store.results.trust import counts_as_agent, writing
from service.structs import made_from
from service.wire.measuring.agent import Accepted, LeasedRun, Progress, Renewed, Report, RunDocument
from service.wire.measuring.runs import ValidationEvent
from service.wire.results.results import ResultModel, Seen

log = Log("runs")

_TO_REPORT = timedelta(minutes=15)  # for checking and hashing files before a run, and reporting after it
_OTHERS_FIRST = timedelta(minutes=10)  # before a host that gave way is offered another account's run again
_VERSION = re.compile(r"[bv]?[0-9][0-9A-Za-z.+_-]{0,31}(?: ?\([0-9a-f]{7,40}\))?")
_NAME = re.compile(r"[A-Za-z]+(?:_[A-Za-z]+)*[0-9]{0,3}(?:\[hidden\])?")  # a device's, as engines print it
_CANCELLED = "the validation was cancelled"
_NOT_COUNTED = ("gave_way",)  # a host that gave way to its owner did nothing wrong
_OF_THE_HOST = ("refused_by_policy", "model_missing", "engine_missing")  # others may succeed: no attempt, no result


def lease(context: Context, host: SignedHost) -> LeasedRun | None:
    """Return the next run for a host, leased to it; None when there is none.

    A run that the host held before goes back to the queue: asking again means it was lost. Raises HostNotActive.
    """
    require_active(host)
    runs.release(context.engine, host.id, context.clock())
    return next_run(context, host)


def next_run(context: Context, host: SignedHost) -> LeasedRun | None:
    """Return what `lease` returns, for a waiting host that `lease` already released from earlier runs."""
    now = context.clock()
    until = now + timedelta(seconds=context.settings.lease_seconds)
    allowance = context.settings.gpu_minutes_per_day * 60.0
    leased = runs.lease(context.engine, host.id, host.account_id, now, until, allowance)
    if leased is None:
        return None
    run, own = leased
    _tell(context, run)
    log.info("run.leased", **_named(run, host))
    document = made_from(RunDocument, run.outline, engine_builds=own.engine_builds, gpus=own.gpus)
    return LeasedRun(
        run=run.id, fence=run.fence, lease_seconds=context.settings.lease_seconds, document=document,
        request=run.request_id, asked_by=accounts.name_of(context.engine, run.account_id),
        is_owners=run.account_id == host.account_id,
    )  # fmt: skip


def hosts_concerned(context: Context, ids: list[str]) -> dict[str, bool]:
    """Return those of these hosts for which `lease` has something to do, each mapped to True."""
    return dict.fromkeys(runs.concerned(context.engine, ids, context.clock()), True)


def hosts_with_runs(context: Context, ids: list[str]) -> dict[str, bool]:
    """Return those of these hosts for which a run waits, each mapped to True; `next_run` checks if they may have it."""
    return dict.fromkeys(runs.waiting_for(context.engine, ids, context.clock()), True)


def _named(run: StoredRun, host: SignedHost) -> dict[str, object]:
    """Return the ids that find a run in logs; the request id is that of the validation, not of the host's call."""
    named = {"run_id": run.id, "host_id": host.id, "validation_id": run.validation_id, "request_id": run.request_id}
    return {name: identity for name, identity in named.items() if identity}


def note_progress(context: Context, host: SignedHost, run_id: str, said: Progress) -> Renewed:
    """Extend the lease and store the rows measured so far. Raises RunNotFound, LeaseLost, or InvalidInput."""
    run = _run(context, run_id)
    record = _record(run, host)
    require_possible(said.rows, record.terms.most_tg, record.terms.most_pp)
    until = min(context.clock() + timedelta(seconds=context.settings.lease_seconds), _latest(record))
    text = f"{said.step}: {reduced(said.text)}" if said.text and _is_own(run, record) else said.step
    held = runs.renew(context.engine, run_id, host.id, said.fence, until, text, said.rows)
    if held is None:
        return _stopped(context, host, run_id, said.fence)
    _tell(context, held, said.rows)
    if host.state != "active":
        return Renewed(stop=True, why=f"the host is {host.state}")
    return Renewed(stop=False)


def _record(run: StoredRun, host: SignedHost) -> RunRecord:
    """Return the terms of the current lease. Raises LeaseLost if this host does not hold it."""
    if run.record is None or run.record.host_id != host.id:
        raise _lease_lost()
    return run.record


def _is_own(run: StoredRun, record: RunRecord) -> bool:
    """Whether the run is on the asker's own machine, whose word he trusts."""
    return record.owner_id == run.account_id


def _latest(record: RunRecord) -> datetime:
    """Return when a lease ends at the latest: no run lasts longer than the host's policy allowed."""
    return record.leased_at + timedelta(minutes=record.terms.max_minutes) + _TO_REPORT


def _stopped(context: Context, host: SignedHost, run_id: str, fence: int) -> Renewed:
    run = _run(context, run_id)
    if run.state == "cancelled" and run.host_id == host.id and run.fence == fence:
        return Renewed(stop=True, why=_CANCELLED)
    raise _lease_lost()


def report(context: Context, host: SignedHost, run_id: str, said: Report) -> Accepted:
    """End a run with its rows or a failure; sending the same report again gives the same answer.

    After a failure the run goes to other hosts, if any is left. A permanent failure on the asker's own host or on a
    proven one is final. Raises RunNotFound, LeaseLost, InvalidInput.
    """
    run, key = _run(context, run_id), hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()
    if run.report_key == key and run.host_id == host.id and run.fence == said.fence:
        return Accepted(result=run.result_id, again=run.state == "queued")
    if run.state == "cancelled" and run.host_id == host.id:
        return Accepted(result=None, again=False)
    record = _record(run, host)
    rows, failure = _checked(record, said)
    made = _result(record, run, said, rows, failure, context.clock())
    result = trust.judged(context, made) if made else None
    with writing(context.engine) as connection:
        again = failure is not None and _goes_on(connection, run, record, failure, context.clock())
        if again:
            result = None
        values = _ending(run, rows, failure, again, _spent(run, record, said, context.clock()), context.clock())
        values["result_id"] = result.id if result else None
        ours = runs.finish(connection, run_id, host.id, said.fence, key, values, result, reduced(said.log))
        if not ours:
            connection.rollback()
        elif result is not None:
            trust.settle_in(connection, result.cell, context.clock())
    if not ours:
        raise _lease_lost()
    stored = _run(context, run_id)
    _count(stored, result)
    why = failure.kind if failure else None
    log.info("run.reported", outcome=stored.state, failure=why, result_id=stored.result_id, **_named(stored, host))
    if not again:
        tuning.go_on(context, stored.validation_id)
    _tell(context, stored)
    return Accepted(result=stored.result_id, again=again)


def _count(run: StoredRun, result: StoredResult | None) -> None:
    """Count how a run ended, and the ratio of measured to predicted speed."""
    metrics.RUNS_ENDED.of(run.state).inc()
    prediction = result.prediction if result else None
    if result is None or prediction is None or not prediction.own_rig:
        return
    for one in compare_predicted((), prediction.speed, measured_speed(result.rows), ()):
        if one.expected > 0:
            metrics.PREDICTED.of(result.engine, one.what).observe(one.measured / one.expected)


def _goes_on(connection: Connection, run: StoredRun, record: RunRecord, failure: Failure, now: datetime) -> bool:
    """Record, in the transaction, what a failure says about the host; return whether the run goes back to the queue.

    An unproven host cannot end another account's run while some other host may still measure it.
    """
    own = _is_own(run, record)
    if failure.kind in _NOT_COUNTED:
        if not own:
            runs.put_off(connection, run.id, record.host_id, now + _OTHERS_FIRST)
        return True
    lasts = not failure.transient and failure.kind not in _OF_THE_HOST
    if lasts and (own or counts_as_agent(connection, record.host_id)):
        return False
    runs.count_drop(connection, run.id, record.host_id, for_good=lasts or failure.kind in _OF_THE_HOST)
    return runs.is_open_to_others(connection, run.id)


def sweep(context: Context) -> int:
    """Take back runs from silent hosts, and end those that nobody took; return how many."""
    now = context.clock()
    taken_back = runs.expire(context.engine, now, now - timedelta(days=context.settings.run_waits_days))
    if taken_back:
        metrics.LEASES_LOST.only.inc(taken_back)
        log.warning("runs.taken_back", n=taken_back)
    return taken_back + tuning.sweep(context)


def _spent(run: StoredRun, record: RunRecord, said: Report, now: datetime) -> float:
    """Return a run's GPU-seconds, capped at its cards times its duration: they count against the asker's quota."""
    most = len(record.gpus) * max((now - record.leased_at).total_seconds(), 0.0)
    return run.gpu_seconds + min(said.gpu_seconds, most)


def _ending(
    run: StoredRun, rows: tuple[MeasuredRow, ...], failure: Failure | None, again: bool, gpu_seconds: float,
    now: datetime,
) -> dict[str, object]:  # fmt: skip
    """Return the columns of a run whose lease ends with a report; `again`: it goes back to the queue."""
    spent: dict[str, object] = {"gpu_seconds": gpu_seconds, "progress": None}
    if failure is None:
        return {**spent, "state": "succeeded", "rows": list(rows), "failure": None, "ended_at": now}
    counted = run.attempt + (failure.kind not in (*_NOT_COUNTED, *_OF_THE_HOST))
    if again:
        # Partial rows stay visible until the next attempt begins and measures them again.
        return {**spent, "state": "queued", "attempt": counted, "rows": list(rows), "failure": failure}
    ended = {"state": "failed", "attempt": counted, "rows": list(rows), "failure": failure, "ended_at": now}
    return {**spent, **ended}


def _checked(record: RunRecord, said: Report) -> tuple[tuple[MeasuredRow, ...], Failure | None]:
    if not said.rows and said.failure is None:
        raise InvalidInput("a report must have rows, or say why there are none", field="rows")
    require_possible(said.rows, record.terms.most_tg, record.terms.most_pp)
    failure = said.failure and msgspec.structs.replace(said.failure, text=reduced(said.failure.text)[:500])
    return said.rows, failure


def _result(
    record: RunRecord, run: StoredRun, said: Report, rows: tuple[MeasuredRow, ...], failure: Failure | None,
    now: datetime,
) -> StoredResult | None:  # fmt: skip
    """Return the result to store: measured rows, or a permanent failure; None for any other failure."""
    if failure is not None and (failure.transient or failure.kind in (*_OF_THE_HOST, *_NOT_COUNTED)):
        return None
    outline, hardware = run.outline, record.terms.hardware
    return StoredResult(
        id=new_id(),
        origin="agent",
        tier="self-reported",
        account_id=record.owner_id,
        host_id=record.host_id,
        cell=run.cell,
        hardware_key=record.hardware_key,
        engine=outline.engine,
        build=said.engine_commit or _version(said),
        repo=outline.repo,
        variant=run.variant,
        model=ResultModel(repo=outline.repo, revision=outline.revision, variant=run.variant, files=outline.files),
        flags=outline.flags,
        hardware=hardware,
        rows=list(rows),
        rows_key=rows_key_of(run.identity.slug, outline.engine, rows),
        failure=failure,
        seen=_seen(said),
        prediction=_prediction(run, record),
        confirmed=said.files_confirmed,
        measured_at=now,
        created_at=now,
        **filed_under(run.identity, rig_identity(hardware, resolve(hardware))),
    )


def _prediction(run: StoredRun, record: RunRecord) -> Prediction:
    """Return the run's prediction, marked as not for this rig unless the host is exactly the advised machine."""
    return msgspec.structs.replace(
        run.prediction, own_rig=record.match == "exact", most_tg=record.terms.most_tg, most_pp=record.terms.most_pp
    )


def _version(said: Report) -> str | None:
    """Return the engine's version if it looks like one, so that a host cannot publish free text."""
    return said.engine_version if said.engine_version and _VERSION.fullmatch(said.engine_version) else None


def _seen(said: Report) -> Seen:
    buffers = tuple(one for one in said.buffers if _NAME.fullmatch(one.device))
    devices = tuple(one for one in said.devices if _NAME.fullmatch(one.device))
    return made_from(Seen, said, buffers=buffers, devices=devices, engine_version=_version(said))


def _run(context: Context, run_id: str) -> StoredRun:
    run = runs.read(context.engine, run_id)
    if run is None:
        raise RunNotFound("there is no run with this id", field="id")
    return run


def require_active(host: SignedHost) -> None:
    """Raise HostNotActive for a host that waits for its owner's approval, is paused or revoked."""
    if host.state != "active":
        raise HostNotActive(f"{host.pseudonym}: {STATES.get(host.state, 'it was revoked')}")


def _lease_lost() -> LeaseLost:
    return LeaseLost("the lease has ended: the run went back to the queue, or to another host", field="fence")


def _tell(context: Context, run: StoredRun, rows: tuple[MeasuredRow, ...] = ()) -> None:
    publish(context.redis, ValidationEvent(run.validation_id, run.id, run.state, run.progress, list(rows)))
