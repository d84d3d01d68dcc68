"""What a validation would run: one run per measurement, its prediction, and the hosts that could take it, how similar
each is to the advised machine, and what the others lack.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from service import logs
from service.engine.advice import AdviceBody
from service.engine.catalogue import card_order, cards_named, resolve
from service.engine.commands.render import launch
from service.engine.config import CPU
from service.engine.errors import AdvisorError, InvalidFlags
from service.engine.hardware import Hardware, Rig
from service.engine.measured.chosen import Chosen, Measurement
from service.engine.measured.identity import ModelIdentity, match_kind, model_identity
from service.engine.measured.roofline import Prediction, bounding_rig, most_pp, most_tg
from service.engine.model import Model
from service.engine.run_flags import to_flags
from service.engine.units import GIB, MIB
from service.engine.versions import versions
from service.flows.advice.reading import models_in_full
from service.flows.advice.repos import list_repo
from service.flows.context import Context
from service.flows.measuring import tuning
from service.flows.results.cells import cell_of, files_of
from service.hub.references import parse_reference
from service.store.advice.advices import StoredAdvice
from service.store.measuring.hosts import StoredHost
from service.store.measuring.runs import Eligible, StoredRun, Terms
from service.store.measuring.validations import StoredValidation
from service.store.queries import new_id
from service.store.results import calibrations
from service.store.results.results import StoredResult
from service.structs import made_from
from service.wire.measuring.agent import RunFile, RunOutline
from service.wire.measuring.hosts import ModelFile, Probe, are_named
from service.wire.measuring.runs import HostMatch, ValidationRequest

STATES = {"waiting": "it is waiting for its owner's approval", "paused": "its owner has paused it"}
_MOST_NAMED = 6


class NeededCard(msgspec.Struct, frozen=True):
    """A GPU that a config needs: its catalogue name, and at most how many MiB of it."""

    name: str
    mib: float


class Wanted(msgspec.Struct, frozen=True):
    """A config to measure: its run and what it needs. `cards` is in the order of CUDA0, CUDA1 and so on.

    `backend`: cuda | rocm | vulkan | …, None for a config that uses no card.
    """

    outline: RunOutline
    cards: tuple[NeededCard, ...]
    ram_mib: float
    backend: str | None


class Asker(msgspec.Struct, frozen=True):
    """The account that a config would be measured for; without an account, `name` is empty and no host lists it."""

    account_id: str | None
    name: str


class Suited(msgspec.Struct, frozen=True):
    """How a host could run a config; if something is `missing` (sentences), `eligible` is None."""

    eligible: Eligible | None
    missing: tuple[str, ...] = ()


def match_of(host: StoredHost, fit: Suited) -> HostMatch:
    """Return the asker's view of how a host suits a config."""
    match = fit.eligible.match if fit.eligible else None
    return HostMatch(host=host.id, pseudonym=host.pseudonym, match=match, missing=list(fit.missing))


def suited(host: StoredHost, wanted: Wanted, machine: Hardware, asker: Asker) -> Suited:
    """Return how a host could run a config that was advised for `machine`, or everything that it lacks."""
    if host.probe is None:
        return Suited(None, ("it has not reported its hardware yet",))
    try:
        rig, advised = resolve(host.probe.hardware), resolve(machine)
    except AdvisorError as error:
        return Suited(None, (f"its hardware cannot be read here: {error.detail}",))
    gpus, short = _cards(host.probe.hardware, rig, wanted)
    builds, unknown = _builds(host.probe, wanted)
    missing = (
        *_not_now(host),
        *_not_for(host, asker),
        *short,
        *_ram(rig, wanted),
        *unknown,
        *_files(host.probe, wanted.outline),
    )
    if missing:
        return Suited(None, missing)
    match = match_kind(machine, advised, host.probe.hardware, rig)
    return Suited(Eligible(host_id=host.id, match=match, gpus=gpus, engine_builds=builds))


def _not_now(host: StoredHost) -> Iterator[str]:
    if host.state != "active":
        yield STATES.get(host.state, "it was revoked")
    elif host.probe is not None and host.probe.paused:
        yield STATES["paused"]


def _not_for(host: StoredHost, asker: Asker) -> Iterator[str]:
    """The agent checks the same against its own policy, since it does not rely on the service."""
    own = host.account_id == asker.account_id
    if not own and host.probe is not None and not are_named(host.probe.accounts, asker.name):
        yield "its owner measures for named accounts only"


def _cards(hardware: Hardware, rig: Rig, wanted: Wanted) -> tuple[tuple[int, ...], list[str]]:
    """Return, for each wanted card, the host's first unused card of that name, and what is missing or too small."""
    order, taken, short = card_order(hardware), list[int](), list[str]()
    for wanted_card, chosen in zip(wanted.cards, cards_named(rig, [c.name for c in wanted.cards]), strict=True):
        if chosen is None:
            short.append(f"it has no {wanted_card.name} more" if taken else f"it has no {wanted_card.name}")
            continue
        card = rig.cards[chosen]
        taken.append(order[chosen])
        by = math.ceil(wanted_card.mib - card.free / MIB)
        if by > 0:
            short.append(f"{by:,} MiB too little free on its {card.name}")
    return tuple(taken), list(dict.fromkeys(short))


def _ram(rig: Rig, wanted: Wanted) -> Iterator[str]:
    by = math.ceil(wanted.ram_mib - rig.ram_bytes / MIB)
    if by > 0:
        yield f"{by:,} MiB too little RAM"


def _builds(probe: Probe, wanted: Wanted) -> tuple[tuple[str, ...], list[str]]:
    mine = [build for build in probe.engines if build.engine == wanted.outline.engine]
    if not mine:
        return (), [f"it has no {wanted.outline.engine}"]
    backend = wanted.backend
    fit = [b for b in mine if backend is None or backend in (name.lower() for name in b.backends)]
    if not fit:
        return (), [f"it has no {wanted.outline.engine} built for {backend}"]
    outline = wanted.outline
    needed = launch(outline.engine, "bench", to_flags(outline.flags), model_path="model.gguf").options
    good = [build.sha256 for build in fit if not needed - set(build.options)]
    if good:
        return tuple(good), []
    unknown = min((sorted(needed - set(build.options)) for build in fit), key=len)
    return (), [f"its {wanted.outline.engine} does not know {', '.join(unknown[:5])}: a newer build would"]


def _files(probe: Probe, wanted: RunOutline) -> Iterator[str]:
    absent = [file for file in wanted.files if not any(_is(model, file) for model in probe.models)]
    if not absent:
        return
    gib = sum(file.size for file in absent) / GIB
    owner = wanted.repo.partition("/")[0]
    if wanted.repo not in probe.downloads.repos and f"{owner}/*" not in probe.downloads.repos:
        names = {file.name for file in absent}
        other = next((model.name for model in probe.models if model.sha256 and model.name in names), None)
        if other is not None:
            yield f"its {other} has other content than that of {wanted.repo}, which it may not download"
        else:
            yield f"it lacks {len(absent)} of {len(wanted.files)} files, and may not download {wanted.repo}"
    elif gib > probe.downloads.max_gib:
        yield f"it may download {probe.downloads.max_gib:,.0f} GiB, the model is {gib:,.1f} GiB"


def _is(model: ModelFile, file: RunFile) -> bool:
    """Whether a file is the one needed: by hash, or by name and size until the host has hashed it.

    The host checks the hash before it opens the file.
    """
    if model.sha256 is not None:
        return model.sha256 == file.sha256
    return (model.name, model.size) == (file.name, file.size)


class PlannedRun(NamedTuple):
    """A measurement planned as a run: its outline, its cell, and how each host suits it."""

    measurement: Measurement
    outline: RunOutline
    cell: str
    fits: list[tuple[StoredHost, Suited]]

    @property
    def eligible(self) -> list[Eligible]:
        """Return the hosts that may take it."""
        return [fit.eligible for _, fit in self.fits if fit.eligible]


def plan_runs(
    context: Context, row: StoredAdvice, body: AdviceBody, picked: Chosen, hosts: Sequence[StoredHost],
    asked: ValidationRequest, asker: Asker,
) -> tuple[list[PlannedRun], list[str]]:  # fmt: skip
    """Return a run for each measurement picked, with how each of `hosts` suits it, and reasons for those refused."""
    listing = list_repo(context, parse_reference(row.repo, row.revision))
    planned, refused = list[PlannedRun](), list(picked.refused)
    for one in picked.measurements:
        try:
            outline = made_from(
                RunOutline,
                one,
                repo=row.repo,
                revision=row.revision or "",
                files=files_of(listing, one.variant),
                seconds=asked.minutes * 60,
            )
        except InvalidFlags as error:
            refused.append(f"{one.name}: {error.detail}")
            continue
        fits = [(host, suited(host, _wanted(outline, one), body.hardware, asker)) for host in hosts]
        planned.append(PlannedRun(one, outline, cell_of(one, outline.files), fits))
    unable: dict[str, list[str]] = {}
    for run in planned:
        if not run.eligible:
            unable.setdefault(who_could(run, context.clock()), []).append(run.measurement.name)
    refused += [f"{', '.join(names)}: {why}" for why, names in unable.items()]
    return planned, refused


def _wanted(outline: RunOutline, one: Measurement) -> Wanted:
    cards = [device for device in one.devices if device.device != CPU]
    return Wanted(
        outline=outline,
        cards=tuple(NeededCard(card.gpu or "", card.total_high_mib) for card in cards),
        ram_mib=next((device.total_high_mib for device in one.devices if device.device == CPU), 0.0),
        backend=cards[0].device.rstrip("0123456789").lower() if cards else None,
    )


def who_could(one: PlannedRun, at: datetime) -> str:
    """Return, as a sentence, which hosts could measure a config, or what each lacks."""
    able = [f"{host.pseudonym}{_silent(host, at)}" for host, fit in one.fits if fit.eligible]
    if able:
        return f"{', '.join(able[:_MOST_NAMED])} could measure it"
    if not one.fits:
        return "there is no host that you may use: enrol one (/docs/hosts), or measure on your own machine"
    lacks = [f"{host.pseudonym}: {'; '.join(fit.missing[:3])}" for host, fit in one.fits[:_MOST_NAMED]]
    return "no host could measure it. " + ". ".join(lacks)


def _silent(host: StoredHost, at: datetime) -> str:
    """Return since when a host is silent, after a day; it may come back while a run waits for it."""
    old = host.seen_at is not None and at - host.seen_at > timedelta(days=1)
    return f" (last seen {host.seen_at:%Y-%m-%d})" if old else ""


def models_of(context: Context, row: StoredAdvice, planned: Sequence[PlannedRun]) -> dict[str, Model]:
    """Return the models of the planned variants, by variant name."""
    listing = list_repo(context, parse_reference(row.repo, row.revision))
    return models_in_full(context.hub, listing, {one.measurement.variant for one in planned})


def predicted(
    row: StoredAdvice, one: PlannedRun, models: dict[str, Model], machine: Hardware
) -> tuple[Prediction, ModelIdentity]:
    """Return the advice's prediction, with the speeds that its machine cannot exceed, and the identity of the model."""
    model = models.get(one.measurement.variant)
    rig = bounding_rig(machine)
    prediction = Prediction(
        devices=one.measurement.devices,
        speed=one.measurement.speed,
        most_tg=most_tg(model, rig) if model else 0.0,
        most_pp=most_pp(model, rig) if model else 0.0,
        calibration=row.body.versions.calibration if row.body else versions().calibration,
    )
    return prediction, model_identity(row.repo, model)


def on_terms(one: PlannedRun, models: dict[str, Model]) -> list[Eligible]:
    """Return the hosts that may take a run, each with its machine as it is now and the speeds it cannot exceed."""
    model = models.get(one.measurement.variant)
    return [
        msgspec.structs.replace(
            fit.eligible, hardware_key=host.hardware_key, terms=_terms(host.probe, fit.eligible.gpus, model)
        )
        for host, fit in one.fits
        if fit.eligible and host.probe
    ]


def _terms(probe: Probe, gpus: Sequence[int], model: Model | None) -> Terms:
    """Return the terms of a run: its bounds come from the run's own cards and the CPU, as the engine sees no others."""
    each = [
        msgspec.structs.replace(gpu, count=1, device_order=None)
        for gpu in probe.hardware.gpus
        for _ in range(gpu.count)
    ]
    rig = bounding_rig(msgspec.structs.replace(probe.hardware, gpus=[each[i] for i in gpus]))
    return Terms(
        hardware=msgspec.structs.replace(probe.hardware, notes=None),
        most_tg=most_tg(model, rig) if model else 0.0,
        most_pp=most_pp(model, rig) if model else 0.0,
        max_minutes=probe.max_minutes,
    )


def tuning_runs(
    context: Context, row: StoredAdvice, body: AdviceBody, new: StoredValidation, start: PlannedRun
) -> list[tuple[StoredRun, list[Eligible]]]:
    """Return a tuning's first trials around a config, all on the one host most like the advised machine."""
    models = models_of(context, row, [start])
    near = sorted(on_terms(start, models), key=lambda host: host.match != "exact")[:1]
    constraints, budget = row.request.constraints, new.request.minutes * 60.0
    model, known = models[start.measurement.variant], calibrations.in_force(context.engine)
    first = tuning.steps_of(start.measurement, body, model, constraints, budget, known)
    whole, identity = predicted(row, start, models, body.hardware)
    found = []
    for number, (one, changed, seconds) in enumerate(first):
        outline = msgspec.structs.replace(start.outline, flags=one.flags, n_prompt=one.n_prompt, seconds=seconds)
        own = start._replace(measurement=one, outline=outline, cell=cell_of(one, outline.files))
        # The prediction is for the start; a changed step has none, so nothing is shown next to its figures.
        prediction = whole if number == 0 else msgspec.structs.replace(whole, devices=[], speed=[])
        run = new_run(new, number, own, None, prediction, identity)
        run_id = tuning.run_id(new.id, 0, number)
        found.append((msgspec.structs.replace(run, id=run_id, changed=changed[:500]), near))
    return found


def new_run(
    validation: StoredValidation,
    number: int,
    one: PlannedRun,
    before: StoredResult | None,
    prediction: Prediction,
    identity: ModelIdentity,
) -> StoredRun:
    """Return a queued run, or, if `before` has the same measurement, a run that has ended with that result."""
    run = StoredRun(
        id=new_id(),
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
        request_id=logs.request_id(),
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
