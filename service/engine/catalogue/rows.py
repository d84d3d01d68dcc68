"""Rows of the catalogue, as its data files hold them. None stands for a value that no source we read states."""

from __future__ import annotations

from functools import cache

import msgspec

from service.engine.tables import table_of

_CPU_FILES = ("cpus.json", "cpus_core.json", "cpus_xeon.json")


class GpuRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU in one memory size, named as its driver names it.

    `vram_gib` is the nominal size; `driver_mib` is the total that nvidia-smi prints, null if that is unknown or the
    nominal size. `fp16_tflops` is the dense rate of the tensor, matrix or WMMA units; for GPUs without such units, it
    is the faster of the shaders' FP16 and FP32 rates. `int8_tops` is dense too, null if it is unknown or no faster than
    FP16. `tdp_w` is the power that the board may take. `unified` says that the GPU uses system memory.
    """

    name: str
    aliases: tuple[str, ...] = ()
    vram_gib: float | None = None
    driver_mib: int | None = None
    bandwidth_gbs: float | None = None
    fp16_tflops: float | None = None
    int8_tops: float | None = None
    tdp_w: float | None = None
    compute_capability: float | None = None
    generation: str
    pcie: str | None = None
    backend: str
    unified: bool = False
    source: str


class CpuRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One CPU.

    `cores`, `channels` and `fabric_gbs` are those of one socket, and `sockets` is how many can work together.
    `performance_cores` are those of the cores that are fast, null if all are alike or it is unknown. `isa` is sse, avx,
    avx2, avx512, vnni, neon or apple. `fabric_gbs` is the most that the CPU's dies can read from RAM, in GB/s.
    """

    name: str
    aliases: tuple[str, ...] = ()
    cores: int
    performance_cores: int | None = None
    sockets: int
    base_ghz: float | None = None
    all_core_ghz: float | None = None
    isa: str
    memory: str | None = None
    channels: int | None = None
    mts: int | None = None
    pcie: float | None = None
    generation: str
    fabric_gbs: float | None = None
    source: str


@cache
def known_gpus() -> tuple[GpuRow, ...]:
    """Return every GPU of the catalogue."""
    return table_of("gpus.json", tuple[GpuRow, ...])


@cache
def known_cpus() -> tuple[CpuRow, ...]:
    """Return every CPU of the catalogue."""
    return tuple(row for name in _CPU_FILES for row in table_of(name, list[CpuRow]))


@cache
def exact_cores() -> dict[str, int]:
    """Return the cores, performance cores if they differ, of CPUs whose number does not tell them, by `cpu_key`."""
    table = table_of("cpu_cores.json", dict[str, dict[str, str]])
    return {name: int(n) for part in table.values() for n, names in part.items() for name in names.split()}
