"""Doubts about measured rows. Impossible ones are refused (`roofline`); implausible ones are kept, with their doubt."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise, zip_longest

from service.engine.advice import SpeedPoint
from service.engine.estimate import Z80
from service.engine.measured.rows import MeasuredRow
from service.engine.measured.summary import measured_speed, speed_at, spread

LEAST_PROMPT, LEAST_OUTPUT = 16, 32
"""Tokens of a phase in a whole result: the smallest published tests are pp16 and tg32 (tests/data/perf.jsonl)."""
LEAST_SECONDS = 0.01
"""Of a phase in a whole result: below it, timers and launches are a good part of what was timed. The shortest published
phase took 0.13 s."""
WILDEST = 0.4
"""Sigma over mean of the repeats of one test: the largest of 93 published ones is 0.27 (median 0.009)."""
STEEPEST = 4.0
"""How many times faster a test may be than the one before it in depth, beyond what is predicted: the largest published
rise is 2.4 (a noisy machine), of prompts 1.6 (a cold first one)."""
FASTEST = 4.0
"""Times the tokens of output that are expected: the fastest of 550 published runs made less than 2.6 times as many
(bench/results/speed.txt, worst cases)."""

_IMPLAUSIBLE = 3.0  # standard deviations from a prediction
_LEAST_SIDE = 0.05  # of an interval, which many results may have narrowed further, though runs lie some per cent apart

_THROUGH_AN_ADDRESS = re.compile(
    r"(?<![\w-])(?:--(?:base-url|url|api-base|endpoint|server-url|remote)\b|https?://hidden|OLLAMA_HOST=|ssh[ \t])"
)
_RPC = re.compile(r"(?<![\w-])--?rpc\b")


def doubt_of(rows: Sequence[MeasuredRow], predicted: Sequence[SpeedPoint] = ()) -> str | None:
    """Return the first reason to doubt that figures are of this config on an idle machine, as a sentence.

    `predicted`: speeds by depth, with which the change of speed with depth is compared as well.
    """
    return _too_little(rows) or _wild(rows) or _steep(rows, predicted)


def too_fast(rows: Sequence[MeasuredRow], predicted: Sequence[SpeedPoint]) -> str | None:
    """Return why output is too fast to be of this config on this machine, for which `predicted` is, or None.

    Of prompts nothing is said: one published run in 600 makes more than four times the expected.
    """
    for point in measured_speed(rows):
        expected = speed_at(predicted, point.n_kv)
        if expected and 0 < expected.tg_tps * FASTEST < point.tg_tps:
            times = f"{point.tg_tps / expected.tg_tps:.1f} times"
            made = f"TG {point.tg_tps:.3g} t/s at {point.n_kv:,} tokens"
            return f"{made} is {times} what this command is expected to reach on this machine"
    return None


def is_plausible(tps: float, low: float, high: float) -> bool:
    """Return whether a speed lies within three standard deviations of a prediction, on a logarithmic scale.

    `low` to `high`: the interval that holds 80 % of speeds, 1.28 standard deviations to each side of its middle.
    """
    if low <= 0 or high <= 0 or tps <= 0:
        return True
    middle, side = (math.log(high) + math.log(low)) / 2, (math.log(high) - math.log(low)) / 2
    return abs(math.log(tps) - middle) <= max(side, _LEAST_SIDE) * _IMPLAUSIBLE / Z80


def elsewhere(command: str, devices: Sequence[str]) -> str | None:
    """Return why part of a measurement was done by another machine, or None. `command`: reduced, `devices`: of its
    buffers.

    The benchmark programs of both engines run in one process: a command with an address measured a server that may be
    anywhere (project-nomad #1151: a remote host's speed booked to the local machine), and an RPC device is a machine
    that the stated hardware lacks.
    """
    if _RPC.search(command) or any(device.startswith("RPC") for device in devices):
        return "a part of it ran on another machine (RPC), which the hardware does not name"
    if _THROUGH_AN_ADDRESS.search(command):
        return "it was measured through an address: what answered there may be another machine"
    return None


def _too_little(rows: Sequence[MeasuredRow]) -> str | None:
    phases = (
        ("prompts", LEAST_PROMPT, [(row.n_prompt, row.pp_seconds) for row in rows]),
        ("output", LEAST_OUTPUT, [(row.n_gen, row.tg_seconds) for row in rows]),
    )
    for name, least, tests in phases:
        tokens = sum(n * len(times) for n, times in tests)
        seconds = sum(sum(times) for _, times in tests)
        if 0 < tokens < least:
            return f"{tokens} tokens of {name} in total: fewer than {least} say little"
        if tokens and seconds < LEAST_SECONDS:
            return (
                f"{seconds * 1000:.3g} ms of {name} in total: too short to time (below {LEAST_SECONDS * 1000:.0f} ms)"
            )
    return None


def _wild(rows: Sequence[MeasuredRow]) -> str | None:
    apart = spread(rows)
    if apart is None or apart <= WILDEST:
        return None
    row = max(rows, key=lambda one: _apart(one.pp_tps) + _apart(one.tg_tps))
    speeds = max(row.pp_tps, row.tg_tps, key=_apart)
    return f"the same test gave {min(speeds):.3g} to {max(speeds):.3g} t/s: the machine was doing something else"


def _apart(speeds: Sequence[float]) -> float:
    return max(speeds) / min(speeds) if speeds else 1.0


def _steep(rows: Sequence[MeasuredRow], predicted: Sequence[SpeedPoint]) -> str | None:
    points = measured_speed(rows)
    for one, other in pairwise(points):
        for name in ("pp_tps", "tg_tps"):
            rises = getattr(other, name) / getattr(one, name)
            expected = _expected(predicted, one.n_kv, other.n_kv, name)
            off = rises if expected is None else max(rises / expected, expected / rises)
            if off > STEEPEST:
                return (
                    f"{name[:2].upper()} goes from {getattr(one, name):.3g} t/s at {one.n_kv:,} tokens to "
                    f"{getattr(other, name):.3g} at {other.n_kv:,}: the machine was doing something else"
                )
    return None


def _expected(predicted: Sequence[SpeedPoint], first: int, second: int, name: str) -> float | None:
    one, other = speed_at(predicted, first), speed_at(predicted, second)
    if one is None or other is None or not getattr(one, name) or not getattr(other, name):
        return None
    return float(getattr(other, name) / getattr(one, name))


def same_figures(one: Sequence[MeasuredRow], other: Sequence[MeasuredRow]) -> bool:
    """Return whether two results are of one measurement: all figures agree within their rounding, which by chance would
    happen once in CHANCE.

    Programs print times to a millisecond and speeds to 0.01 t/s. Repeats of one test lie some 0.9 % apart, so that two
    of a second agree to half a millisecond is one case of 18; a test of a tenth of a second says next to nothing.
    """
    if len(one) != len(other):
        return False
    evidence = 1.0
    for a, b in zip(one, other, strict=True):
        if (a.n_kv, a.n_prompt, a.n_gen) != (b.n_kv, b.n_prompt, b.n_gen):
            return False
        for n, x, y in (
            *_paired(a.n_prompt, a.pp_seconds, b.pp_seconds),
            *_paired(a.n_gen, a.tg_seconds, b.tg_seconds),
        ):
            rounding = _rounding(n, x, y)
            if rounding is None:
                return False
            evidence *= max(_APART * x / rounding, 1.0)
    return evidence >= CHANCE


CHANCE = 10_000.0
_APART = 0.009  # median of sigma/mean of 102 published tests with a deviation (docs/measuring.md)
_HALF_MILLISECOND, _HALF_HUNDREDTH = 0.000_501, 0.005_01


def _paired(n: int, one: Sequence[float], other: Sequence[float]) -> list[tuple[int, float, float]]:
    """Repeats compared with each other; a different number of them agrees nowhere."""
    return [(n, x, y) for x, y in zip_longest(one, other, fillvalue=math.inf)]


def _rounding(n: int, one: float, other: float) -> float | None:
    """Return the seconds of rounding within which two times of `n` tokens are the same, or None."""
    if abs(one - other) <= _HALF_MILLISECOND:
        return _HALF_MILLISECOND
    return one * one * _HALF_HUNDREDTH / n if abs(n / one - n / other) <= _HALF_HUNDREDTH else None
