"""The interval of an estimate: a factor within which 80 % of its class lie, wider for what is unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from service.engine.calibration import Comparison, Part, shipped
from service.engine.config import Device
from service.engine.hardware import Card, Rig
from service.engine.speed.machine import cpu_class
from service.engine.speed.work import Seconds, Work

Phase: TypeAlias = Literal["tg", "pp"]
FORMULA = "formula"
# Standard deviations by which two configs have to differ for the faster one to be named. With a normal distribution
# that would be right three times of four from 0.67 on. But few pairs are as far off as the fifth that sets the
# interval: published pairs between 0.3 and 0.67 were as often right.
CALLED = 0.3
_DEEP = 8_192  # tokens, from which on the published runs of quantised caches scatter
_FAST_RAM = 300  # GB/s of a socket: few faster ones were published, and they use 50 to 80 % of it
_MATTERS = 0.2  # of the time: a smaller part does not decide the class
# Drivers decide: an A770, a B580 and an Arc 140V were 2.5 to 3 times as slow with Mesa 24.2 as under Windows (llama.cpp
# pull request 14001), a Pro VII under Windows is a quarter as fast as others with RADV (pull request 21024).
_INTEL_VULKAN = frozenset(f"vulkan.{name}" for name in ("alchemist", "battlemage", "xe2", "xe-lpg"))
_GCN_VULKAN = ("vulkan.gcn", "vulkan.vega")
_IN_RAM: tuple[Part, ...] = ("experts in RAM", "other weights in RAM")
_ON_GPU: tuple[Part, ...] = ("weights on GPU", "attention")


class Trust(msgspec.Struct, frozen=True):
    """`factor`: 80 % of the cases lie between expected / factor and expected * factor; `basis` as in Estimate."""

    factor: float
    basis: str


def trust(
    work: Work, rig: Rig, devices: Sequence[Device], parts: Seconds, phase: Phase, n_kv: int,
    intervals: Mapping[str, float] | None = None,
) -> Trust:  # fmt: skip
    """Return how far to trust a time made of `parts`. `intervals`: others to try instead of the calibration's."""
    known = rig.calibration.intervals if intervals is None else intervals
    measured = _measured(work, rig, devices, parts, known, phase)
    kind = class_of(work, rig, devices, parts, phase)
    own = known.get(kind) or known.get(_pooled(kind)) or known["not_measured"]
    factors = [own, *least_factors(work, rig, devices, parts, phase, n_kv, known)]
    if not measured:
        factors.append(known["not_measured"])
    logs = [math.log(max(factors)), *unknown(rig, devices, parts, known)]
    factor = math.exp(math.sqrt(sum(x * x for x in logs)))
    return Trust(factor, rig.calibration.basis if measured else FORMULA)


def share_of(parts: Mapping[Part, float], names: Sequence[Part]) -> float:
    """Return the share of the whole time that the named parts take."""
    whole = sum(parts.values())
    return sum(parts[name] for name in names) / whole if whole else 0.0


def reads_ram(parts: Mapping[Part, float]) -> bool:
    """Return whether the CPU's work on weights in RAM takes enough of the time to decide how far off it may be."""
    return share_of(parts, _IN_RAM) > _MATTERS


def comparison_of(parts: Mapping[Part, float], phase: Phase) -> str:
    """Return the kind of comparison that a config belongs to: `tg.cpu`, `tg.hybrid`, `tg.gpu`, and `pp.` likewise."""
    if parts["weights on GPU"] + parts["copies over PCIe"] <= 0:
        return f"{phase}.cpu"
    return f"{phase}.{'hybrid' if share_of(parts, (*_IN_RAM, 'copies over PCIe')) > _MATTERS else 'gpu'}"


def spread_of_ratio(
    ours: Mapping[Part, float], theirs: Mapping[Part, float], known: Comparison, same_engine: bool
) -> float:
    """Return one standard deviation of the logarithm of the ratio of two configs' times on one rig.

    Where the rig is better or worse than expected, it is so for both: the error of a part counts by the difference
    between its shares of the two times.
    """
    whole, other = sum(ours.values()), sum(theirs.values())
    variance = 2 * known.own**2 + (0.0 if same_engine else known.engines**2)
    for part, spread in known.parts.items():
        variance += ((ours[part] / whole - theirs[part] / other) * spread) ** 2
    return math.sqrt(variance)


def class_of(work: Work, rig: Rig, devices: Sequence[Device], parts: Seconds, phase: Phase) -> str:
    """Return the class of the prediction, whose published runs say how far off it may be.

    It names where the time goes, then the back end of the cards: `tg.hybrid` with CUDA, `tg.hybrid.rocm` with another.
    """
    place = _place(work, rig, parts, phase)
    backend = rig.cards[devices[0].gpu].backend if devices else "cuda"
    on_cards = place in ("hybrid", "all_on_gpu", "cards")
    return f"{phase}.{place}.{backend}" if on_cards and backend != "cuda" else f"{phase}.{place}"


def _pooled(kind: str) -> str:
    """Return the class of all runs of a back end, for a class of which too few were published."""
    phase, _, backend = kind.rpartition(".")
    return f"{phase.partition('.')[0]}.any.{backend}"


def _place(work: Work, rig: Rig, parts: Seconds, phase: Phase) -> str:
    if reads_ram(parts) and rig.sockets > 1:
        return "two_sockets"
    if phase == "tg" and reads_ram(parts) and rig.cpu_bandwidth_gbs > _FAST_RAM:
        return "fast_ram"
    if not work.n_devices or share_of(parts, ("weights on GPU", "copies over PCIe", "launch overhead")) < 0.02:
        return "cpu_only"
    if work.host_layers:
        return "hybrid"
    return "cards" if work.n_devices > 1 else "all_on_gpu"


def least_factors(
    work: Work, rig: Rig, devices: Sequence[Device], parts: Seconds, phase: Phase, n_kv: int,
    known: Mapping[str, float],
) -> list[float]:  # fmt: skip
    """Return lower limits of the factor for kinds of runs of which few were published, or that a driver decides."""
    factors = []
    if reads_ram(parts) and rig.windows:
        factors.append(known[f"{phase}.windows_cpu"])
    if phase == "tg" and n_kv >= _DEEP and work.mla is None and work.cache_k < 1.5:
        factors.append(known["tg.deep_quantised_cache"])
    few = work.delta_bytes and (phase == "tg" or "fused_delta_net" in work.lacks)
    if few and share_of(parts, ("attention",)) > _MATTERS:
        factors.append(_least(f"{phase}.states_in_ram", known))
    kinds = [generation_of(rig.cards[d.gpu]) for d in devices]
    if any(kind in _INTEL_VULKAN for kind in kinds):
        factors.append(_least(f"{phase}.intel_vulkan", known))
    if rig.windows and any(kind.startswith(_GCN_VULKAN) for kind in kinds):
        factors.append(_least(f"{phase}.gcn_windows", known))
    return factors


def _least(name: str, known: Mapping[str, float]) -> float:
    return known.get(name) or shipped().intervals[name]  # a fit of an older release lacks it


def _measured(
    work: Work, rig: Rig, devices: Sequence[Device], parts: Seconds, known: Mapping[str, float], phase: Phase
) -> bool:
    """Whether runs like this one were published: with cards of these generations and back ends, and this kind of
    CPU."""
    if work.split_mode not in ("layer", "none") and len(devices) > 1:
        return False
    names, cards = rig.calibration.parameters, [rig.cards[d.gpu] for d in devices]
    if {c.backend for c in cards} == {"vulkan"} and len({c.name.partition(" ")[0] for c in cards}) > 1:
        return False  # nobody published cards of several makers together
    for device in devices:
        card = rig.cards[device.gpu]
        generation, of_cuda = generation_of(card), card.backend == "cuda"
        own = names.get(f"gpu_matmul.{generation.partition('.')[2]}" if of_cuda else f"gpu_read.{generation}")
        if own is None or own.spread >= own.prior_spread or generation in rig.calibration.measured_once:
            return False
        if not of_cuda and f"{phase}.any.{card.backend}" not in known:
            return False
    return cpu_class(rig) not in ("other", "zen1") or not reads_ram(parts)


def generation_of(card: Card) -> str:
    """Return a card's back end and generation as parameters are named: `cuda.hopper`."""
    return f"{card.backend}.{card.generation.lower().replace(' ', '_')}"


def assumed_shares(rig: Rig, devices: Sequence[Device], parts: Seconds) -> dict[str, float]:
    """Return the share of the time that depends on each assumed fact, by the name of its uncertainty."""
    assumed = {a.field.rpartition("]")[2].removeprefix("hardware") for a in rig.assumed}
    in_ram, found = share_of(parts, _IN_RAM), dict[str, float]()
    if ".pcie" in assumed:
        found["unknown.link"] = share_of(parts, ("copies over PCIe",))
    if ".cpu" in assumed:
        found["unknown.cpu"] = in_ram
    if ".cpu.ghz" in assumed:
        found["unknown.clock"] = in_ram
    if assumed & {".ram.mts", ".ram.channels"}:
        found["unknown.ram"] = in_ram
    if not all(rig.cards[d.gpu].bandwidth_known for d in devices):
        found["unknown.gpu"] = share_of(parts, _ON_GPU)
    return found


def unknown(rig: Rig, devices: Sequence[Device], parts: Seconds, known: Mapping[str, float]) -> list[float]:
    """Return logarithms to add in quadrature: the uncertainty of each assumed fact, times its share of the time."""
    return [share * math.log(known[name]) for name, share in assumed_shares(rig, devices, parts).items()]
