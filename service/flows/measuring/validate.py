"""Validations: which configs of an advice are measured, on which hosts, within which quotas."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from service import logs
from service.engine.advice import AdviceBody
from service.engine.errors import InvalidInput
from service.engine.measured.chosen import Chosen, chosen
from service.engine.planner.ranking.current_command import parsed_command
from service.errors import HostNotFound, IdempotencyKeyReused, NoHost, TooManyValidations
from service.flows.accounts import Caller, hashed, viewer_of
from service.flows.advice.advise import stored_advice
from service.flows.context import Context
from service.flows.measuring.run_plans import (
    Asker,
    PlannedRun,
    match_of,
    models_of,
    new_run,
    on_terms,
    plan_runs,
    predicted,
    tuning_runs,
    who_could,
)
from service.flows.measuring.validated import read_validation
from service.logs import Log
from service.queue.progress import wake_hosts
from service.store import accounts
from service.store.advice.advices import StoredAdvice
from service.store.measuring import runs, validations
from service.store.measuring.hosts import StoredHost
from service.store.measuring.runs import Eligible, StoredRun
from service.store.measuring.validations import StoredValidation
from service.store.queries import new_id
from service.store.results import results
from service.store.results.results import StoredResult
from service.wire.measuring.runs import ConfigHosts, Validation, ValidationRequest

log = Log("validations")

AGAIN_AFTER = timedelta(days=30)
_DAY = timedelta(days=1)


class Requested(NamedTuple):
    """A validation; `is_new`: this request made it."""

    validation: Validation
    is_new: bool


def request_validation(
    context: Context, caller: Caller, advice_id: str, asked: ValidationRequest, idempotency_key: str | None = None
) -> Requested:
    """Return a new validation of an advice, its runs committed, or the one already made with the same key.

    Raises AdviceNotFound, InvalidInput, HostNotFound, NoHost, TooManyValidations, IdempotencyKeyReused.
    """
    caller.require("validate")
    key = hashed(idempotency_key) if idempotency_key else None
    known = _repeated(context, caller, advice_id, asked, key)
    if known is not None:
        return Requested(read_validation(context, known.id, caller), False)
    row, body = _ready(context, advice_id)
    picked = _chosen(row, body, asked)
    hosts = _hosts(context, caller.account_id, asked.hosts)
    planned, refused = plan_runs(context, row, body, picked, hosts, asked, _asker(context, caller))
    able = [one for one in planned if one.eligible]
    if not able:
        raise NoHost(". ".join(one.rstrip(".") for one in refused)[:2000] or "there is nothing to measure")
    before = {} if asked.mode == "tune" else _measured_before(context, caller, planned)
    shares = _uses_share(context, caller, [one for one in able if one.cell not in before])
    new = StoredValidation(
        id=new_id(),
        advice_id=advice_id,
        account_id=caller.account_id,
        mode=asked.mode,
        request=asked,
        refused=refused,
        idempotency_key=key,
        created_at=context.clock(),
    )
    if asked.mode == "tune":
        its_runs = tuning_runs(context, row, body, new, able[0])
    else:
        models = models_of(context, row, [one for one in able if one.cell not in before])
        its_runs = [
            (
                new_run(new, number, one, before.get(one.cell), *predicted(row, one, models, body.hardware)),
                on_terms(one, models),
            )
            for number, one in enumerate(able)
        ]
    if not _added(context, new, its_runs, shares):
        return request_validation(context, caller, advice_id, asked, idempotency_key)
    logs.note(validation_id=new.id, advice_id=advice_id)
    log.info("validation.created", n=len(its_runs))
    wake_hosts(context.redis)
    return Requested(read_validation(context, new.id, caller), True)


def hosts_of_advice(context: Context, caller: Caller | None, advice_id: str) -> list[ConfigHosts]:
    """Return, for each config that a validation would measure, which hosts could and what the others lack.

    Raises AdviceNotFound, or InvalidInput for an advice that is not ready.
    """
    row, body = _ready(context, advice_id)
    everything = ValidationRequest(configs=[config.id for config in body.configs] or None)
    picked = _chosen(row, body, everything)
    hosts = _hosts(context, caller.account_id if caller else None, None)
    planned, _ = plan_runs(context, row, body, picked, hosts, everything, _asker(context, caller))
    return [
        ConfigHosts(
            config=one.measurement.config,
            name=one.measurement.name,
            hosts=[match_of(host, fit) for host, fit in one.fits],
            text=who_could(one, context.clock()),
        )
        for one in planned
    ]


def _asker(context: Context, caller: Caller | None) -> Asker:
    name = accounts.name_of(context.engine, caller.account_id) if caller else None
    return Asker(caller.account_id if caller else None, name or "")


def _added(
    context: Context, new: StoredValidation, its_runs: Sequence[tuple[StoredRun, Sequence[Eligible]]], shares: bool
) -> bool:
    most = context.settings.open_validations
    try:
        return validations.add(context.engine, new, its_runs, most if shares else None)
    except validations.LimitReached as error:
        raise TooManyValidations(f"{most} validations are open on other people's hosts, which is the limit") from error


def _repeated(
    context: Context, caller: Caller, advice_id: str, asked: ValidationRequest, key: str | None
) -> StoredValidation | None:
    known = validations.with_key(context.engine, caller.account_id, key) if key else None
    if known is not None and (known.advice_id, known.request) != (advice_id, asked):
        raise IdempotencyKeyReused("this key was sent with another request", field="Idempotency-Key")
    return known


def _ready(context: Context, advice_id: str) -> tuple[StoredAdvice, AdviceBody]:
    row = stored_advice(context, advice_id)
    if row.body is None or row.revision is None:
        todo = "ask for the advice again" if row.state == "failed" else "try again when it is ready"
        raise InvalidInput(f"the advice is {row.state}: there is nothing to measure; {todo}", field="id")
    if not row.body.configs and row.body.mine is None:
        raise InvalidInput(
            "the advice has no config, because nothing fits: ask for smaller variants or a shorter context", field="id"
        )
    return row, row.body


def _chosen(row: StoredAdvice, body: AdviceBody, asked: ValidationRequest) -> Chosen:
    command = parsed_command(row.request.constraints)
    return chosen(body.configs, body.goal, body.mine, command, asked.configs, asked.baseline)


def _hosts(context: Context, account_id: str | None, asked: Sequence[str] | None) -> list[StoredHost]:
    found = validations.hosts_for(context.engine, account_id)
    if asked is None:
        return found
    known = {host.id: host for host in found}
    for i, host_id in enumerate(asked):
        if host_id not in known:
            raise HostNotFound("there is no host with this id that you may use", field=f"hosts[{i}]")
    return [known[host_id] for host_id in dict.fromkeys(asked)]


def _measured_before(context: Context, caller: Caller, planned: Sequence[PlannedRun]) -> dict[str, StoredResult]:
    """Return, by cell, results of proven hosts on the same rigs from the last thirty days.

    On the caller's own hosts everything is measured again.
    """
    strangers = [one for one in planned if _uses_others(caller, one)]
    since, cells = context.clock() - AGAIN_AFTER, [one.cell for one in strangers]
    found: dict[str, StoredResult] = {}
    for result in results.of_cells(context.engine, cells, since, viewer_of(caller)):
        if any(_is_of(one, result) for one in strangers if one.cell == result.cell):
            found.setdefault(result.cell or "", result)
    return found


def _is_of(one: PlannedRun, result: StoredResult) -> bool:
    """Whether a result answers a planned run: a speed on the rig of one of its hosts, or a failure of that host."""
    hosts = [host for host, fit in one.fits if fit.eligible]
    if result.failure is not None:
        return result.host_id in {host.id for host in hosts}
    return result.hardware_key in {host.hardware_key for host in hosts}


def _uses_others(caller: Caller, one: PlannedRun) -> bool:
    return any(fit.eligible and host.account_id != caller.account_id for host, fit in one.fits)


def _uses_share(context: Context, caller: Caller, planned: Sequence[PlannedRun]) -> bool:
    """Whether any run needs other people's hosts, which are rationed; one's own are not.

    Raises TooManyValidations when the day's minutes are used up.
    """
    if not any(_uses_others(caller, one) for one in planned):
        return False
    minutes = context.settings.gpu_minutes_per_day
    used = runs.gpu_seconds(context.engine, caller.account_id, context.clock() - _DAY) / 60
    if used >= minutes:
        raise TooManyValidations(
            f"{used:,.0f} GPU-minutes on other people's hosts were used in 24 hours; the limit is {minutes}",
            field="hosts",
        )
    return True
