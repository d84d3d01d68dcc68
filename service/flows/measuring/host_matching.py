"""Which hosts can measure a config, how similar each is to the advised machine, and what the others lack."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from service.engine.catalogue import card_order, cards_named, resolve
from service.engine.commands.render import launch
from service.engine.errors import AdvisorError
from service.engine.hardware import Hardware, Rig
from service.engine.measured.identity import match_kind
from service.engine.run_flags import to_flags
from service.engine.units import GIB, MIB
from service.store.measuring.hosts import StoredHost
from service.store.measuring.runs import Eligible
from service.wire.measuring.agent import RunFile, RunOutline
from service.wire.measuring.hosts import ModelFile, Probe, are_named
from service.wire.measuring.runs import HostMatch

STATES = {"waiting": "it is waiting for its owner's approval", "paused": "its owner has paused it"}


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
