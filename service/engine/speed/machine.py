"""What a rig can do: effective rates of its cards, its link and its CPU, calibrated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import msgspec

from service.engine.calibration import Coefficients
from service.engine.config import Device, Flags
from service.engine.hardware import Card, Rig

CUDA_KERNELS = ("cuda", "rocm")  # back ends built from one source
_TERA = 1e12
_GIGA = 1e9
_FAMILIES = {"zen4": "zen4", "zen5": "zen5", "intel_vnni": "zen4", "zen2": "avx2", "zen1": "avx2", "intel_avx2": "avx2"}
_FEW_CORES = 16  # the number of cores for which calibration states the rates of a core
# Compute capability from which CUDA cards multiply four int8 pairs in one instruction. Before, batches are multiplied
# in floats, and tokens pair by pair (llama.cpp ggml-cuda, mmq.cu and common.cuh; ik_llama.cpp the same).
_DP4A = 6.1
_FAST_HALF = 6.0  # the one before that whose FP16 peak is twice its FP32 peak
_GA100 = 8.0  # A100 and A30: made in 7 nm, all other Ampere in 8 nm (NVIDIA's whitepapers on GA100 and GA102)
# Intel's generations whose cores all run two threads; efficiency cores run one.
_TWO_A_CORE = frozenset((
    *("haswell", "broadwell", "skylake", "cascade lake", "cooper lake", "ice lake", "rocket lake"),
    *("sapphire rapids", "emerald rapids", "granite rapids"),
))  # fmt: skip

# Of generations with efficiency cores alone: how much of AVX2's width they compute at once. Gracemont has vector units
# of 128 bits (Intel's optimization manual). An N100 reads 6.5 prompt tokens a second of an 8B in Q4_K_M
# (brand-o/normiebench issue 38); with full width 12.7 were predicted, with half of it 6.4.
_WIDTH = {"alder lake n": 0.5}

# How much of a performance core's work of a batch an efficiency core does: four fifths, as its clock (i9-14900K 4.4 of
# 5.6 GHz, Core Ultra 9 285K 4.6 of 5.4; Intel ARK), and half of that where its vector units have 128 bits. Skymont has
# twice as many of them as Gracemont and Crestmont (Intel at Computex 2024). On 8 + 10 cores of a Core Ultra 7 270K Plus
# nine posted prompts (daim-step37) took 0.47 to 0.63 of what the 8 alone were predicted to need, now 0.76 to 1.00.
# A 13900K read them 1.4 times as fast with 24 threads as with 8 in 2023 (ggml-org/llama.cpp issue 34), predicted: 1.66.
_EFFICIENT, _NARROW = 0.8, 0.5
_WIDE = frozenset(("arrow lake",))


class CardRate(msgspec.Struct, frozen=True):
    """One card as its back end drives it: bytes/s of its memory and of its link, int8 operations/s.

    The others are multiples of ideal time: `read` of weights, `read_expert` more for experts, `matmul` and more for
    experts, `attention` of a batch, `cache` for a token, `launch` and `change` of device over CUDA's, `copy` from RAM.
    `emulated`: seconds in which a card without int8 products multiplies a weight with a token, 0 for all others.
    """

    backend: str
    generation: str
    bandwidth: float
    link: float
    operations: float
    read: float
    read_expert: float
    matmul: float
    matmul_expert: float
    attention: float
    cache: float
    launch: float
    change: float
    change_host: float
    copy: float
    emulated: float


class CpuRate(msgspec.Struct, frozen=True):
    """The CPU with the threads of one phase. `read`: seconds a byte of weights; `cycles`: of all cores a second.

    `family`: whose speeds by type it has. `crowded`: how much longer a token's work takes with more threads than cores.
    """

    bandwidth: float
    read: float
    read_batch: float
    cycles: float
    cores: int
    dot: float
    matmul: float
    attention: float
    kind: str
    family: str
    two_sockets: bool
    windows: bool
    crowded: float


class Machine(msgspec.Struct, frozen=True, dict=True):
    """The devices of a config, in the engine's order, and the CPU: once for a token, once for a batch.

    `first`: the index of the card that takes weights from RAM for a batch.
    """

    cards: tuple[CardRate, ...]
    token_cpu: CpuRate
    batch_cpu: CpuRate
    windows: bool
    first: int = 0

    @property
    def first_card(self) -> CardRate:
        return self.cards[self.first]

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """For each card the index of the first one with the same rates."""
        return tuple(self.cards.index(card) for card in self.cards)


def machine_of(rig: Rig, devices: Sequence[Device], flags: Flags, p: Coefficients) -> Machine:
    """Return the rates of `devices` of `rig` and of its CPU with the threads of `flags` (default: physical cores)."""
    threads = flags.threads or rig.physical_cores
    batch = flags.threads_batch or threads
    return Machine(
        cards=tuple(_card_rate(rig.cards[d.gpu], p) for d in devices),
        token_cpu=_cpu_rate(rig, threads, _crowded(rig, threads, p, drives_gpus=bool(devices)), p),
        batch_cpu=_cpu_rate(rig, batch, 1.0, p, _efficient(rig, batch)),
        windows=rig.windows,
        first=flags.first_gpu,
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
    backend, generation = card.backend, card.generation.lower().replace(" ", "_")
    bandwidth, in_floats = card.bandwidth_gbs * _GIGA, _in_floats(card)
    kind = f"{backend}.{generation}"
    beyond = max(card.bandwidth_gbs / p.get(f"gpu_read_most.{generation}", math.inf), 1.0)

    def own(name: str) -> float:
        """Return the factor by which the back end, and the generation with it, differ from CUDA's cards."""
        return p.get(f"{name}.{backend}", 1.0) * p.get(f"{name}.{kind}", 1.0)

    return CardRate(
        backend=backend,
        generation=generation,
        bandwidth=bandwidth,
        link=bandwidth if card.unified or card.pcie_gbs <= 0 else _link(card, p),
        operations=_tops(card, p) * _TERA / own("gpu_compute"),
        read=max(
            p.get(f"gpu_read.{generation}", p["gpu_read.other"])
            * p.get(f"gpu_read.{_family(generation)}", 1.0)
            * own("gpu_read"),
            1.0,
        )
        * beyond,
        read_expert=p["gpu_read.expert"] * own("gpu_read.expert"),
        matmul=p["gpu_matmul.floats"] if in_floats else p.get(f"gpu_matmul.{generation}", p["gpu_matmul.other"]),
        matmul_expert=p["gpu_matmul.expert"] * own("gpu_matmul.expert"),
        attention=p["gpu_attention"] * own("gpu_attention"),
        cache=p["gpu_cache"] * own("gpu_cache") * beyond,
        launch=own("launch"),
        change=p["change.card"] * own("change.card"),
        change_host=p["change.host"] * own("change.host"),
        copy=p["copy"] * own("copy"),
        emulated=p["gpu_dot.emulated"] / _instructions(card) if in_floats else 0.0,
    )


def _family(generation: str) -> str:
    """Return the family of AMD's generations: RDNA runs waves of 32, for which kernels are made, the others of 64."""
    if generation.startswith("rdna"):
        return "rdna"
    return "gcn" if generation.startswith(("gcn", "vega", "cdna")) else ""


def _lacks_int8(card: Card) -> bool:
    """Whether a card has neither matrix units nor int8 products that are faster than FP16: GCN and Vega but Vega 20,
    and in Vulkan NVIDIA's before Pascal."""
    old = card.backend == "vulkan" and card.generation in ("kepler", "maxwell")
    return (old or card.generation.startswith(("gcn", "vega"))) and card.int8_tops <= card.fp16_tflops


def _in_floats(card: Card) -> bool:
    """Whether batches are multiplied in floats, for the card has no int8 products."""
    return card.backend == "cuda" and card.compute_capability is not None and card.compute_capability < _DP4A


def _instructions(card: Card) -> float:
    """Return the FP32 instructions a second of a card without int8 products: two operations each."""
    return card.fp16_tflops * _TERA / (4 if card.compute_capability == _FAST_HALF else 2)


def _tops(card: Card, p: Coefficients) -> float:
    """Return a card's int8 rate: the lesser of its peak and of what its power limit allows, with a smooth transition.

    Batches of RDNA run at the rate of FP16, whatever their INT8 peak, and so do those of cards without int8 products:
    an operation counts half of one in FP16.
    """
    peak = 2 * card.fp16_tflops if _family(card.generation) == "rdna" or _lacks_int8(card) else card.int8_tops
    chip = "ga100" if card.compute_capability == _GA100 else card.generation
    most = card.tdp_w * p.get(f"gpu_watt.{chip}", 0.0)
    return float(peak * (1 + (peak / most) ** 4) ** -0.25) if most else peak


def _usable_gbs(gbs: float, cores: int, p: Coefficients) -> float:
    """Return the bandwidth that `cores` reach: ever less of it above a knee, and no more than they can request."""
    usable = gbs / max(1.0, (gbs / p["ram_read.knee"]) ** p["ram_read.exponent"])
    return float(usable * (1 + (usable / (cores * p["ram_read.core"])) ** 4) ** -0.25)


def _link(card: Card, p: Coefficients) -> float:
    """Bytes a second of the link's standard; from a measured rate, what that standard would have to be."""
    return card.pcie_gbs * _GIGA * (p["copy"] if card.copy_measured else 1.0)


def _crowded(rig: Rig, threads: int, p: Coefficients, *, drives_gpus: bool) -> float:
    """How many times longer a token takes with so many threads. Waiting ones spin: if they occupy every hardware
    thread, none is left to drive the GPUs."""
    generation = rig.cpu_generation.lower()
    if (
        drives_gpus
        and threads >= 2 * rig.physical_cores
        and (generation.startswith("zen") or generation in _TWO_A_CORE)
    ):
        return p["threads.every"]
    return p["threads.overbooked"] if threads > rig.physical_cores else 1.0


def _efficient(rig: Rig, threads: int) -> float:
    """Return the efficiency cores with a thread of a batch, in performance cores.

    Only batches gain: tokens wait for RAM, which the performance cores alone read as fast.
    """
    width = 1.0 if rig.cpu_generation in _WIDE else _NARROW
    return width * _EFFICIENT * min(max(threads - rig.physical_cores, 0), rig.efficient_cores)


def _cpu_rate(rig: Rig, threads: int, crowded: float, p: Coefficients, efficient: float = 0.0) -> CpuRate:
    kind, sockets2 = cpu_class(rig), rig.sockets > 1
    windows = rig.windows
    cores = max(min(threads, rig.physical_cores), 1)
    working = cores + efficient
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
        cycles=_WIDTH.get(rig.cpu_generation, 1.0)
        * working
        * rig.ghz
        * _GIGA
        / (working / _FEW_CORES) ** p["cpu_cores_exponent"],
        cores=cores,
        dot=p[f"cpu_dot.{kind}"],
        matmul=p[f"cpu_matmul.{kind}"],
        attention=p[f"cpu_attention.{kind}"],
        kind=kind,
        family=_FAMILIES.get(kind, "neon" if rig.isa in ("neon", "apple") else "avx2"),
        crowded=crowded,
        two_sockets=sockets2,
        windows=windows,
    )
