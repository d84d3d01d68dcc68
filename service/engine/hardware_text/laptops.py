"""Cards of laptops, which share their names with larger ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from service.engine.catalogue.names import gpu_rows
from service.engine.hardware import Cpu, Gpu
from service.engine.hardware_text.found import Found
from service.engine.hardware_text.memory import fits
from service.engine.hardware_text.parts import is_shared

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
    listed = [gpu for f in found for gpu in (*f.gpus, *(Gpu(name=card.name) for card in f.seen)) if not is_shared(gpu)]
    is_one = mobile is not None and len(listed) == 1
    return [_beside(f, f.gpus[0], mobile) if is_one and list(f.gpus) == listed else f for f in found]


def _beside(found: Found, gpu: Gpu, mobile: str | None) -> Found:
    of_laptop = msgspec.structs.replace(gpu, name=f"{gpu.name} laptop")
    is_larger = gpu.vram_gib is not None and not fits(of_laptop, gpu.vram_gib)
    if gpu.count > 1 or gpu.pcie or is_larger or NAMED.search(gpu.name) or not gpu_rows(of_laptop.name):
        return found
    notes = "; ".join(filter(None, (found.notes, taken_for_laptops(mobile, gpu))))
    return msgspec.structs.replace(found, gpus=(of_laptop,), notes=notes)
