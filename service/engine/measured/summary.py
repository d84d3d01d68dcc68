"""Repeats summarised as one figure for each depth: the median, the spread, and whether there are enough of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from service.engine.advice import SpeedPoint
from service.engine.errors import InvalidInput
from service.engine.estimate import Z80
from service.engine.goal import Goal
from service.engine.logs.read import MAX_LOG, LogReading, read_log
from service.engine.measured.rows import MeasuredRow, merged

SPREAD_AIM = 0.035
"""Sigma over mean below which no further repeat is wanted: that at which the Phoronix Test Suite repeats a test."""
UNKNOWN_SPREAD = 0.023
"""What one measurement is taken to be off by: four of five published llama-bench tests that print a deviation have
less (102 tests in tests/data/perf.jsonl: median 0.9 %, 80 % below 2.3 %, 95 % below 6.4 %)."""
_FIGURES = ("pp_tps", "pp_low", "pp_high", "tg_tps", "tg_low", "tg_high")


def memory_of(log: str) -> LogReading:
    """Return what an engine's own output says of its memory; nothing of it where the output does not say."""
    try:
        return read_log(log[-MAX_LOG:])
    except InvalidInput:
        return LogReading()


class Depth(NamedTuple):
    """Rows of one depth: the prompts that count there, and the outputs. `behind`: the prompts end where the outputs
    begin, as in a server's request; else both begin at `n_kv`."""

    n_kv: int
    prompts: tuple[MeasuredRow, ...]
    outputs: tuple[MeasuredRow, ...]
    behind: bool


def depths_of(rows: Sequence[MeasuredRow]) -> list[Depth]:
    """Return the depths at which both phases were measured, by depth.

    Where an output has no prompt at its depth, the prompts that end there are its own. Of prompts of several sizes the
    largest counts.
    """
    several = merged(rows)
    found = []
    for n_kv in sorted({row.n_kv for row in several if row.tg_seconds}):
        outputs = tuple(row for row in several if row.n_kv == n_kv and row.tg_seconds)
        here = [row for row in several if row.n_kv == n_kv and row.pp_seconds]
        prompts = here or [row for row in several if row.n_kv + row.n_prompt == n_kv and row.pp_seconds]
        if prompts:
            size = max(row.n_prompt for row in prompts)
            largest = tuple(row for row in prompts if row.n_prompt == size)
            found.append(Depth(n_kv, largest, outputs, behind=not here))
    return found


def measured_speed(rows: Sequence[MeasuredRow]) -> list[SpeedPoint]:
    """Return a point for each depth at which both phases were measured, by depth; basis `measured`.

    The figure is the median of all repeats. Low and high are where four of five further runs on this machine should
    lie, by the repeats' own deviation with UNKNOWN_SPREAD as one more: so a single measurement is uncertain, five that
    agree are not.
    """
    return [_point(depth) for depth in depths_of(rows)]


def _point(depth: Depth) -> SpeedPoint:
    pp = [tps for row in depth.prompts for tps in row.pp_tps]
    tg = [tps for row in depth.outputs for tps in row.tg_tps]
    figures = (*_interval(pp), *_interval(tg))
    return SpeedPoint(n_kv=depth.n_kv, basis="measured", **dict(zip(_FIGURES, figures, strict=True)))


def _interval(speeds: Sequence[float]) -> tuple[float, float, float]:
    """Return (median, low, high) of one phase's repeats."""
    middle = statistics.median(speeds)
    apart = sum((tps / middle - 1) ** 2 for tps in speeds)
    half = Z80 * math.sqrt((UNKNOWN_SPREAD**2 + apart) / len(speeds))
    return round(middle, 2), round(middle * max(1 - half, 0.0), 2), round(middle * (1 + half), 2)


def spread(rows: Sequence[MeasuredRow]) -> float | None:
    """Return the largest sigma/mean of the repeats of any phase at any depth; None where nothing was repeated."""
    phases = [tps for row in merged(rows) for tps in (row.pp_tps, row.tg_tps) if len(tps) > 1]
    return round(max(statistics.stdev(tps) / statistics.fmean(tps) for tps in phases), 4) if phases else None


def agreed(rows: Sequence[MeasuredRow]) -> bool:
    """Return whether no further repeat is needed: every measurement was repeated, and none spreads by more than
    SPREAD_AIM."""
    phases = [tps for row in merged(rows) for tps in (row.pp_tps, row.tg_tps) if tps]
    known = spread(rows)
    return known is not None and known <= SPREAD_AIM and all(len(tps) > 1 for tps in phases)


def goal_point(points: Sequence[SpeedPoint], goal: Goal) -> SpeedPoint | None:
    """Return the speed at a goal's depth, or the deepest one measured; None where nothing was."""
    return speed_at(points, goal.depth) or (points[-1] if points else None)


def measured_seconds(points: Sequence[SpeedPoint], goal: Goal) -> float | None:
    """Return the seconds of a goal's prompt and output as measured; None where one of them was not."""
    at = goal_point(points, goal)
    if at is None or not at.pp_tps or not at.tg_tps:
        return None
    return goal.prompt / at.pp_tps + goal.output / at.tg_tps


def speed_at(points: Sequence[SpeedPoint], n_kv: int) -> SpeedPoint | None:
    """Return the speed at a depth, interpolated between points sorted by depth, in which a token's time is linear. None
    before the first and after the last."""
    for point in points:
        if point.n_kv == n_kv:
            return point
    for one, other in pairwise(points):
        if one.n_kv < n_kv < other.n_kv:
            share = (n_kv - one.n_kv) / (other.n_kv - one.n_kv)
            between = {name: _between(getattr(one, name), getattr(other, name), share) for name in _FIGURES}
            return msgspec.structs.replace(one, n_kv=n_kv, **between)
    return None


def _between(one: float, other: float, share: float) -> float:
    return round(1 / ((1 - share) / one + share / other), 2) if one > 0 and other > 0 else 0.0
