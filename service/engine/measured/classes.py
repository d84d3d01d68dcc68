"""Classes by which results are compared: how deep in the cache, how much memory, what kind of platform."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from service.engine.catalogue.names import cpu_row
from service.engine.hardware import Hardware
from service.engine.measured.rows import MeasuredRow

Platform: TypeAlias = Literal["desktop", "workstation", "server", "unknown"]

DEPTHS = (0, 4096, 16384, 32768, 65536)
"""Tokens in the cache at which results are compared: those that people print, and the goals ask about."""
VRAM_CLASSES = (0, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
"""GiB of all cards together. A rig is of the first class that is not less than what it has."""
RAM_CLASSES = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
"""GiB of system memory, likewise."""
_NEAR = 512  # tokens, which one micro-batch puts into the cache before a row is measured
_SHARE = 0.25
_SLACK_GIB = 0.5  # a card of 24 GiB never has more; rigs of odd cards round up
_DESKTOP_CHANNELS, _WORKSTATION_CHANNELS = 2, 4


class DepthSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """Speed measured at a depth class, tokens a second; None: this phase was not measured there."""

    depth: int
    tg_tps: float | None
    pp_tps: float | None


def speeds_by_depth(rows: Sequence[MeasuredRow]) -> list[DepthSpeed]:
    """Return the speed at each of DEPTHS that was measured: of the row nearest to it, within a quarter or 512 tokens.

    Nothing is interpolated. The median of repeats; of prompts of several sizes at one depth, the largest counts.
    """
    tg, pp = _by_depth(rows, "tg"), _by_depth(rows, "pp")
    found = (DepthSpeed(depth=depth, tg_tps=_nearest(tg, depth), pp_tps=_nearest(pp, depth)) for depth in DEPTHS)
    return [one for one in found if one.tg_tps is not None or one.pp_tps is not None]


def _by_depth(rows: Sequence[MeasuredRow], phase: Literal["tg", "pp"]) -> dict[int, float]:
    """Return the median speed of a phase at each depth; a later row's largest prompt replaces smaller ones."""
    sizes: dict[int, int] = {}
    speeds: dict[int, list[float]] = {}
    for row in rows:
        found = row.tg_tps if phase == "tg" else row.pp_tps
        size = 0 if phase == "tg" else row.n_prompt
        if not found or size < sizes.get(row.n_kv, 0):
            continue
        if size > sizes.get(row.n_kv, 0):
            speeds.pop(row.n_kv, None)
        sizes[row.n_kv] = size
        speeds.setdefault(row.n_kv, []).extend(found)
    return {n_kv: round(statistics.median(several), 3) for n_kv, several in speeds.items()}


def _nearest(speeds: Mapping[int, float], depth: int) -> float | None:
    near = [n_kv for n_kv in speeds if abs(n_kv - depth) <= max(_NEAR, _SHARE * depth)]
    return speeds[min(near, key=lambda n_kv: (abs(n_kv - depth), n_kv))] if near else None


def vram_class(vram_mib: float) -> int:
    """Return the class, one of VRAM_CLASSES, of the memory of all cards together."""
    return _class_of(vram_mib / 1024, VRAM_CLASSES)


def ram_class(ram_gib: float | None) -> int:
    """Return the class of system memory, one of RAM_CLASSES; 0 where it is not known."""
    return _class_of(ram_gib, RAM_CLASSES) if ram_gib else 0


def _class_of(gib: float, classes: Sequence[int]) -> int:
    return next((size for size in classes if gib <= size + _SLACK_GIB), classes[-1])


def platform_of(hardware: Hardware | None) -> Platform:
    """Return the kind of platform by its channels of memory: up to 2 desktop, up to 4 workstation, more server."""
    if hardware is None:
        return "unknown"
    channels = hardware.ram.channels if hardware.ram else None
    if channels is None and hardware.cpu and hardware.cpu.model:
        row = cpu_row(hardware.cpu.model)
        channels = row.channels * (hardware.cpu.sockets or 1) if row and row.channels else None
    if channels is None:
        return "unknown"
    if channels <= _DESKTOP_CHANNELS:
        return "desktop"
    return "workstation" if channels <= _WORKSTATION_CHANNELS else "server"
