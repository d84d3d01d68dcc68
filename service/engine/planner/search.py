"""The search: of all engines and variants, those whose configs may be shown are placed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.engine.goal import Goal
from service.engine.planner.hunt import Case, Hunt, Lost, Outcome, limits_of
from service.engine.planner.rank import MAX_CONFIGS, Contender, counted_bits, fast_enough, rank, steps_down

__all__ = ["Case", "Hunt", "Lost", "Outcome", "limits_of", "search"]

_ALTERNATIVES = 2  # candidates of other kinds (cache type, number of cards, split mode) that are placed as well,
_WITH_ALTERNATIVES = 3  # for so many of the first engines and variants


def search(cases: Sequence[Case], *, exhaustive: bool = False) -> list[Outcome]:
    """Return what every case gives. `exhaustive`: every candidate is placed, none is pruned (for tests)."""
    hunts = [Hunt(case) for case in cases]
    if exhaustive:
        for hunt in hunts:
            hunt.place_all()
        return [hunt.outcome() for hunt in hunts]
    if cases:
        _place_the_promising(hunts, cases[0].goal)
    return [hunt.outcome() for hunt in hunts]


def _place_the_promising(hunts: Sequence[Hunt], goal: Goal) -> None:
    """Place the fastest, from the most bits down until one is fast enough, then by bound until the list is full."""
    by_bound = sorted((hunt for hunt in hunts if hunt.tries), key=lambda h: h.bound)
    for hunt in by_bound[:1]:
        hunt.place_first()
    if goal.preset != "fastest":
        _place_most_bits(by_bound, goal)
    for hunt in _worth_showing(by_bound, _ranked(hunts, goal)):
        hunt.place_first()
    for hunt in by_bound:
        if len(_ranked(hunts, goal)) < MAX_CONFIGS:
            hunt.place_first()
    shown = _ranked(hunts, goal)
    with_config = [next(h for h in hunts if any(c is k for k in h.contenders)) for c in shown]
    for number, hunt in enumerate(dict.fromkeys(with_config)):
        hunt.place_rivals(_ALTERNATIVES if number < _WITH_ALTERNATIVES else 0)


def _place_most_bits(hunts: Sequence[Hunt], goal: Goal) -> None:
    """Of all that may be fast enough by their bound, those with the most bits, until one of them is."""
    fastest = min((c.seconds.expected for h in hunts for c in h.contenders), default=float("inf"))
    found = 0.0
    for hunt in sorted(hunts, key=lambda h: (-counted_bits(h.case.model.bpw), h.bound)):
        if counted_bits(hunt.case.model.bpw) < found:
            return
        if not hunt.may_be_enough(goal, fastest):
            continue
        hunt.place_first()
        if any(fast_enough(c, goal, fastest) for c in hunt.contenders):
            found = counted_bits(hunt.case.model.bpw)


def _ranked(hunts: Sequence[Hunt], goal: Goal) -> list[Contender]:
    return rank([c for hunt in hunts for c in hunt.contenders], goal)


def _worth_showing(by_bound: Sequence[Hunt], ranked: Sequence[Contender]) -> Iterator[Hunt]:
    """The first one's variant on the other engine, and by their bounds the steps down in bits and up in speed."""
    if not ranked:
        return
    first = ranked[0]
    yield from (h for h in by_bound if h.case.variant == first.variant and h.case.engine != first.engine)
    own = next(h for h in by_bound if any(c is first for c in h.contenders))
    yield from steps_down(own, by_bound, lambda hunt: (hunt.case.model.bpw, hunt.bound))
