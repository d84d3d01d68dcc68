"""Rows of the catalogue, as its data files hold them. A value that no opened source states is None: unknown."""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec

_CPU_FILES = ("cpus.json", "cpus_core.json", "cpus_xeon.json")


class GpuRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU in one memory size, named as its driver names it.

    `vram_gib`: nominal; `driver_mib`: total that nvidia-smi prints, None where it is not known or is the nominal size.
    `fp16_tflops`: dense; of the tensor, matrix or WMMA units, else the faster of the shaders' FP16 and FP32 rates.
    `int8_tops`: dense; None: no faster than FP16, or unknown. `tdp_w`: the power that the board may take.
    `unified`: the GPU uses system memory.
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
    """One CPU. `cores` a socket; `performance_cores`: those of them that are fast, None where
    all are alike or it is unknown; `sockets`: most that work together; `channels` and `fabric_gbs` a socket.

    `isa`: avx2 | avx512 | vnni | neon | apple. `fabric_gbs`: read bandwidth that the CPU's dies can take at most.
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
    return tuple(msgspec.json.decode(_read("gpus.json"), type=list[GpuRow]))


@cache
def known_cpus() -> tuple[CpuRow, ...]:
    """Return every CPU of the catalogue."""
    return tuple(row for name in _CPU_FILES for row in msgspec.json.decode(_read(name), type=list[CpuRow]))


def _read(name: str) -> bytes:
    return resources.files("service.engine.data").joinpath(name).read_bytes()
