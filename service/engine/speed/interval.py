"""How far off an estimate may be: a factor that bounds 80 % of the cases of its class, wider for what is not known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from service.engine.config import Device
from service.engine.hardware import Rig
from service.engine.speed.calibration import calibration
from service.engine.speed.machine import cpu_class
from service.engine.speed.parts import Part, Seconds
from service.engine.speed.work import Work

Phase: TypeAlias = Literal["tg", "pp"]
FORMULA = "formula"
_DEEP = 8_192  # tokens: from here on the published runs of quantised caches scatter
_MATTERS = 0.2  # a part below this share of the time does not decide the class
_IN_RAM: tuple[Part, ...] = ("experts in RAM", "other weights in RAM")
_ON_GPU: tuple[Part, ...] = ("weights on GPU", "attention")


class Trust(msgspec.Struct, frozen=True):
    """`factor`: expected / factor to expected * factor holds 80 % of the cases; `basis` as in Estimate."""

    factor: float
    basis: str


def trust(work: Work, rig: Rig, devices: Sequence[Device], parts: Seconds, phase: Phase, n_kv: int) -> Trust:
    """Return how far to trust a time made of `parts`."""
    measured = _measured(work, rig, devices, parts)
    logs = [math.log(_class_factor(work, rig, parts, phase, n_kv, measured)), *_unknown(rig, devices, parts)]
    factor = math.exp(math.sqrt(sum(x * x for x in logs)))
    return Trust(factor, calibration().basis if measured else FORMULA)


def share_of(parts: Mapping[Part, float], names: Sequence[Part]) -> float:
    """Return the share of the whole time that the named parts take."""
    whole = sum(parts.values())
    return sum(parts[name] for name in names) / whole if whole else 0.0


def _class_factor(work: Work, rig: Rig, parts: Seconds, phase: Phase, n_kv: int, measured: bool) -> float:
    intervals = calibration().intervals
    factors = [intervals[f"{phase}.{_class_of(work, parts)}"]]
    in_ram = share_of(parts, _IN_RAM)
    if in_ram > _MATTERS and rig.sockets > 1:
        factors.append(intervals[f"{phase}.two_sockets"])
    if in_ram > _MATTERS and rig.windows:
        factors.append(intervals[f"{phase}.windows_cpu"])
    if phase == "tg" and n_kv >= _DEEP and work.mla is None and work.cache_k < 1.5:
        factors.append(intervals["tg.deep_quantised_cache"])
    if not measured:
        factors.append(intervals["not_measured"])
    return max(factors)


def _class_of(work: Work, parts: Seconds) -> str:
    if not work.n_devices or share_of(parts, ("weights on GPU", "copies over PCIe", "launch overhead")) < 0.02:
        return "cpu_only"
    return "hybrid" if work.host_layers else "all_on_gpu"


def _measured(work: Work, rig: Rig, devices: Sequence[Device], parts: Seconds) -> bool:
    """Whether runs like this one were published: NVIDIA cards of known generations, layers split whole, x86 CPUs."""
    if work.recurrent or (work.split_mode not in ("layer", "none") and len(devices) > 1):
        return False
    names = calibration().parameters
    for device in devices:
        card = rig.cards[device.gpu]
        if card.backend != "cuda" or f"gpu_matmul.{card.generation.lower()}" not in names:
            return False
    return cpu_class(rig) not in ("other", "zen1") or share_of(parts, _IN_RAM) <= _MATTERS


def _unknown(rig: Rig, devices: Sequence[Device], parts: Seconds) -> list[float]:
    """Logarithms to add in quadrature: what assumed facts may be off by, times the share of the time they rule."""
    unknown = calibration().intervals
    assumed = {a.field.rpartition("]")[2].removeprefix("hardware") for a in rig.assumed}
    in_ram, found = share_of(parts, _IN_RAM), []
    if ".pcie" in assumed:
        found.append(share_of(parts, ("copies over PCIe",)) * math.log(unknown["unknown.link"]))
    if ".cpu" in assumed:
        found.append(in_ram * math.log(unknown["unknown.cpu"]))
    if ".cpu.ghz" in assumed:
        found.append(in_ram * math.log(unknown["unknown.clock"]))
    if assumed & {".ram.mts", ".ram.channels"}:
        found.append(in_ram * math.log(unknown["unknown.ram"]))
    if not all(rig.cards[d.gpu].bandwidth_known for d in devices):
        found.append(share_of(parts, _ON_GPU) * math.log(unknown["unknown.gpu"]))
    return found
