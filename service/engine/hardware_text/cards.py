"""What a card's name says: the sizes it is sold with, and whether it is a laptop's, which may share its name."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from service.engine.catalogue.names import gpu_rows, ram_named
from service.engine.hardware import Cpu, Gpu
from service.engine.hardware_text.found import Found, is_shared

# GB of cards that workshops rebuild with more memory, seen in owners' published benchmarks.
_REBUILT = {
    "NVIDIA GeForce RTX 2080 Ti": 22,
    "NVIDIA GeForce RTX 3070": 16,
    "NVIDIA GeForce RTX 3080": 20,
    "NVIDIA GeForce RTX 4080 SUPER": 32,
    "NVIDIA GeForce RTX 4090": 48,
    "NVIDIA GeForce RTX 4090 D": 48,
}
INSTALLED = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)  # usual GB of RAM
CLOSE = 0.045  # tolerance on a card's official size: 23 for 24
_MOST_UNKNOWN_GB = 144  # for one card missing from the catalogue; more must be the sum of several
_MOBILE_CPU = re.compile(
    r"\d{4,5}(?:h[xkqs]?|u)\b|\d{4}hs\b|\b[1-3]\d{2}hx?\b|\bhx\s?(?:pro\s)?3\d{2}\b|^37[05]$", re.I
)
NAMED = re.compile(r"laptop|mobile", re.I)


def laptops_cpu(cpus: Sequence[Cpu]) -> str | None:
    """Return that one of the processors is a laptop's, in words; None if none is."""
    mobile = (cpu.model for cpu in cpus if cpu.model and _MOBILE_CPU.search(cpu.model))
    return next((f"{model} is a laptop's CPU" for model in mobile), None)


def taken_for_laptops(why: str | None, gpu: Gpu) -> str:
    """Return the note on a card that is taken as a laptop's."""
    return f"{why}: taken as the {gpu.name} of a laptop"


def beside_laptops_cpu(found: Sequence[Found]) -> list[Found]:
    """Take the only card for a laptop's if it is stated and a tool lists such a CPU, as next to a stated CPU."""
    mobile = laptops_cpu([f.cpu for f in found if f.tool and f.cpu])
    every = [gpu for f in found for gpu in (*f.gpus, *(Gpu(name=card.name) for card in f.seen))]
    listed = [gpu for gpu in every if not is_shared(gpu.name)]
    is_one = mobile is not None and len(listed) == 1
    return [_beside(f, f.gpus[0], mobile) if is_one and list(f.gpus) == listed else f for f in found]


def _beside(found: Found, gpu: Gpu, mobile: str | None) -> Found:
    of_laptop = msgspec.structs.replace(gpu, name=f"{gpu.name} laptop")
    is_larger = gpu.vram_gib is not None and not fits(of_laptop, gpu.vram_gib)
    if gpu.count > 1 or gpu.pcie or is_larger or NAMED.search(gpu.name) or not gpu_rows(of_laptop.name):
        return found
    notes = "; ".join(filter(None, (found.notes, taken_for_laptops(mobile, gpu))))
    return msgspec.structs.replace(found, gpus=(of_laptop,), notes=notes)


def sizes_of(gpu: Gpu) -> frozenset[float]:
    """Return the GB that cards of this name are sold or rebuilt with; empty if unknown."""
    rows = gpu_rows(gpu.name)
    sizes = {row.vram_gib for row in rows if row.vram_gib} | {
        _REBUILT[row.name] for row in rows if row.name in _REBUILT
    }
    return frozenset(sizes)


def usual(gpu: Gpu) -> float:
    """Return the GB of the usual card of this name, 0 if unknown."""
    return next((row.vram_gib or 0 for row in gpu_rows(gpu.name)), 0)


def largest(gpu: Gpu) -> float:
    """Return the GB of the largest card of this name, 0 if unknown."""
    return max(sizes_of(gpu), default=0)


def most(gpu: Gpu) -> float:
    """Return the GB that a card of this name has at most, 0 if unknown: some desktop cards were given twice theirs."""
    return (1 if "laptop" in gpu.name.lower() else 2) * largest(gpu)


def names_ram(gpu: Gpu, gb: float) -> bool:
    """Return whether a size after this name is that of the RAM that comes with the card, as in `GH200 480GB`."""
    return any(gb in ram_named(row) for row in gpu_rows(gpu.name))


def as_laptops(cards: Sequence[Gpu], gb: float) -> Gpu | None:
    """Return the only card as a laptop's if such a one, and no other, has this much memory."""
    if len(cards) != 1 or cards[0].count > 1 or not gpu_rows(cards[0].name) or fits(cards[0], gb):
        return None
    mobile = msgspec.structs.replace(cards[0], name=f"{cards[0].name} laptop", vram_gib=gb)
    return mobile if gpu_rows(mobile.name) and fits(mobile, gb) else None


def ram_in_sum(gpu: Gpu, gb: float) -> float | None:
    """Return the RAM in the sum of it and the card's own memory, 480 in `GH200 624GB`; None if it is no such sum."""
    rows = gpu_rows(gpu.name)
    return next((ram for row in rows for of in rows for ram in ram_named(of) if (row.vram_gib or 0) + ram == gb), None)


def fits(gpu: Gpu, gb: float) -> bool:
    """Return whether a card of this name can have this much memory."""
    rows = gpu_rows(gpu.name)
    if not rows:
        return gb <= _MOST_UNKNOWN_GB
    sizes = sizes_of(gpu) | {row.driver_mib / 1024 for row in rows if row.driver_mib}
    return any(abs(gb - size) <= CLOSE * size for size in sizes)
