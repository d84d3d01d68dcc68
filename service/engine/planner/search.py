"""The search: every candidate of every engine and variant is made to fit, timed, and kept or refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from service.engine.catalogue import engine_devices
from service.engine.config import Device, Engine, Flags, Override
from service.engine.goal import Constraints, Goal
from service.engine.hardware import Rig
from service.engine.memory import predict_memory
from service.engine.model import Model
from service.engine.planner.candidates import Candidate, candidates, with_split
from service.engine.planner.fit import Fitted, Limits, Problem, Shortfall, check, fill, most_layers
from service.engine.planner.rank import Contender
from service.engine.planner.support import unsupported
from service.engine.speed import goal_seconds, predict_speed
from service.engine.units import GIB, MIB

_SPLIT_ATTEMPTS = 6
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


def search(engine: Engine, variant: int, model: Model, rig: Rig, goal: Goal, constraints: Constraints) -> Outcome:
    """Return what one engine can do with one variant on this rig."""
    reason = unsupported(engine, model, rig)
    if reason is not None:
        return Outcome([], None, reason, 0)
    contenders: list[Contender] = []
    shortfalls: list[Shortfall] = []
    considered = 0
    for candidate in _worth_trying(engine, model, rig, goal, constraints, contenders):
        considered += 1
        found = _fit(engine, model, rig, constraints, candidate)
        if isinstance(found, Shortfall):
            shortfalls.append(found)
        else:
            contenders.append(_contender(engine, variant, model, rig, goal, candidate, found))
    return Outcome(contenders, min(shortfalls, key=lambda s: s.n_bytes, default=None), None, considered)


def _worth_trying(
    engine: Engine, model: Model, rig: Rig, goal: Goal, constraints: Constraints, found: list[Contender]
) -> Iterator[Candidate]:
    """Leave out strategies that move more to RAM than one that already fits."""
    kv_types = constraints.kv_types or _kv_types(engine, model, rig, goal)
    for candidate in candidates(engine, model, rig, goal, kv_types):
        fits = {c.candidate.strategy for c in found}
        if candidate.strategy != "all on GPU" and "all on GPU" in fits:
            continue
        if candidate.strategy == "layers in RAM" and "FFN in RAM" in fits and model.moe_layers:
            continue
        if candidate.strategy == "CPU only" and fits:
            continue
        if candidate.flags.n_ubatch in _slower_micro_batches(candidate, found):
            continue
        yield candidate


def _slower_micro_batches(candidate: Candidate, found: list[Contender]) -> set[int]:
    """The micro-batches that lost with another cache type on the same cards: they lose with this one too."""
    alike = [
        c
        for c in found
        if c.candidate.strategy == candidate.strategy
        and c.candidate.cards == candidate.cards
        and c.candidate.flags.cache_type_k != candidate.flags.cache_type_k
    ]
    best = min(alike, key=lambda c: c.seconds.expected, default=None)
    return {c.fitted.flags.n_ubatch for c in alike if c is not best}


def _kv_types(engine: Engine, model: Model, rig: Rig, goal: Goal) -> list[str]:
    """f16, and q8_0 where the cache is a large share of VRAM and its blocks divide the heads."""
    vram = sum(card.free for card in rig.cards)
    flags = Flags(n_ctx=goal.context, n_parallel=goal.parallel, n_gpu_layers=0)
    cache = sum(device.kv for device in predict_memory(engine, model, flags, []).devices)
    divides = all(layer.head_dim_k % 32 == 0 and layer.head_dim_v % 32 == 0 for layer in model.layers)
    return ["f16", "q8_0"] if divides and vram and cache > vram * _KV_SHARE_WORTH_QUANTISING else ["f16"]


def _fit(engine: Engine, model: Model, rig: Rig, constraints: Constraints, candidate: Candidate) -> Fitted | Shortfall:
    devices = engine_devices(rig, engine, candidate.cards)
    limits = limits_of(rig, constraints, candidate.cards)
    problem = Problem(engine, model, devices, limits)
    missing = _weights_missing(model, devices, 0 if candidate.strategy == "all on GPU" else limits.host)
    if missing > 0:
        return Shortfall(devices[-1].name if candidate.strategy == "all on GPU" else "RAM", missing)
    if candidate.strategy == "CPU only":
        return check(problem, candidate.flags)
    return _spread(problem, candidate)


def _weights_missing(model: Model, devices: tuple[Device, ...], host: int) -> int:
    """Return the bytes by which the weights exceed the devices and `host` bytes of RAM (embeddings always fit)."""
    embedding = model.by_name.get("token_embd.weight")
    weights = model.n_bytes - (embedding.nbytes if embedding else 0)
    return weights - sum(d.free for d in devices) - host


def _spread(problem: Problem, candidate: Candidate) -> Fitted | Shortfall:
    """Try shares by usable memory; where one card is short, give it less and try again."""
    shares = [float(d.free - r) for d, r in zip(problem.devices, problem.limits.reserve, strict=True)]
    best: Fitted | Shortfall = Shortfall("RAM", problem.model.n_bytes)
    for _ in range(_SPLIT_ATTEMPTS if len(shares) > 1 else 1):
        attempt = with_split(candidate, _rounded(shares))
        found = _place(problem, attempt)
        if isinstance(found, Fitted):
            return found
        if isinstance(best, Shortfall) and found.n_bytes < best.n_bytes:
            best = found
        short = next((i for i, d in enumerate(problem.devices) if d.name == found.device), None)
        if short is None:
            break
        shares[short] = max(shares[short] - max(found.n_bytes * 1.1, shares[short] * 0.02), shares[short] * 0.5)
    return best


def _rounded(shares: Sequence[float]) -> tuple[float, ...]:
    """Shares in tenths of a GiB: short to read, and exact in the engines' 32-bit floats after parsing."""
    return tuple(max(round(share / GIB, 1), 0.1) for share in shares)


def _place(problem: Problem, candidate: Candidate) -> Fitted | Shortfall:
    if candidate.strategy == "all on GPU":
        return check(problem, candidate.flags)
    if candidate.strategy == "FFN in RAM":
        return fill(problem, candidate.flags)
    flags = candidate.flags
    if problem.model.moe_layers:
        flags = msgspec.structs.replace(flags, overrides=(Override("exps", "CPU"),))
    return most_layers(problem, flags)


def _contender(
    engine: Engine, variant: int, model: Model, rig: Rig, goal: Goal, candidate: Candidate, fitted: Fitted
) -> Contender:
    devices: tuple[Device, ...] = engine_devices(rig, engine, candidate.cards)
    placement = fitted.memory.placement
    speed = predict_speed(engine, model, fitted.flags, placement, rig, devices, goal.depth)
    seconds = goal_seconds(engine, model, fitted.flags, placement, rig, devices, goal)
    return Contender(engine, variant, model.bpw, candidate, fitted, speed, seconds)
