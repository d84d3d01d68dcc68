"""Tuning by measuring: configs around a start that are worth measuring, in as little of a host's time as possible.

Each of these steps fits by the memory model. They are measured by successive halving: all of them for a short while,
the best third three times as long, and so on until one is clearly best.

Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", 2016; a third as in
Hyperband (Li et al., 2018). What decides is the time of the goal's request with its spread, not one speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from service.engine.config import Flags
from service.engine.estimate import Estimate
from service.engine.planner.pricing.candidate import Candidate, Cards
from service.engine.planner.pricing.fit import Fitted, Problem, check
from service.engine.planner.pricing.logits import smaller_benchmark, with_all_logits
from service.engine.planner.search.one_variant import VariantSearch
from service.engine.planner.search.outcome import SearchCase
from service.engine.units import GIB

MOST_STEPS = 18
_TOO_SLOW = 1.6  # times the start's predicted time: predictions for two such configs are not that far off
_SHARES_OF_CORES = (1.0, 0.75, 0.5)  # both engines lose where threads wait for memory (docs/offloading.md)
_MORE_RESERVE = 4  # times the usual reserve: a layer's experts less on each card, in case that margin is too small
_DEFAULT_RESERVE = 512


class Step(msgspec.Struct, frozen=True):
    """One config to measure: its flags, how it differs from the start in words, and the goal's predicted time."""

    flags: Flags
    changed: str
    seconds: Estimate


def steps_around(case: SearchCase, cards: Cards, start: Flags) -> tuple[Step, ...]:
    """Return the start and at most 17 configs around it, these by their predicted time.

    They use the same cards in the same order, with other micro-batches, cache types and split modes, each with its best
    placement; with fewer experts on the cards; a layer moved between two cards; or fewer threads. All fit, as a
    benchmark too, and keep the constraints. `start`: the flags of its benchmark.
    """
    search = _placed(case, cards)
    problem = search.contenders[0].problem if search.contenders else None
    first = check(problem, start) if problem else None
    if problem is None or not isinstance(first, Fitted):
        return ()
    found = {start: first}
    for other in _others(case, cards, problem, search, first):
        smaller = smaller_benchmark(problem, other)
        fitted = problem.tried(msgspec.structs.replace(other.flags, n_ubatch=smaller.n_ubatch)) if smaller else other
        fitted = with_all_logits(problem, fitted)
        found.setdefault(fitted.flags, fitted)
    steps = [Step(f.flags, _changed(first, f), problem.seconds(f)) for f in found.values()]
    limit = steps[0].seconds.expected * _TOO_SLOW
    near = sorted((s for s in steps[1:] if s.seconds.expected <= limit), key=lambda s: s.seconds.expected)
    return (steps[0], *near[: MOST_STEPS - 1])


def _placed(case: SearchCase, cards: Cards) -> VariantSearch:
    search = VariantSearch(case)
    search.queue = [one for one in search.queue if one.candidate.cards == cards]
    search.place_all()
    return search


def _others(case: SearchCase, cards: Cards, problem: Problem, search: VariantSearch, first: Fitted) -> Iterator[Fitted]:
    yield from (contender.fitted for contender in search.contenders)
    reserve = case.constraints.reserve_mib
    if cards and _in_ram(first) and (reserve is None or isinstance(reserve, int)):
        more = msgspec.structs.replace(case.constraints, reserve_mib=_MORE_RESERVE * (reserve or _DEFAULT_RESERVE))
        same = [c for c in _placed(case._replace(constraints=more), cards).contenders if _alike(c.candidate, first)]
        yield from (contender.fitted for contender in same)
    for flags in (*_threads(case, first), *_shifted(first.flags)):
        fitted = check(problem, flags)
        if isinstance(fitted, Fitted):
            yield fitted


def _alike(candidate: Candidate, first: Fitted) -> bool:
    fields = ("n_ubatch", "cache_type_k", "cache_type_v", "split_mode")
    return all(getattr(candidate.flags, name) == getattr(first.flags, name) for name in fields)


def _threads(case: SearchCase, first: Fitted) -> Iterator[Flags]:
    if not _in_ram(first):
        return
    for share in _SHARES_OF_CORES:
        threads = max(2, int(case.rig.physical_cores * share) // 2 * 2)
        yield msgspec.structs.replace(first.flags, threads=threads)


def _shifted(flags: Flags) -> Iterator[Flags]:
    """Flags with a layer moved from one card to the next or back, where `-ts` counts layers."""
    shares = flags.written_split
    for i in range(len(shares) - 1):
        for step in (1, -1):
            moved = [*shares]
            moved[i], moved[i + 1] = moved[i] + step, moved[i + 1] - step
            if min(moved) >= 0 and sum(shares) > len(shares):
                yield msgspec.structs.replace(flags, tensor_split=tuple(moved))


def _in_ram(fitted: Fitted) -> bool:
    """Whether blocks' weights lie in RAM; the token embedding always does."""
    cpu = fitted.placement.n_devices
    return any(place == cpu for name, place in fitted.placement.tensors.items() if name.startswith("blk."))


def _changed(start: Fitted, other: Fitted) -> str:
    before, after = start.flags, other.flags
    words = [
        f"{option} {_shown(getattr(after, field))}"
        for field, option in _OPTIONS.items()
        if getattr(after, field) != getattr(before, field)
    ]
    was, now = (fitted.memory.devices[-1].weights / GIB for fitted in (start, other))
    if abs(now - was) >= 0.05:
        words.append(f"{now:.1f} GiB of weights in RAM instead of {was:.1f}")
    elif before.overrides != after.overrides:
        words.append("other tensors in RAM")
    return ", ".join(words) or "as advised"


_OPTIONS = {
    "n_ubatch": "-ub",
    "cache_type_k": "-ctk",
    "cache_type_v": "-ctv",
    "split_mode": "-sm",
    "tensor_split": "-ts",
    "threads": "-t",
    "op_offload": "copies for batches",
    "n_gpu_layers": "-ngl",
}


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{share:g}" for share in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


_KEPT = 3  # one of so many steps goes on to the next rung
SHORTEST = 30.0  # seconds of measuring below which a sweep has too few rows
LONGEST = 600.0


class Trial(msgspec.Struct, frozen=True):
    """A step to measure now: its index, in which rung, and for how many seconds."""

    step: int
    rung: int
    seconds: float


class Tried(msgspec.Struct, frozen=True):
    """A step that was measured: the goal's time by the measurement (None: it failed), and the seconds that it took."""

    step: int
    rung: int
    goal_seconds: Estimate | None
    spent: float


class Next(msgspec.Struct, frozen=True):
    """What to do next: trials; or none, with the `best` step (None: every step failed) and why tuning is over."""

    trials: tuple[Trial, ...]
    best: int | None
    why: str


def next_trials(n_steps: int, tried: Sequence[Tried], budget: float) -> Next:
    """Return what to measure next of steps 0 (the start) to `n_steps` - 1, best predicted first, in `budget` seconds.

    The same arguments give the same answer, so that a restart continues where it was. The start is always in the first
    rung. Tuning is over when the best is clear (its slowest beats the second's fastest) or alone, or the budget is
    spent.
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
        order = sorted((done[step] for step in begun if done[step].goal_seconds), key=_expected)
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
    """The fastest step of the last rung in which any ran: longer measurements are more certain."""
    ran = [t for t in tried if t.goal_seconds]
    last = max((t.rung for t in ran), default=0)
    return min((t for t in ran if t.rung == last), key=_expected).step if ran else None
