"""Which config comes first: the most bits per weight that are fast enough, then the rest by the goal's time."""

from __future__ import annotations

from collections import Counter

import msgspec

from service.engine.config import Engine
from service.engine.estimate import Estimate
from service.engine.goal import Goal
from service.engine.planner.candidates import Candidate
from service.engine.planner.fit import Fitted, Problem
from service.engine.speed import Speed

MAX_CONFIGS = 8
_MAX_PER_VARIANT_AND_ENGINE = 2
_Q8_BPW = 8.5  # bits beyond Q8_0 are not counted: no one has shown them to matter


class Contender(msgspec.Struct, frozen=True):
    """A candidate that fits, with its speed at the goal's depth and the time of the goal in seconds."""

    engine: Engine
    variant: int
    bpw: float
    candidate: Candidate
    problem: Problem
    fitted: Fitted
    speed: Speed
    seconds: Estimate


def fast_enough(contender: Contender, goal: Goal) -> bool:
    """Return whether the expected speeds reach the goal's minima at its depth."""
    return contender.speed.tg.expected >= (goal.min_tg or 0) and contender.speed.pp.expected >= (goal.min_pp or 0)


def rank(contenders: list[Contender], goal: Goal) -> list[Contender]:
    """Return at most eight contenders in order, at most two of one variant and engine.

    First the fast enough one with the most bits per weight (counted up to Q8_0); the rest by the goal's time. When
    none is fast enough, the fastest comes first.
    """
    by_time = sorted(contenders, key=lambda c: c.seconds.expected)
    enough = [c for c in by_time if fast_enough(c, goal)]
    if enough:
        first = max(enough, key=lambda c: (min(c.bpw, _Q8_BPW), -c.seconds.expected))
        by_time = [first, *(c for c in by_time if c is not first)]
    return _limited(by_time)


def _limited(contenders: list[Contender]) -> list[Contender]:
    seen: Counter[tuple[Engine, int]] = Counter()
    kept = []
    for c in contenders:
        seen[c.engine, c.variant] += 1
        if seen[c.engine, c.variant] <= _MAX_PER_VARIANT_AND_ENGINE:
            kept.append(c)
    return kept[:MAX_CONFIGS]
