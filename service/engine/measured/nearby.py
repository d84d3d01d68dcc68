"""Whether measurements of one cell agree, and what those of near configs say of one that nobody measured.

That is a correction of its estimate, with its interval.

The error of an estimate has two parts: one of its rig and model, which near configs share, and one of its own. That of
a config is e = s + a, that of another on the same rig e' = s + b: only s can be learned. The variance of e - e' is
known for each kind of nearness (twice that of a), so the expected s is the usual shrinkage estimate: zero where there
are no others, near their mean where they are near and many.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from service.engine.advice import SpeedPoint
from service.engine.estimate import Z80
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


class Nearness(NamedTuple):
    """What a config measured on the same rig (GPUs, CPU and RAM) shares with another: variant, engine, model."""

    variant: bool
    engine: bool
    model: bool = True


SPREADS: dict[Nearness, dict[Phase, float]] = {
    Nearness(True, True): {"tg": 0.16, "pp": 0.24},
    Nearness(True, False): {"tg": 0.16, "pp": 0.26},
    Nearness(False, True): {"tg": 0.17, "pp": 0.24},
    Nearness(False, False): {"tg": 0.17, "pp": 0.26},
    Nearness(False, True, model=False): {"tg": 0.23, "pp": 0.32},
    Nearness(False, False, model=False): {"tg": 0.23, "pp": 0.32},
}
"""Standard deviation of how differently two estimates of one model are off, in logarithms: a Z80th of what holds four
of five of the published pairs, each rig by the root of its pairs (`python -m bench.nearby`, bench/results/nearby.txt).
What shares less is never taken to be nearer."""


FARTHEST = math.log(3)
"""An error beyond three times says more of that run than of its model and rig: of 1,233 published figures three are so
far (bench/results/speed.txt)."""


class Observation(msgspec.Struct, frozen=True):
    """The logarithm of measured over expected speed of a near config, by phase. `source`: whose it is, an owner with
    all his hosts; of one source only the nearest kind counts, once, with its median."""

    source: str
    nearness: Nearness
    error: dict[Phase, float]


class Correction(msgspec.Struct, frozen=True):
    """`shift`: logarithm by which to multiply an expected speed; `spread`: one standard deviation of what remains."""

    shift: float
    spread: float


def correction(prior: float, phase: Phase, observed: Sequence[Observation]) -> Correction:
    """Return the correction by observations of an estimate whose logarithm has the standard deviation `prior`."""
    found: dict[str, dict[float, list[float]]] = {}
    for one in observed:
        if abs(one.error.get(phase, math.inf)) <= FARTHEST:
            by_spread = found.setdefault(one.source, {})
            by_spread.setdefault(SPREADS[one.nearness][phase], []).append(one.error[phase])
    spreads = [(statistics.median(errors[nearest]), nearest) for errors in found.values() for nearest in [min(errors)]]
    if not spreads:
        return Correction(0.0, prior)
    own = min(spread for _, spread in spreads) ** 2 / 2
    shared = prior**2 - own
    if shared <= 0:
        return Correction(0.0, prior)
    precision = 1 / shared + sum(2 / spread**2 for _, spread in spreads)
    shift = sum(error * 2 / spread**2 for error, spread in spreads) / precision
    return Correction(shift, math.sqrt(1 / precision + own))


def corrected(point: SpeedPoint, observed: Sequence[Observation]) -> SpeedPoint:
    """Return the speed at a depth with both phases corrected, basis `calibrated on N results`; as it was where they
    say nothing of it."""

    def learned(prior: float, phase: Phase) -> Correction:
        return correction(prior, phase, observed)

    return moved(point, learned, len(observed))


def moved(point: SpeedPoint, learn: Callable[[float, Phase], Correction], n: int) -> SpeedPoint:
    """Return the speed at a depth as `learn` corrects an estimate of a standard deviation and phase, from n results."""
    pp = _moved(point.pp_low, point.pp_tps, point.pp_high, "pp", learn)
    tg = _moved(point.tg_low, point.tg_tps, point.tg_high, "tg", learn)
    if pp is None and tg is None:
        return point
    changes = (("pp", pp), ("tg", tg))
    new = {
        f"{name}_{part}": value for name, found in changes if found for part, value in zip(_PARTS, found, strict=True)
    }
    return replace(point, basis=f"calibrated on {n} result{'s' * (n > 1)}", **new)


_PARTS = ("low", "tps", "high")


def _moved(
    low: float, expected: float, high: float, phase: Phase, learn: Callable[[float, Phase], Correction]
) -> tuple[float, float, float] | None:
    if low <= 0 or high <= low:
        return None
    prior = math.log(high / low) / (2 * Z80)
    found = learn(prior, phase)
    if found == Correction(0.0, prior):
        return None
    middle = expected * math.exp(found.shift)
    factor = math.exp(Z80 * found.spread)
    return round(middle / factor, 2), round(middle, 2), round(middle * factor, 2)
