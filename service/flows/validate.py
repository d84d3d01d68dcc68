"""Validations: which configs of an advice are measured, on which hosts, within which quotas."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from service.engine.advice import AdviceBody
from service.engine.catalogue import resolve
from service.engine.config import CPU
from service.engine.errors import InvalidFlags, InvalidInput
from service.engine.hardware import Hardware
from service.engine.measured import ModelIdentity, Prediction, model_identity, most_pp, most_tg
from service.engine.measured.chosen import Chosen, Measurement, chosen
from service.engine.model import Model
from service.engine.planner.mine import parsed_command
from service.errors import (
    AdviceNotFound,
    HostNotFound,
    IdempotencyKeyReused,
    NoHost,
    TooManyValidations,
)
from service.flows import tuning
from service.flows.accounts import Caller, hashed
from service.flows.cells import cell_of, files_of
from service.flows.context import Context
from service.flows.host_matching import Card, Suited, Wanted, match_of, suited
from service.flows.reading import read_models
from service.flows.repos import list_repo
from service.flows.requests import parse_reference
from service.flows.validated import read_validation
from service.hub import RepoListing
from service.queue.progress import wake_hosts
from service.store import advices, results, runs, validations
from service.store.advices import StoredAdvice
from service.store.hosts import StoredHost
from service.store.ids import is_id
from service.store.results import StoredResult
from service.store.runs import Eligible, StoredRun
from service.store.validations import StoredValidation
from service.wire.agent import RunOutline
from service.wire.runs import ConfigHosts, Validation, ValidationRequest

AGAIN_AFTER = timedelta(days=30)
_DAY = timedelta(days=1)
_MOST_NAMED = 6


class Requested(NamedTuple):
    """A validation; `is_new`: this request made it."""

    validation: Validation
    is_new: bool


class _Planned(NamedTuple):
    """A measurement as a run: what it is, who could take it, and what was measured of it before."""

    measurement: Measurement
    outline: RunOutline
    cell: str
    fits: list[tuple[StoredHost, Suited]]

    @property
    def eligible(self) -> list[Eligible]:
        return [fit.eligible for _, fit in self.fits if fit.eligible]


def request_validation(
    context: Context, caller: Caller, advice_id: str, asked: ValidationRequest, idempotency_key: str | None = None
) -> Requested:
    """Return a new validation of an advice, its runs committed; or the one that was asked for with the same key.

    Raises AdviceNotFound, InvalidInput, HostNotFound, NoHost, TooManyValidations, IdempotencyKeyReused.
    """
    caller.require("validate")
    key = hashed(idempotency_key) if idempotency_key else None
    known = _repeated(context, caller, advice_id, asked, key)
    if known is not None:
        return Requested(read_validation(context, known.id), False)
    row, body = _ready(context, advice_id)
    picked = _chosen(row, body, asked)
    hosts = _hosts(context, caller.account_id, asked.hosts)
    planned, refused = _planned(context, row, body, picked, hosts, asked)
    _require_hosts(planned, refused)
    before = {} if asked.mode == "tune" else _measured_before(context, caller, planned)
    able = [one for one in planned if one.eligible]
    shares = _uses_share(context, caller, [one for one in able if one.cell not in before])
    new = StoredValidation(
        id=secrets.token_urlsafe(16),
        advice_id=advice_id,
        account_id=caller.account_id,
        mode=asked.mode,
        request=asked,
        refused=refused,
        idempotency_key=key,
        created_at=context.clock(),
    )
    if asked.mode == "tune":
        its_runs = _tuning(context, row, body, new, able[0])
    else:
        models = _models(context, row, [one for one in able if one.cell not in before])
        its_runs = [
            (_run(new, number, one, before.get(one.cell), *_predicted(row, one, models, body.hardware)), one.eligible)
            for number, one in enumerate(able)
        ]
    if not _added(context, new, its_runs, shares):
        return request_validation(context, caller, advice_id, asked, idempotency_key)
    wake_hosts(context.redis)
    return Requested(read_validation(context, new.id), True)


def hosts_of_advice(context: Context, caller: Caller | None, advice_id: str) -> list[ConfigHosts]:
    """Return, for each config that a validation would measure, which hosts could, and what the others lack.

    Raises AdviceNotFound, or InvalidInput for an advice that is not ready.
    """
    row, body = _ready(context, advice_id)
    everything = ValidationRequest(configs=[config.id for config in body.configs] or None)
    picked = _chosen(row, body, everything)
    hosts = _hosts(context, caller.account_id if caller else None, None)
    planned, _ = _planned(context, row, body, picked, hosts, everything)
    return [
        ConfigHosts(
            config=one.measurement.config,
            name=one.measurement.name,
            hosts=[match_of(host, fit) for host, fit in one.fits],
            text=_who(one),
        )
        for one in planned
    ]


def _added(
    context: Context, new: StoredValidation, its_runs: Sequence[tuple[StoredRun, Sequence[Eligible]]], shares: bool
) -> bool:
    most = context.settings.open_validations
    try:
        return validations.add(context.engine, new, its_runs, most if shares else None)
    except validations.TooManyOpen as error:
        raise TooManyValidations(f"{most} validations are open on hosts of others, and no more may be") from error


# --- what is asked for ------------------------------------------------------------------------------------------------


def _repeated(
    context: Context, caller: Caller, advice_id: str, asked: ValidationRequest, key: str | None
) -> StoredValidation | None:
    known = validations.with_key(context.engine, caller.account_id, key) if key else None
    if known is not None and (known.advice_id, known.request) != (advice_id, asked):
        raise IdempotencyKeyReused("this key was sent with another request", field="Idempotency-Key")
    return known


def _ready(context: Context, advice_id: str) -> tuple[StoredAdvice, AdviceBody]:
    row = advices.read(context.engine, advice_id) if is_id(advice_id) else None
    if row is None:
        raise AdviceNotFound("there is no advice with this id; it may have been deleted", field="id")
    if row.body is None or row.revision is None:
        raise InvalidInput(f"the advice is {row.state}: there is nothing to measure yet", field="id")
    if not row.body.configs and row.body.mine is None:
        raise InvalidInput("the advice has no config: nothing fits", field="id")
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


def _planned(
    context: Context, row: StoredAdvice, body: AdviceBody, picked: Chosen, hosts: Sequence[StoredHost],
    asked: ValidationRequest,
) -> tuple[list[_Planned], list[str]]:  # fmt: skip
    listing = list_repo(context, parse_reference(row.repo, row.revision))
    planned, refused = list[_Planned](), list(picked.refused)
    for one in picked.measurements:
        try:
            outline = _outline(row, listing, one, asked.minutes)
        except InvalidFlags as error:
            refused.append(f"{one.name}: {error.detail}")
            continue
        fits = [(host, suited(host, _wanted(outline, one), body.hardware)) for host in hosts]
        planned.append(_Planned(one, outline, cell_of(one, outline.files), fits))
    refused += [f"{one.measurement.name}: {_who(one)}" for one in planned if not one.eligible]
    return planned, refused


def _wanted(outline: RunOutline, one: Measurement) -> Wanted:
    cards = [device for device in one.devices if device.device != CPU]
    return Wanted(
        outline=outline,
        cards=tuple(Card(card.gpu or "", card.total_high_mib) for card in cards),
        ram_mib=next((device.total_high_mib for device in one.devices if device.device == CPU), 0.0),
        backend=cards[0].device.rstrip("0123456789").lower() if cards else None,
    )


def _outline(row: StoredAdvice, listing: RepoListing, one: Measurement, minutes: int) -> RunOutline:
    return RunOutline(
        engine=one.engine,
        repo=row.repo,
        revision=row.revision or "",
        files=files_of(listing, one.variant),
        flags=one.flags,
        depths=one.depths,
        n_prompt=one.n_prompt,
        n_gen=one.n_gen,
        seconds=minutes * 60,
    )


def _who(one: _Planned) -> str:
    """Who could measure a config; where nobody, what is missing."""
    able = [host.pseudonym for host, fit in one.fits if fit.eligible]
    if able:
        return f"{', '.join(able[:_MOST_NAMED])} could measure it"
    if not one.fits:
        return "there is no host that you may use: enrol one (docs/hosts.md), or measure on your own machine"
    lacks = [f"{host.pseudonym}: {'; '.join(fit.missing[:3])}" for host, fit in one.fits[:_MOST_NAMED]]
    return "no host could measure it. " + ". ".join(lacks)


def _require_hosts(planned: Sequence[_Planned], refused: Sequence[str]) -> None:
    if not any(one.eligible for one in planned):
        raise NoHost(" ".join(refused)[:2000] or "there is nothing to measure")


def _measured_before(context: Context, caller: Caller, planned: Sequence[_Planned]) -> dict[str, StoredResult]:
    """What was measured in the last thirty days on the same rigs, by cell. On hosts of one's own, everything is
    measured anew."""
    strangers = [one for one in planned if _uses_others(caller, one)]
    since = context.clock() - AGAIN_AFTER
    found: dict[str, StoredResult] = {}
    for result in results.shown(context.engine, [one.cell for one in strangers], since, account_id=caller.account_id):
        keys = {
            host.hardware_key for one in strangers if one.cell == result.cell for host, fit in one.fits if fit.eligible
        }
        if result.hardware_key in keys:
            found.setdefault(result.cell or "", result)
    return found


def _uses_others(caller: Caller, one: _Planned) -> bool:
    return any(fit.eligible and host.account_id != caller.account_id for host, fit in one.fits)


def _uses_share(context: Context, caller: Caller, planned: Sequence[_Planned]) -> bool:
    """Whether other people's machines are asked for, which are shared; one's own are one's own.

    Raises TooManyValidations where the day's minutes are used.
    """
    if not any(_uses_others(caller, one) for one in planned):
        return False
    minutes = context.settings.gpu_minutes_per_day
    used = runs.gpu_seconds(context.engine, caller.account_id, context.clock() - _DAY) / 60
    if used >= minutes:
        raise TooManyValidations(
            f"{used:,.0f} GPU-minutes of others were used in 24 hours, and {minutes} may be", field="hosts"
        )
    return True


def _models(context: Context, row: StoredAdvice, planned: Sequence[_Planned]) -> dict[str, Model]:
    names = {one.measurement.variant for one in planned}
    listing = list_repo(context, parse_reference(row.repo, row.revision))
    variants = [variant for variant in listing.variants if variant.name in names]
    if not variants:
        return {}
    return {one.name: one.model for one in read_models(context.hub, listing, variants, lambda step: None).variants}


def _predicted(
    row: StoredAdvice, one: _Planned, models: dict[str, Model], machine: Hardware
) -> tuple[Prediction, ModelIdentity]:
    """What the advice says, and what none of the hosts can exceed; and under what a result of it is filed."""
    model = models.get(one.measurement.variant)
    rigs = [resolve(host.probe.hardware) for host, fit in one.fits if fit.eligible and host.probe] or [resolve(machine)]
    prediction = Prediction(
        devices=one.measurement.devices,
        speed=one.measurement.speed,
        most_tg=max(most_tg(model, rig) for rig in rigs) if model else 0.0,
        most_pp=max(most_pp(model, rig) for rig in rigs) if model else 0.0,
    )
    return prediction, model_identity(row.repo, model)


def _tuning(
    context: Context, row: StoredAdvice, body: AdviceBody, new: StoredValidation, start: _Planned
) -> list[tuple[StoredRun, list[Eligible]]]:
    """The first trials around a config, on the one host that is nearest to the machine of the advice."""
    near = sorted(start.eligible, key=lambda host: host.match != "exact")[:1]
    models = _models(context, row, [start])
    constraints, budget = row.request.constraints, new.request.minutes * 60.0
    first = tuning.steps_of(start.measurement, body, models[start.measurement.variant], constraints, budget)
    predicted, identity = _predicted(row, start, models, body.hardware)
    found = []
    for number, (one, changed, seconds) in enumerate(first):
        outline = msgspec.structs.replace(start.outline, flags=one.flags, n_prompt=one.n_prompt, seconds=seconds)
        own = start._replace(measurement=one, outline=outline, cell=cell_of(one, outline.files))
        # Memory and speed of a step are not those of the start, and are not predicted: nothing stands beside them.
        prediction = predicted if number == 0 else msgspec.structs.replace(predicted, devices=[], speed=[])
        run = _run(new, number, own, None, prediction, identity)
        run_id = tuning.run_id(new.id, 0, number)
        found.append((msgspec.structs.replace(run, id=run_id, changed=changed[:500]), near))
    return found


def _run(
    validation: StoredValidation,
    number: int,
    one: _Planned,
    before: StoredResult | None,
    prediction: Prediction,
    identity: ModelIdentity,
) -> StoredRun:
    run = StoredRun(
        id=secrets.token_urlsafe(16),
        validation_id=validation.id,
        account_id=validation.account_id,
        kind=one.measurement.kind,
        config_id=one.measurement.config,
        position=number,
        variant=one.measurement.variant,
        cell=one.cell,
        outline=one.outline,
        prediction=prediction,
        identity=identity,
        dropped=list(one.measurement.dropped),
        created_at=validation.created_at,
    )
    if before is None:
        return run
    return msgspec.structs.replace(
        run,
        state="succeeded" if before.failure is None else "failed",
        host_id=before.host_id,
        rows=before.rows,
        failure=before.failure,
        result_id=before.id,
        previous=True,
        ended_at=validation.created_at,
    )
