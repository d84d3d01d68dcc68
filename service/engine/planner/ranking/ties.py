"""Which others could be the first config as well: where an error of 2 % in what was stated would change the answer.

2 % of any input moves the difference of two costs by less than 0.003 in 97 of 100 pairs of configs that cost nearly the
same (`python -m bench.stability`): most of what it changes, it changes of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from service.engine.advice import Reason
from service.engine.config import Engine
from service.engine.goal import Goal
from service.engine.planner.pricing.candidate import Strategy
from service.engine.planner.pricing.fit import slack
from service.engine.planner.ranking.rank import Choice, Contender, first_by, first_of

_NOISE = 0.005  # of cost
_LESS = 0.02  # of a card's free memory


class Sort(NamedTuple):
    """What tells two configs apart for a reader; of one sort are other placements, orders of cards and batches."""

    name: str
    engine: Engine
    strategy: Strategy
    cards: tuple[str, ...]
    split_mode: str
    cache: tuple[str, str]


class Ties(NamedTuple):
    """The cheapest of each other sort that costs as much as the first config, and what comes first with 2 % less memory
    on each card (None: the same sort, or one of those)."""

    as_good: tuple[Contender, ...] = ()
    with_less_memory: Contender | None = None


def sort_of(contender: Contender) -> Sort:
    """Return the sort of a config."""
    flags, cards = contender.fitted.flags, contender.problem.rig.cards
    names = tuple(sorted(cards[i].name for i in contender.candidate.cards))
    cache = (flags.cache_type_k, flags.cache_type_v)
    return Sort(contender.name, contender.engine, contender.candidate.strategy, names, flags.split_mode, cache)


def ties(first: Contender, contenders: Sequence[Contender], goal: Goal) -> Ties:
    """Return what else could come first of all that was placed."""
    best: dict[Sort, Contender] = {}
    for c in sorted(contenders, key=lambda c: c.cost(goal)):
        best.setdefault(sort_of(c), c)
    own = best.setdefault(sort_of(first), first)
    found = list(best.values())
    choices, at = [c.choice(goal) for c in found], found.index(own)
    one_dearer = first_by(_moved(choices, at, _NOISE), goal)
    otherwise = {first_by([c.choice(goal, memory=by) for c in found], goal) for by in (1 - _LESS, 1 + _LESS)}
    as_good = [
        c
        for i, c in enumerate(found)
        if i != at
        and (
            abs(choices[i].cost - choices[at].cost) < _NOISE
            or i in (one_dearer, first_by(_moved(choices, i, -_NOISE), goal), *otherwise)
        )
    ]
    less = _with_less_memory(own, contenders, goal)
    named = less is not None and sort_of(less) in {sort_of(c) for c in as_good}
    return Ties(tuple(as_good), None if named else less)


def tie_reasons(found: Ties, ranks: Sequence[tuple[int, Sort]]) -> Iterator[Reason]:
    """Yield what is said of ties with the first config. `ranks`: of the configs that are listed, with their sorts."""
    if found.as_good:
        names = "; ".join(_named(c, ranks) for c in found.as_good)
        yield Reason("as-good", f"too close to call: if an input is 2 % off, this may be the best instead:  {names}")
    if found.with_less_memory is not None:
        name = _named(found.with_less_memory, ranks)
        yield Reason(
            "hardly-fits", f"fits only just: with 2 % less free memory on a card, this would be best instead:  {name}"
        )


def _named(contender: Contender, ranks: Sequence[tuple[int, Sort]]) -> str:
    sort = sort_of(contender)
    cards = " + ".join(dict.fromkeys(f"{sort.cards.count(name)}x {name}" for name in sort.cards)) or "the CPU"
    rank = next((f"#{rank}, " for rank, listed in ranks if listed == sort), "")
    split = f", -sm {sort.split_mode}" if sort.split_mode != "layer" else ""
    return f"{rank}{sort.name} with {sort.engine}, {sort.strategy} on {cards}, {sort.cache[0]} cache{split}"


def _with_less_memory(first: Contender, contenders: Sequence[Contender], goal: Goal) -> Contender | None:
    """What comes first without what has to be whole on cards and leaves less than 2 % of one free.

    What has weights in RAM leaves some more there and is as before.
    """
    if not _fits_by_a_hair(first):
        return None
    others = [c for c in contenders if not _fits_by_a_hair(c)]
    found = first_of(others, goal) if others else None
    return found if found is not None and sort_of(found) != sort_of(first) else None


def _moved(choices: Sequence[Choice], at: int, by: float) -> list[Choice]:
    return [one._replace(cost=one.cost + by) if i == at else one for i, one in enumerate(choices)]


def _fits_by_a_hair(contender: Contender) -> bool:
    if contender.candidate.strategy != "all on GPU":
        return False
    left = slack(contender.problem, contender.fitted.memory)
    return any(n < _LESS * device.free for n, device in zip(left, contender.problem.devices, strict=False))
