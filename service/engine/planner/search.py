"""The search: every candidate of every engine and variant is made to fit, timed, and kept or refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from service.engine.catalogue import engine_devices
from service.engine.commands.tables import cache_types
from service.engine.config import Device, Engine, Flags, Override
from service.engine.estimate import Estimate
from service.engine.goal import Constraints, Goal
from service.engine.hardware import Rig
from service.engine.memory import predict_memory
from service.engine.model import Model
from service.engine.planner.candidates import Candidate, candidates, with_split
from service.engine.planner.filling import Sketch, settle, sketch
from service.engine.planner.fit import Fitted, Limits, Problem, Shortfall, check, most_layers
from service.engine.planner.rank import Contender, reaches
from service.engine.planner.support import unsupported
from service.engine.speed import goal_seconds, predict_speed
from service.engine.units import GIB, MIB

_SPLIT_ATTEMPTS = 6
_ENOUGH = 3  # settled contenders of one engine and variant; an answer shows at most two of them
_KV_SHARE_WORTH_QUANTISING = 0.08  # below this share of VRAM, q8_0 frees less than one layer and costs TG at depth
_RAM_FOR_OTHERS = 2 * GIB  # what an idle Linux server keeps for itself


class Outcome(msgspec.Struct, frozen=True):
    """Everything one engine and variant gave: contenders, the smallest shortfall, why it cannot run, how many tried."""

    contenders: list[Contender]
    shortfall: Shortfall | None
    refusal: str | None
    considered: int


def limits_of(rig: Rig, constraints: Constraints, cards: Sequence[int]) -> Limits:
    """Return the reserve of each card used (512 MiB, 1,024 with a display) and the bytes of RAM allowed."""
    stated = constraints.reserve_mib
    reserve = []
    for card in cards:
        default = 1024 if rig.cards[card].display else 512
        mib = default if stated is None else stated if isinstance(stated, int) else stated[card]
        reserve.append(mib * MIB)
    host = max(rig.ram_bytes - max(_RAM_FOR_OTHERS, rig.ram_bytes // 32), 0)
    if constraints.max_ram_gib is not None:
        host = min(host, int(constraints.max_ram_gib * GIB))
    return Limits(tuple(reserve), host, shared=any(rig.cards[c].unified for c in cards))


class _Draft(NamedTuple):
    """A candidate with its likely speed: already fitted, or a sketch still to be settled."""

    candidate: Candidate
    problem: Problem
    found: Fitted | Sketch
    seconds: Estimate
    too_slow: bool


class _Case(NamedTuple):
    """One engine and variant on one rig, for one goal."""

    engine: Engine
    variant: int
    model: Model
    rig: Rig
    goal: Goal
    constraints: Constraints


def search(engine: Engine, variant: int, model: Model, rig: Rig, goal: Goal, constraints: Constraints) -> Outcome:
    """Return what one engine can do with one variant on this rig."""
    reason = unsupported(engine, model, rig) or _lacks_cache_types(engine, constraints)
    if reason is not None:
        return Outcome([], None, reason, 0)
    case = _Case(engine, variant, model, rig, goal, constraints)
    drafts: list[_Draft] = []
    shortfalls: list[Shortfall] = []
    considered = 0
    for candidate in _worth_trying(case, drafts):
        considered += 1
        drawn = _draft(case, candidate)
        if isinstance(drawn, Shortfall):
            shortfalls.append(drawn)
        else:
            drafts.append(drawn)
    contenders = _settled(case, drafts, shortfalls)
    return Outcome(contenders, min(shortfalls, key=lambda s: s.n_bytes, default=None), None, considered)


def _worth_trying(case: _Case, drafts: list[_Draft]) -> Iterator[Candidate]:
    """Leave out strategies that move more to RAM than one that already fits."""
    stated = _stated_kv_types(case.engine, case.constraints)
    kv_types = stated or _kv_types(case.engine, case.model, case.rig, case.goal)
    for candidate in candidates(case.engine, case.model, case.rig, case.goal, kv_types):
        fits = {draft.candidate.strategy for draft in drafts}
        if candidate.strategy != "all on GPU" and "all on GPU" in fits:
            continue
        if candidate.strategy == "layers in RAM" and "FFN in RAM" in fits and case.model.moe_layers:
            continue
        if candidate.strategy == "CPU only" and fits:
            continue
        if candidate.flags.n_ubatch in _slower_micro_batches(candidate, drafts):
            continue
        yield candidate


def _slower_micro_batches(candidate: Candidate, drafts: list[_Draft]) -> set[int]:
    """The micro-batches that lost with another cache type on the same cards: they lose with this one too."""
    alike = [
        draft
        for draft in drafts
        if draft.candidate.strategy == candidate.strategy
        and draft.candidate.cards == candidate.cards
        and draft.candidate.flags.cache_type_k != candidate.flags.cache_type_k
    ]
    best = min(alike, key=lambda draft: (draft.too_slow, draft.seconds.expected), default=None)
    return {draft.candidate.flags.n_ubatch for draft in alike if draft is not best}


def _settled(case: _Case, drafts: list[_Draft], shortfalls: list[Shortfall]) -> list[Contender]:
    """Settle the fastest drafts, one micro-batch a kind, until enough of them fit."""
    contenders: list[Contender] = []
    kinds: set[tuple[object, ...]] = set()
    for draft in sorted(drafts, key=lambda d: (d.too_slow, d.seconds.expected)):
        kind = (draft.candidate.strategy, draft.candidate.cards, draft.candidate.flags.cache_type_k)
        if len(contenders) == _ENOUGH or kind in kinds:
            continue
        fitted = settle(draft.problem, draft.found) if isinstance(draft.found, Sketch) else draft.found
        if isinstance(fitted, Shortfall):
            shortfalls.append(fitted)
        else:
            kinds.add(kind)
            contenders.append(_contender(case, draft, fitted))
    return contenders


def _stated_kv_types(engine: Engine, constraints: Constraints) -> list[str]:
    """The cache types asked for that both tools of the engine take: a config has a line for each."""
    known = cache_types(engine, "bench")
    return [kind for kind in dict.fromkeys(constraints.kv_types or ()) if kind in known]


def _lacks_cache_types(engine: Engine, constraints: Constraints) -> str | None:
    if not constraints.kv_types or _stated_kv_types(engine, constraints):
        return None
    known = ", ".join(cache_types(engine, "bench"))
    return f"{engine} has no cache type {' or '.join(constraints.kv_types)}: it takes {known}"


def _kv_types(engine: Engine, model: Model, rig: Rig, goal: Goal) -> list[str]:
    """f16, and q8_0 where the cache is a large share of VRAM and its blocks divide the heads."""
    vram = sum(card.free for card in rig.cards)
    flags = Flags(n_ctx=goal.context, n_parallel=goal.parallel, n_gpu_layers=0)
    cache = sum(device.kv for device in predict_memory(engine, model, flags, []).devices)
    divides = all(layer.head_dim_k % 32 == 0 and layer.head_dim_v % 32 == 0 for layer in model.layers)
    return ["f16", "q8_0"] if divides and vram and cache > vram * _KV_SHARE_WORTH_QUANTISING else ["f16"]


def _draft(case: _Case, candidate: Candidate) -> _Draft | Shortfall:
    devices = engine_devices(case.rig, case.engine, candidate.cards)
    limits = limits_of(case.rig, case.constraints, candidate.cards)
    problem = Problem(case.engine, case.model, devices, limits, case.rig, case.goal)
    whole = candidate.strategy == "all on GPU"
    missing = _weights_missing(case.model, devices, 0 if whole else limits.host)
    if missing > 0:
        return Shortfall(devices[-1].name if whole else "RAM", missing)
    found = check(problem, candidate.flags) if candidate.strategy == "CPU only" else _spread(problem, candidate)
    if isinstance(found, Shortfall):
        return found
    placement = found.placement if isinstance(found, Sketch) else found.memory.placement
    given = (case.engine, case.model, found.flags, placement, case.rig, devices)
    speed = predict_speed(*given, case.goal.depth)
    return _Draft(candidate, problem, found, goal_seconds(*given, case.goal), not reaches(speed, case.goal))


def _weights_missing(model: Model, devices: tuple[Device, ...], host: int) -> int:
    """Return the bytes by which the weights exceed the devices and `host` bytes of RAM (embeddings always fit)."""
    embedding = model.by_name.get("token_embd.weight")
    weights = model.n_bytes - (embedding.nbytes if embedding else 0)
    return weights - sum(d.free for d in devices) - host


def _spread(problem: Problem, candidate: Candidate) -> Fitted | Sketch | Shortfall:
    """Try shares by usable memory; where one card is short, give it less and try again."""
    shares = [float(d.free - r) for d, r in zip(problem.devices, problem.limits.reserve, strict=True)]
    least = Shortfall("RAM", problem.model.n_bytes)
    for _ in range(_SPLIT_ATTEMPTS if len(shares) > 1 else 1):
        found = _place(problem, with_split(candidate, _rounded(shares)))
        if not isinstance(found, Shortfall):
            return found
        least = min(least, found, key=lambda shortfall: shortfall.n_bytes)
        short = next((i for i, d in enumerate(problem.devices) if d.name == found.device), None)
        if short is None:
            break
        shares[short] = max(shares[short] - max(found.n_bytes * 1.1, shares[short] * 0.02), shares[short] * 0.5)
    return least


def _rounded(shares: Sequence[float]) -> tuple[float, ...]:
    """Shares in tenths of a GiB: short to read, and exact in the engines' 32-bit floats after parsing."""
    return tuple(max(round(share / GIB, 1), 0.1) for share in shares)


def _place(problem: Problem, candidate: Candidate) -> Fitted | Sketch | Shortfall:
    if candidate.strategy == "all on GPU":
        return check(problem, candidate.flags)
    if candidate.strategy == "FFN in RAM":
        return sketch(problem, candidate.flags)
    flags = candidate.flags
    if problem.model.moe_layers:
        flags = msgspec.structs.replace(flags, overrides=(Override("exps", "CPU"),))
    return most_layers(problem, flags)


def _contender(case: _Case, draft: _Draft, fitted: Fitted) -> Contender:
    given = (case.engine, case.model, fitted.flags, fitted.memory.placement, case.rig, draft.problem.devices)
    speed = predict_speed(*given, case.goal.depth)
    return Contender(
        engine=case.engine,
        variant=case.variant,
        bpw=case.model.bpw,
        candidate=draft.candidate,
        problem=draft.problem,
        fitted=fitted,
        speed=speed,
        seconds=goal_seconds(*given, case.goal),
    )
