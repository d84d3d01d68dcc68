"""Whether two measurements of one cell agree, and whether one is an outlier."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal, TypeAlias

from service.engine.advice import SpeedPoint
from service.engine.measured.summary import speed_at

Place: TypeAlias = Literal["cpu", "gpu"]
Phase: TypeAlias = Literal["tg", "pp"]
PHASES: tuple[Phase, ...] = ("tg", "pp")

TOLERANCE: dict[tuple[Phase, Place], float] = {
    ("tg", "gpu"): 0.07,
    ("tg", "cpu"): 0.21,
    ("pp", "gpu"): 0.23,
    ("pp", "cpu"): 0.25,
}
"""How far apart two measurements of one config on like machines may lie and still agree: two standard deviations of the
difference of two runs (2 sqrt 2 times `own` of the calibration's comparisons, which is the scatter of one published run
around its rig: 0.022, 0.068, 0.073, 0.137 in calibration 2026.11-6), and never more than a quarter. Later calibrations
have more authors and so more scatter on GPUs (0.16 and 0.20): that two owners agree stays as hard to claim."""
FENCE = 1.5
"""Interquartile ranges beyond the quartiles from which a figure is an outlier (Tukey 1977; rustc-perf too)."""
LEAST_OTHERS = 3
"""Owners that must have measured a cell before one more can be called an outlier of it."""


def apart(one: Sequence[SpeedPoint], other: Sequence[SpeedPoint], phase: Phase) -> float | None:
    """Return the logarithm of how many times faster `other` is, the median over common depths; None without any."""
    name = f"{phase}_tps"
    found = [
        math.log(getattr(there, name) / getattr(point, name))
        for point in one
        if (there := speed_at(other, point.n_kv)) is not None and getattr(there, name) and getattr(point, name)
    ]
    return statistics.median(found) if found else None


def agree(one: Sequence[SpeedPoint], other: Sequence[SpeedPoint], place: Place) -> bool:
    """Return whether two measurements lie within TOLERANCE in both phases, at the depths that both have."""
    for phase in PHASES:
        off = apart(one, other, phase)
        off = apart(other, one, phase) if off is None else off
        if off is None or abs(off) > math.log1p(TOLERANCE[phase, place]):
            return False
    return True


def outlier(one: Sequence[SpeedPoint], others: Sequence[Sequence[SpeedPoint]], place: Place) -> str | None:
    """Return why a measurement is an outlier among `others` of its cell (one of each owner), or None.

    It is one beyond FENCE interquartile ranges from the quartiles, if also over twice the tolerance from the median.
    """
    for phase in PHASES:
        found = [off for other in others if (off := apart(one, other, phase)) is not None]
        if len(found) < LEAST_OTHERS:
            continue
        middle = statistics.median(found)
        low, _, high = statistics.quantiles(found, n=4, method="inclusive")
        reach = FENCE * (high - low)
        beyond = not low - reach <= 0 <= high + reach
        if beyond and abs(middle) > 2 * math.log1p(TOLERANCE[phase, place]):
            where = "below" if middle > 0 else "above"
            return f"{phase.upper()} is {math.exp(abs(middle)):.1f} times {where} what {len(found)} others measured"
    return None
