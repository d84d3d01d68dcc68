"""Which config comes first: the most bits per weight that are fast enough, then the rest by the goal's time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from service.engine.config import Engine
from service.engine.estimate import Estimate
from service.engine.goal import Goal
from service.engine.planner.candidates import Candidate
from service.engine.planner.fit import Fitted, Problem
from service.engine.speed import Speed

T = TypeVar("T")
MAX_CONFIGS = 8
_MAX_PER_VARIANT_AND_ENGINE = 2
_Q8_BPW = 8.5  # bits beyond Q8_0 are not counted: no one has shown them to matter
WITHOUT_MINIMUM = 2.0  # with no speed asked for, fast enough is within this factor of the fastest's time
_WORTH_SHOWING = 0.97  # a second config of one variant and engine must save 3 % of the time
_NO_ALTERNATIVE = 1.5  # another strategy that takes longer than this is none
_OUTCLASSED = 0.9  # of the time
_WORTH_A_CARD = 0.99  # one more card beside weights in RAM: less than 1 % is not worth its place in a command
_WORTH_QUANTISING = 0.95  # a quantised cache must save 5 %: its cost at depth is the least certain part
_STEP = 1.15  # what fewer bits must be faster by, to be offered beside more bits
NEXT_TO_NOTHING = 1.02  # a larger micro-batch may cost 2 % of the goal's time: longer prompts gain by it


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


def reaches(speed: Speed, goal: Goal) -> bool:
    """Return whether the expected speeds reach the goal's minima; `speed` is that at its depth."""
    return speed.tg.expected >= (goal.min_tg or 0) and speed.pp.expected >= (goal.min_pp or 0)


def fast_enough(contender: Contender, goal: Goal, fastest: float) -> bool:
    """Return whether a contender reaches the goal's minima; with none, whether it is near the `fastest` time."""
    if goal.min_tg or goal.min_pp:
        return reaches(contender.speed, goal)
    return contender.seconds.expected <= fastest * WITHOUT_MINIMUM


def rank(contenders: list[Contender], goal: Goal) -> list[Contender]:
    """Return at most eight contenders in order, at most two of one variant and engine.

    First the fast enough one with the most bits per weight (counted up to Q8_0); when none is fast enough, or for the
    goal `fastest`, the fastest. One whose split mode has a formula for its speed is never first before one that has
    not. Then by the goal's time: the first one's variant on the other engine, steps down in bits that are each 15 %
    faster, and the fastest of the rest.
    """
    by_time = _distinct(sorted(_largest_batches(contenders), key=lambda c: c.seconds.expected))
    if not by_time:
        return []
    first = _first(by_time, goal)
    others = [c for c in by_time if c is not first]
    twin = [c for c in others if c.variant == first.variant and c.engine != first.engine][:1]
    wanted = [first, *twin, *steps_down(first, others, _bits_and_time), *others]
    kept = _limited(list({id(c): c for c in wanted}.values()))
    return [first, *sorted((c for c in kept if c is not first), key=lambda c: c.seconds.expected)]


def handicapped(candidate: Candidate, seconds: float) -> float:
    """Return the seconds of a candidate, those of a quantised cache with what it has to save added."""
    return seconds if candidate.flags.cache_type_k == "f16" else seconds / _WORTH_QUANTISING


def counted_bits(bpw: float) -> float:
    """Return the bits per weight that count for quality: up to Q8_0."""
    return min(bpw, _Q8_BPW)


def first_of(contenders: list[Contender], goal: Goal) -> Contender:
    """Return the one that comes first; of equals the one that is listed first."""
    return _first(sorted(contenders, key=lambda c: c.seconds.expected), goal)


def _first(contenders: list[Contender], goal: Goal) -> Contender:
    by_time = [c for c in contenders if c.candidate.flags.split_mode == "layer"] or contenders
    if goal.preset == "fastest":
        return next((c for c in by_time if reaches(c.speed, goal)), by_time[0])
    fastest = by_time[0].seconds.expected
    enough = [c for c in by_time if fast_enough(c, goal, fastest)]
    return max(enough, key=lambda c: (counted_bits(c.bpw), -c.seconds.expected), default=by_time[0])


def steps_down(first: T, by_time: Sequence[T], measure: Callable[[T], tuple[float, float]]) -> list[T]:
    """Return those that trade bits for time, a step of 15 % each: from `first` down to the fastest.

    Only what nothing beats in both bits and time is a step; `measure` gives bits per weight and seconds.
    """
    front: list[T] = []
    for one in by_time:
        if not front or measure(one)[0] > measure(front[-1])[0]:
            front.append(one)
    steps, last = [], measure(first)[1]
    for one in reversed(front):
        if measure(one)[1] * _STEP <= last:
            steps.append(one)
            last = measure(one)[1]
    return steps


def _bits_and_time(contender: Contender) -> tuple[float, float]:
    return contender.bpw, contender.seconds.expected


def _largest_batches(contenders: list[Contender]) -> list[Contender]:
    """Of what differs by the micro-batch alone: the fastest at long prompts that costs the goal next to nothing."""
    alike: dict[object, list[Contender]] = {}
    for c in contenders:
        flags = c.fitted.flags
        kind = (c.engine, c.variant, c.candidate.cards, flags.cache_type_k, flags.cache_type_v, flags.split_mode)
        alike.setdefault(kind, []).append(c)
    found = []
    for group in alike.values():
        limit = min(c.seconds.expected for c in group) * NEXT_TO_NOTHING
        found.append(max((c for c in group if c.seconds.expected <= limit), key=lambda c: c.speed.pp.expected))
    return found


def _distinct(by_time: list[Contender]) -> list[Contender]:
    """Leave out what is hardly faster than a plainer config of the same variant and engine: f16 cache, fewer cards."""
    kept: list[Contender] = []
    for c in sorted(by_time, key=_plainness):
        same = [k for k in kept if (k.engine, k.variant) == (c.engine, c.variant)]
        if all(c.seconds.expected < k.seconds.expected * _gain_wanted(c, k) or _slower_sort(c, k) for k in same):
            kept.append(c)
    return sorted((c for c in kept if not _outclassed(c, kept)), key=lambda c: c.seconds.expected)


def _outclassed(contender: Contender, others: list[Contender]) -> bool:
    """Whether one that differs by the cards it uses alone is so much faster that fewer cards are no alternative."""

    def alike(c: Contender) -> object:
        flags = c.fitted.flags
        return c.engine, c.variant, c.candidate.strategy, flags.cache_type_k, flags.cache_type_v, flags.split_mode

    limit = contender.seconds.expected * _OUTCLASSED
    return any(c.seconds.expected < limit for c in others if alike(c) == alike(contender))


def _plainness(contender: Contender) -> tuple[bool, bool, int]:
    flags = contender.fitted.flags
    return flags.cache_type_k != "f16", flags.split_mode != "layer", len(contender.candidate.cards)


def _gain_wanted(contender: Contender, plainer: Contender) -> float:
    """What to save of the time: of more cards less is asked where the fewer leave weights in RAM."""
    if contender.fitted.flags.cache_type_k != plainer.fitted.flags.cache_type_k:
        return _WORTH_QUANTISING
    return _WORTH_SHOWING if plainer.candidate.strategy == "all on GPU" else _WORTH_A_CARD


def _slower_sort(contender: Contender, plainer: Contender) -> bool:
    """Another strategy, clearly slower: a real alternative, which ranks by its time."""
    other = contender.candidate.strategy != plainer.candidate.strategy
    slower = contender.seconds.expected / plainer.seconds.expected
    return other and 1 / _WORTH_SHOWING < slower < _NO_ALTERNATIVE


def _limited(contenders: list[Contender]) -> list[Contender]:
    seen: Counter[tuple[Engine, int]] = Counter()
    kept = []
    for c in contenders:
        seen[c.engine, c.variant] += 1
        if seen[c.engine, c.variant] <= _MAX_PER_VARIANT_AND_ENGINE:
            kept.append(c)
    return kept[:MAX_CONFIGS]
