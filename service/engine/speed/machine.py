"""What a rig can do: effective rates of its cards, its link and its CPU, calibrated."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from service.engine.config import Device, Flags
from service.engine.hardware import Card, Rig
from service.engine.speed.calibration import Coefficients

_TERA = 1e12
_GIGA = 1e9
_FEW_CORES = 16  # of as many, the rates are stated


class CardRate(msgspec.Struct, frozen=True):
    """One card: bytes/s of its memory and of its link, int8 operations/s; `read` and `matmul` are its generation's."""

    bandwidth: float
    link: float
    operations: float
    read: float
    matmul: float


class CpuRate(msgspec.Struct, frozen=True):
    """The CPU with the threads of one phase. `read`: seconds a byte of weights; `cycles`: of all cores a second."""

    bandwidth: float
    read: float
    read_batch: float
    cycles: float
    cores: int
    dot: float
    matmul: float
    attention: float
    kind: str
    two_sockets: bool
    windows: bool


class Machine(msgspec.Struct, frozen=True):
    """The devices that a config uses, in the engine's order, and the CPU: once for a token, once for a batch."""

    cards: tuple[CardRate, ...]
    token_cpu: CpuRate
    batch_cpu: CpuRate
    windows: bool


def machine_of(rig: Rig, devices: Sequence[Device], flags: Flags, p: Coefficients) -> Machine:
    """Return the rates of `devices` of `rig` and of its CPU with the threads of `flags` (default: physical cores)."""
    threads = flags.threads or rig.physical_cores
    return Machine(
        cards=tuple(_card_rate(rig.cards[d.gpu], p) for d in devices),
        token_cpu=_cpu_rate(rig, threads, p),
        batch_cpu=_cpu_rate(rig, flags.threads_batch or threads, p),
        windows=rig.windows,
    )


def cpu_class(rig: Rig) -> str:
    """Return the class of CPU that calibration knows, `other` for those without published runs.

    ik_llama.cpp's fast AVX-512 path needs VNNI: without it a CPU counts as AVX2 (iqk_config.h, HAVE_FANCY_SIMD).
    """
    generation = rig.cpu_generation.lower().replace(" ", "").replace("_", "").replace("-", "")
    for known in ("zen5", "zen4"):
        if generation.startswith(known):
            return known
    if generation.startswith(("zen2", "zen3")):
        return "zen2"
    if generation.startswith("zen"):
        return "zen1"
    if rig.isa == "vnni":
        return "intel_vnni"
    return "intel_avx2" if rig.isa in ("avx2", "avx512") else "other"


def _card_rate(card: Card, p: Coefficients) -> CardRate:
    generation = card.generation.lower()
    bandwidth = card.bandwidth_gbs * _GIGA
    return CardRate(
        bandwidth=bandwidth,
        link=bandwidth if card.unified or card.pcie_gbs <= 0 else _link(card, p),
        operations=card.int8_tops * _TERA / p.get(f"gpu_compute.{card.backend}", 1.0),
        read=p.get(f"gpu_read.{generation}", p["gpu_read.other"]) * p.get(f"gpu_read.{card.backend}", 1.0),
        matmul=p.get(f"gpu_matmul.{generation}", p["gpu_matmul.other"]),
    )


def _usable_gbs(gbs: float, cores: int, p: Coefficients) -> float:
    """Return the bandwidth that `cores` get: less and less of it above the knee, and no more than they can ask for."""
    usable = gbs / max(1.0, (gbs / p["ram_read.knee"]) ** p["ram_read.exponent"])
    return float(usable * (1 + (usable / (cores * p["ram_read.core"])) ** 4) ** -0.25)


def _link(card: Card, p: Coefficients) -> float:
    """Bytes a second of the link's standard; from a measured rate, what that standard would have to be."""
    return card.pcie_gbs * _GIGA * (p["copy"] if card.copy_measured else 1.0)


def _cpu_rate(rig: Rig, threads: int, p: Coefficients) -> CpuRate:
    kind, sockets2 = cpu_class(rig), rig.sockets > 1
    windows = rig.windows
    cores = max(min(threads, rig.physical_cores), 1)
    gbs = max(rig.cpu_bandwidth_gbs, 1.0)
    multiple = p["ram_read.measured" if rig.bandwidth_measured else "ram_read.catalogue"]
    multiple *= gbs / _usable_gbs(gbs, cores, p)
    if sockets2:
        multiple *= p["ram_read.two_sockets"]
    token = multiple * p[f"ram_read.{kind}"]
    if windows:
        token *= p["windows.cpu"] * (p["windows.two_sockets"] if sockets2 else 1.0)
    return CpuRate(
        bandwidth=gbs * _GIGA,
        read=token / (gbs * _GIGA),
        read_batch=multiple / (gbs * _GIGA),
        cycles=cores * rig.ghz * _GIGA / (cores / _FEW_CORES) ** p["cpu_cores_exponent"],
        cores=cores,
        dot=p[f"cpu_dot.{kind}"],
        matmul=p[f"cpu_matmul.{kind}"],
        attention=p[f"cpu_attention.{kind}"],
        kind=kind,
        two_sockets=sockets2,
        windows=windows,
    )
