"""The catalogue of GPUs and CPUs, and what a described machine is with every fact filled in from it.

`resolve` is the way in. Cards are ordered as CUDA orders devices when nothing is set: fastest first. CUDA's rule is an
unpublished simple heuristic; here it is FP16 throughput, then compute capability, then bandwidth, then PCI order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.engine.catalogue.cards import cards_of, rows_of
from service.engine.catalogue.host import host_of
from service.engine.catalogue.limits import check
from service.engine.catalogue.names import cpu_row, gpu_rows, nearest
from service.engine.catalogue.rows import CpuRow, GpuRow, known_cpus, known_gpus
from service.engine.config import Device, Engine
from service.engine.errors import InvalidHardware
from service.engine.hardware import NO_GPU_NAMED, Assumption, Card, Hardware, Rig

__all__ = [
    "CpuRow",
    "GpuRow",
    "check",
    "cpu_row",
    "engine_devices",
    "gpu_rows",
    "known_cpus",
    "known_gpus",
    "nearest",
    "resolve",
]

_MATTERS = (
    "gpus",
    "ram.total_gb",
    "cpu",
    "backend",
    "vram_gib",
    "ram.channels",
    "ram.mts",
    "bandwidth_gbs",
    "pcie",
    "cpu.ghz",
)
_SHOWN = 200  # characters of the notes in an answer
_DEVICE = {"cuda": "CUDA{}", "rocm": "ROCm{}", "sycl": "SYCL{}"}
# Metal has one device; ik_llama.cpp calls it `Metal`, llama.cpp `MTL0` since its device list was numbered.
_METAL = {"ik_llama.cpp": "Metal", "llama.cpp": "MTL0"}


def resolve(hardware: Hardware) -> Rig:
    """Return the machine with every fact known: stated, else from the catalogue, else assumed and listed in `assumed`.

    Raises UnknownHardware (nearest names in `choices`) for a name that the catalogue lacks and InvalidHardware for a
    value that cannot be; both carry the path of the field.
    """
    check(hardware)
    rows = [rows_of(gpu, f"hardware.gpus[{i}]") for i, gpu in enumerate(hardware.gpus)]
    unified = next((found[0] for found in rows if found and found[0].unified), None)
    host = host_of(hardware, unified)
    cards, assumed = cards_of(hardware.gpus, host)
    if len({card.backend for card in cards}) > 1:
        raise InvalidHardware(
            "GPUs of different makers do not work in one engine build: leave out all but one maker's",
            field="hardware.gpus",
        )
    return Rig(
        cards=tuple(sorted(cards, key=_slowness)),
        cpu_model=host.model,
        cpu_generation=host.cpu.generation,
        sockets=host.sockets,
        physical_cores=host.cores,
        ghz=host.ghz,
        isa=host.cpu.isa,
        ram_bytes=host.ram_bytes,
        cpu_bandwidth_gbs=host.bandwidth_gbs,
        bandwidth_measured=host.measured,
        os=host.os,
        order_known=bool(cards) and all(card.pci_index is not None for card in cards),
        assumed=tuple(sorted((*assumed, *host.assumed, *_noted(hardware)), key=_weight)),
    )


def engine_devices(rig: Rig, engine: Engine, cards: Sequence[int]) -> tuple[Device, ...]:
    """Return the devices that `engine` lists when it sees only `cards` (indices into the rig's), in that order."""
    return tuple(
        Device(_METAL[engine] if card.backend == "metal" else _DEVICE[card.backend].format(n), i, card.free, card.total)
        for n, (i, card) in enumerate((i, rig.cards[i]) for i in cards)
    )


def _noted(hardware: Hardware) -> Iterator[Assumption]:
    notes = hardware.notes or ""
    if not hardware.gpus and NO_GPU_NAMED in notes:
        notes = notes.replace(NO_GPU_NAMED, "").strip("; ")
        yield Assumption("hardware.gpus", "none", NO_GPU_NAMED, "everything")
    if notes.strip():
        shown = notes if len(notes) <= _SHOWN else f"{notes[:_SHOWN]}…"
        why = "kept as a note: no figure is taken from it"
        yield Assumption("hardware.notes", shown, why, "nothing, unless it says what is assumed otherwise")


def _weight(assumption: Assumption) -> int:
    """How much an assumption matters, 0 most: RAM size, substitutes, RAM's and GPUs' memory, links, clocks."""
    part = assumption.field.rpartition("]")[2].removeprefix("hardware").lstrip(".")
    return _MATTERS.index(part) if part in _MATTERS else _MATTERS.index("vram_gib")


def _slowness(card: Card) -> tuple[float, float, float, int]:
    pci = card.pci_index if card.pci_index is not None else 0
    return (-card.fp16_tflops, -(card.compute_capability or 0), -card.bandwidth_gbs, pci)
