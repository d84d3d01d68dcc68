"""Successive halving: all steps for a short while, the best third three times as long, until one is clearly best.

Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", 2016; a third as in
Hyperband (Li et al., 2018). What decides is the time of the goal's request with its spread, not one speed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from service.engine.estimate import Estimate

_KEPT = 3  # one of three goes on
SHORTEST = 30.0  # seconds of measuring below which a sweep has too few rows
LONGEST = 600.0


class Trial(msgspec.Struct, frozen=True):
    """A step to measure now: its index, in which rung, and for how many seconds."""

    step: int
    rung: int
    seconds: float


class Tried(msgspec.Struct, frozen=True):
    """A step that was measured: the goal's time by what was measured (None: it failed), and the seconds it took."""

    step: int
    rung: int
    goal_seconds: Estimate | None
    spent: float


class Next(msgspec.Struct, frozen=True):
    """What to do now: trials, or none more, and then the `best` step (None: every step failed) and why it is over."""

    trials: tuple[Trial, ...]
    best: int | None
    why: str


def next_trials(n_steps: int, tried: Sequence[Tried], budget: float) -> Next:
    """Return what to measure next of steps 0 (the start) to `n_steps` - 1, best predicted first, in `budget` seconds.

    The same arguments give the same answer: asking again after a restart goes on where it was. The start is
    always in the first rung. Over when the best is clear (its slowest beats the second's fastest), alone, or the budget
    is spent.
    """
    rung, begun = 0, _first_rung(n_steps, budget)
    while True:
        done = {t.step: t for t in tried if t.rung == rung}
        waiting = [step for step in begun if step not in done]
        left = budget - sum(t.spent for t in tried)
        length = _length(rung, n_steps, budget)
        if waiting:
            if left < min(length, SHORTEST):
                return Next((), _best(tried), "the budget is spent")
            return Next(tuple(Trial(step, rung, min(length, left)) for step in waiting), None, "")
        order = _in_order([done[step] for step in begun])
        over = _over(order, left)
        if over:
            return Next((), order[0].step if order else _best(tried), over)
        begun = [t.step for t in order[: max(1, math.ceil(len(begun) / _KEPT))]]
        if len(begun) == 1:
            return Next((), begun[0], "the fastest of those measured")
        rung += 1


def _first_rung(n_steps: int, budget: float) -> list[int]:
    """As many steps as can be measured SHORTEST seconds each in the first rung's share of the budget."""
    return list(range(min(n_steps, max(1, int(budget / (_rungs(n_steps) * SHORTEST))))))


def _rungs(n_steps: int) -> int:
    return max(1, math.ceil(math.log(max(n_steps, 2), _KEPT)))


def _length(rung: int, n_steps: int, budget: float) -> float:
    n_first = len(_first_rung(n_steps, budget))
    even = budget / _rungs(n_steps) / n_first
    return min(LONGEST, max(SHORTEST, even * float(_KEPT) ** rung))


def _in_order(tried: Sequence[Tried]) -> list[Tried]:
    return sorted((t for t in tried if t.goal_seconds), key=_expected)


def _expected(one: Tried) -> float:
    return one.goal_seconds.expected if one.goal_seconds else math.inf


def _over(order: Sequence[Tried], left: float) -> str | None:
    if not order:
        return "every step failed"
    if len(order) == 1:
        return "it is the only one that ran"
    first, second = order[0].goal_seconds, order[1].goal_seconds
    if first and second and first.high < second.low:
        return "the best is clear: its slowest repeat beats the second's fastest"
    return "the budget is spent" if left < SHORTEST else None


def _best(tried: Sequence[Tried]) -> int | None:
    """The fastest of the last rung that any step ran in: times of a longer measurement count for more."""
    ran = [t for t in tried if t.goal_seconds]
    last = max((t.rung for t in ran), default=0)
    return min((t for t in ran if t.rung == last), key=_expected).step if ran else None
