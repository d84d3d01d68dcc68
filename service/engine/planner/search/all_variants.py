"""The search: of all engines and variants, those whose configs may be shown are placed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from service.engine.advice import Pick
from service.engine.goal import Goal
from service.engine.planner.ranking.rank import (
    DAMAGED,
    MAX_CONFIGS,
    SPARE,
    SPARE_WORTH,
    Line,
    Ranked,
    lines,
    rank,
    spare_worth,
)
from service.engine.planner.search.known_buffers import KnownBuffers
from service.engine.planner.search.one_variant import VariantSearch
from service.engine.planner.search.outcome import Outcome, SearchCase

_ALTERNATIVES = 2  # candidates of other kinds (cache type, number of cards, split mode) that are placed as well,
_WITH_ALTERNATIVES = 3  # for so many of the first engines and variants
Report = Callable[[str, int, int], None]  # what is being done, how far, of how many
_ROUNDS = 6  # of placing, before the competitors of those that are shown
_PICKS: tuple[Pick | None, ...] = (None, "quality", "fast")


def unheard(stage: str, done: int, of: int) -> None:
    """The report that nobody listens to."""


def search(cases: Sequence[SearchCase], *, exhaustive: bool = False, report: Report = unheard) -> list[Outcome]:
    """Return what every case gives. `exhaustive`: every candidate is placed, none is pruned (for tests)."""
    searches, buffers = [], KnownBuffers()
    for number, case in enumerate(cases, 1):
        report("comparing variants", number, len(cases))
        searches.append(VariantSearch(case, buffers))
    if exhaustive:
        for variant in searches:
            variant.place_all()
        return [one.outcome() for one in searches]
    if cases:
        _place_the_promising(searches, cases[0].goal, report)
    return [one.outcome() for one in searches]


def _place_the_promising(searches: Sequence[VariantSearch], goal: Goal, report: Report) -> None:
    """Place those that may be picked, the first one on the other engine, then those that may get a line."""
    in_all = _ROUNDS + MAX_CONFIGS
    by_bound = sorted((one for one in searches if one.queue), key=lambda v: v.bound)
    for number, pick in enumerate(_PICKS, 1):
        report("placing configs", number, in_all)
        _place_the_best(by_bound, goal, pick)
    report("placing configs", _ROUNDS - 2, in_all)
    first = _ranked(searches, goal).order[:1]
    for variant in by_bound:
        if any(variant.case.variant == c.variant for c in first):
            variant.place_first()
    report("placing configs", _ROUNDS - 1, in_all)
    for variant in _lines(by_bound, goal)[:MAX_CONFIGS]:
        variant.place_first()
    report("placing configs", _ROUNDS, in_all)
    shown = _ranked(searches, goal).order
    for variant in sorted((v for v in by_bound if not v.n_placed), key=lambda v: v.loss > DAMAGED):
        if len(shown) < MAX_CONFIGS:
            variant.place_first()
            shown = _ranked(searches, goal).order
    with_config = [next(v for v in searches if any(c is k for k in v.contenders)) for c in shown]
    for number, variant in enumerate(dict.fromkeys(with_config)):
        report("placing configs", min(_ROUNDS + number + 1, in_all), in_all)
        variant.place_competitors(_ALTERNATIVES if number < _WITH_ALTERNATIVES else 0)
    for best in _ranked(searches, goal).order[:1]:
        next(v for v in searches if any(c is best for c in v.contenders)).place_nearest()


def _place_the_best(searches: Sequence[VariantSearch], goal: Goal, pick: Pick | None) -> None:
    """In the order of the least that each may cost, until none that is left may cost less than the best placed one.

    What leaves memory of the cards spare may cost as much more as `rank` allows for it.
    """
    best, spare = float("inf"), SPARE_WORTH
    for least, variant in sorted(((v.least_cost(goal, pick), v) for v in searches), key=lambda pair: pair[0]):
        if least >= best + spare:
            return
        limit = best + (spare if pick is None and _leaves_spare(variant) else 0.0)
        if variant.least_cost(goal, pick) >= limit:  # by what was learned since of buffers
            continue
        variant.place_first()
        for contender in variant.contenders:
            if (found := contender.cost(goal, pick)) < best:
                best, spare = found, spare_worth(contender.cards_left())


def _leaves_spare(variant: VariantSearch) -> bool:
    """Whether its weights fill so little of the cards that `rank` may prefer it for its quality."""
    return variant.case.model.n_bytes <= (1 - SPARE) * sum(card.free for card in variant.case.rig.cards)


def _ranked(searches: Sequence[VariantSearch], goal: Goal) -> Ranked:
    return rank([c for one in searches for c in one.contenders], goal)


def _lines(searches: Sequence[VariantSearch], goal: Goal) -> list[VariantSearch]:
    """What may get a line in the list, by forecasts: of each variant the engine that may cost less."""
    best: dict[int, tuple[float, VariantSearch]] = {}
    for least, variant in sorted(((v.least_cost(goal), v) for v in searches), key=lambda pair: pair[0]):
        best.setdefault(variant.case.variant, (least, variant))
    return [v for _, v in lines(list(best.values()), lambda p: Line(p[1].case.name, p[1].loss, p[1].bound, p[0]))]
