"""Shares of devices, and which device owns a layer where layers are counted.

Both engines compare shares in 32-bit floats, and ties depend on it. Source of the count: llama.cpp
src/llama-model.cpp:1589-1625; the output head is the last of n_layer + 1 slots, so `-ngl 1` offloads only the head.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from service.engine.config import Flags
from service.engine.model import Model

_FLOAT = struct.Struct("f")


def f32(x: float) -> float:
    """Return `x` rounded to the nearest 32-bit float."""
    rounded: float = _FLOAT.unpack(_FLOAT.pack(x))[0]
    return rounded


def cumulative_shares(shares: Sequence[float]) -> list[float]:
    """Return the running sums of `shares` over their total, each step in 32-bit floats; equal shares if all are 0."""
    if not any(share > 0 for share in shares):
        shares = [1.0] * len(shares)
    running, total = [], 0.0
    for share in shares:
        total = f32(total + f32(share))
        running.append(total)
    return [f32(r / total) for r in running]


def split_shares(tensor_split: Sequence[float], default: Sequence[float]) -> list[float]:
    """Return a share for each device: the `-ts` entries, 0 where missing; `default` when all are 0."""
    n = len(default)
    asked = [*tensor_split, *[0.0] * n][:n]
    return cumulative_shares(asked if any(asked) else default)


def split_layers(model: Model, flags: Flags, free: Sequence[int], *, head_first: bool = True) -> list[int]:
    """Return the device of each block and, last, of the output head; `len(free)` is the CPU.

    `head_first` False: as llama.cpp before pull 18148, and ik_llama.cpp before pull 1476, the head moves last.
    """
    cpu, n_slots = len(free), model.n_layer + 1
    active = min(max(flags.n_gpu_layers, 0), n_slots) if free else 0
    start = n_slots - active if head_first else max(model.n_layer - active, 0)
    if not active:
        return [cpu] * n_slots
    shares = split_shares(flags.tensor_split, free)
    devices = [cpu] * start
    for i in range(n_slots - start):
        position = f32(i / active)
        devices.append(next((d for d, share in enumerate(shares) if share > position), cpu - 1))
    return devices if head_first or active == n_slots else [*devices[:-1], cpu]
