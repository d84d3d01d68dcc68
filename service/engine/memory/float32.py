"""Arithmetic in 32-bit floats: both engines compare shares of devices in `float`, and ties depend on it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

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
