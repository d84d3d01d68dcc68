"""What is known of parts once they are read: which are the same, which come with another."""

from __future__ import annotations

from collections.abc import Container, Sequence

from service.engine.catalogue.names import cpu_key, cpu_row, gpu_rows
from service.engine.hardware import Cpu, Gpu

# The GPU in a processor that shares its memory, by the catalogue's name of the processor (AMD's product pages).
_OWN_GPU = {
    "AMD Ryzen AI Max+ 395": "AMD Radeon 8060S",
    "AMD Ryzen AI Max 390": "AMD Radeon 8050S",
    "AMD Ryzen AI Max 385": "AMD Radeon 8050S",
}


def is_shared(gpu: Gpu) -> bool:
    """Return whether a GPU has no memory of its own."""
    rows = gpu_rows(gpu.name)
    return bool(rows) and rows[0].unified


def identity(model: str) -> str:
    """Return the catalogue's name of a CPU, else its own in a plain spelling."""
    row = cpu_row(model)
    return row.name if row else cpu_key(model)


def closer(link: str, before: str | None) -> str:
    """Return the slower of two words for one link: `thunderbolt eGPU` is Thunderbolt."""
    return before if before and link == "egpu" else link


def own_gpus(cpu: Cpu | None) -> tuple[Gpu, ...]:
    """Return the GPU that is in a processor, where models are run on it."""
    row = cpu_row(cpu.model) if cpu is not None and cpu.model else None
    return (Gpu(name=_OWN_GPU[row.name]),) if row is not None and row.name in _OWN_GPU else ()


def without_twins(gpus: Sequence[Gpu], quoted: Container[str]) -> tuple[Gpu, ...]:
    """Return the GPUs, one that shares the machine's memory once: `Strix Halo (Radeon 8060S)` are two names of it."""
    out: list[Gpu] = []
    shared: set[str] = set()
    for gpu in gpus:
        rows = gpu_rows(gpu.name)
        if rows and rows[0].unified and gpu.name not in quoted:
            if rows[0].name in shared:
                continue
            shared.add(rows[0].name)
        out.append(gpu)
    return tuple(out)
