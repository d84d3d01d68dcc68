"""The search over all engines and variants: all are forecast, and those whose configs may be shown are placed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from service.engine.advice import Pick
from service.engine.goal import Goal
from service.engine.hardware import Rig
from service.engine.planner.ranking.rank import (
    DAMAGED,
    LESS_LOSS,
    MAX_CONFIGS,
    MUCH_FASTER,
    SPARE,
    SPARE_WORTH,
    Contender,
    Line,
    Ranked,
    lines,
    rank,
    spare_worth,
)
from service.engine.planner.ranking.utility import OTHER_BUILD
from service.engine.planner.search.forecasts import KnownBuffers
from service.engine.planner.search.one_variant import VariantSearch
from service.engine.planner.search.outcome import Outcome, SearchCase
from service.engine.planner.search.refining import keep_whole_layers, refine

_ALTERNATIVES = 2  # candidates of other kinds (cache types, number of cards, split mode) placed as competitors
_WITH_ALTERNATIVES = 3  # of so many of the engines and variants that are shown, the first ones
_NEAR = 0.1  # of cost: how far above the first one is what may come first with whole layers in RAM
Report = Callable[[str, int, int], None]  # told of progress: the stage, the steps done, and the steps in all
_STEPS_BEFORE_COMPETITORS = 6  # of the progress of placing
_STEPS = _STEPS_BEFORE_COMPETITORS + MAX_CONFIGS
_OTHER_PICKS: tuple[Pick, ...] = ("quality", "fast")


def no_report(stage: str, done: int, of: int) -> None:
    """Report progress to nobody."""


def search(
    cases: Sequence[SearchCase], *, exhaustive: bool = False, only_first: bool = False, report: Report = no_report
) -> list[Outcome]:
    """Return the outcome of each case in turn.

    `exhaustive`: every candidate is placed, none is pruned (for tests). `only_first`: only what may come first is
    placed, nothing for the rest of the list.
    """
    searches, buffers = [], KnownBuffers()
    for number, case in enumerate(cases, 1):
        report("comparing variants", number, len(cases))
        searches.append(VariantSearch(case, buffers))
    if exhaustive:
        for variant in searches:
            variant.place_all()
        return [one.outcome() for one in searches]
    if cases:
        goal, by_bound = cases[0].goal, sorted((one for one in searches if one.queue), key=lambda v: v.bound)
        report("placing configs", 1, _STEPS)
        _place_the_best(by_bound, goal)
        if only_first:
            _place_first_on_all_engines(searches, goal)
        else:
            _place_the_list(searches, by_bound, goal, report)
        _refine_the_best(searches, goal)
    return [one.outcome() for one in searches]


def of_one_build(
    outcomes: Sequence[Outcome], usual: Rig, goal: Goal, in_use: str | None = None
) -> tuple[Rig, list[Outcome]]:
    """Return the best of one machine's rigs, which differ in their back end, and the outcomes for it.

    The back end `in_use` is kept. Else another than the `usual` one has to be worth building for it (`OTHER_BUILD`).
    """

    def cost(rig: Rig) -> float:
        if rig.cards[0].backend == in_use:
            return -math.inf
        costs = [c.cost(goal) for o in outcomes if o.case.rig is rig for c in o.contenders]
        return min(costs, default=math.inf) + (0.0 if rig is usual else OTHER_BUILD)

    others = {id(o.case.rig): o.case.rig for o in outcomes if o.case.rig is not usual and o.case.rig.cards}
    best = min([usual, *others.values()], key=cost)
    return best, [o for o in outcomes if o.case.rig is best or not o.case.rig.cards]


def _place_first_on_all_engines(searches: Sequence[VariantSearch], goal: Goal) -> None:
    """Place the first one's variant on the other engine, and the competitors of both."""
    for first in _ranked(searches, goal).order[:1]:
        alike = [one for one in searches if one.queue and one.case.variant == first.variant]
        for variant in alike:
            variant.place_first()
        for variant in alike:
            variant.place_competitors(_ALTERNATIVES)


def _place_the_list(
    searches: Sequence[VariantSearch], by_bound: Sequence[VariantSearch], goal: Goal, report: Report
) -> None:
    """Place what may be picked, the first one's variant on the other engine, and what may get a line in the list.

    `by_bound`: the searches with something to place, by their lower bounds.
    """
    for number, pick in enumerate(_OTHER_PICKS, 2):
        report("placing configs", number, _STEPS)
        for best in _ranked(searches, goal).order[:1]:
            _place_the_best([v for v in by_bound if _may_be(v, pick, best)], goal, pick, best.cost(goal, pick))
    report("placing configs", _STEPS_BEFORE_COMPETITORS - 2, _STEPS)
    first = _ranked(searches, goal).order[:1]
    for variant in by_bound:
        if any(variant.case.variant == c.variant for c in first):
            variant.place_first()
    report("placing configs", _STEPS_BEFORE_COMPETITORS - 1, _STEPS)
    for variant in _lines(by_bound, goal)[:MAX_CONFIGS]:
        variant.place_first()
    report("placing configs", _STEPS_BEFORE_COMPETITORS, _STEPS)
    shown = _ranked(searches, goal).order
    for variant in sorted((v for v in by_bound if not v.n_placed), key=lambda v: v.loss > DAMAGED):
        if len(shown) < MAX_CONFIGS:
            variant.place_first()
            shown = _ranked(searches, goal).order
    for number, variant in enumerate(dict.fromkeys(_search_of(searches, contender) for contender in shown)):
        report("placing configs", min(_STEPS_BEFORE_COMPETITORS + number + 1, _STEPS), _STEPS)
        variant.place_competitors(_ALTERNATIVES if number < _WITH_ALTERNATIVES else 0)


def _refine_the_best(searches: Sequence[VariantSearch], goal: Goal) -> None:
    for best in _ranked(searches, goal).order[:1]:
        for variant in searches:
            if variant.contenders and variant.least() < best.cost(goal) + _NEAR:
                keep_whole_layers(variant)
    for best in _ranked(searches, goal).order[:1]:
        refine(_search_of(searches, best))


def _search_of(searches: Sequence[VariantSearch], contender: Contender) -> VariantSearch:
    return next(one for one in searches if any(c is contender for c in one.contenders))


def _may_be(variant: VariantSearch, pick: Pick, first: Contender) -> bool:
    """Whether a variant may differ enough from the first config to be a pick."""
    if pick == "quality":
        return variant.loss < first.loss - LESS_LOSS
    least = min((one.seconds for one in variant.queue), default=float("inf"))
    return least * MUCH_FASTER < first.seconds.expected


def _place_the_best(
    searches: Sequence[VariantSearch], goal: Goal, pick: Pick | None = None, best: float = float("inf")
) -> None:
    """Place variants in the order of their lower bounds, until no bound is below the cost of the best placed one, or
    below `best`.

    A variant that leaves enough of the cards' memory free is placed at up to `spare_worth` more than that, for which
    `rank` may prefer it for its quality.
    """
    spare = SPARE_WORTH
    for least, variant in sorted(((v.least_cost(goal, pick), v) for v in searches), key=lambda pair: pair[0]):
        if least >= best + spare:
            return
        limit = best + (spare if pick is None and _leaves_spare(variant) else 0.0)
        if variant.least_cost(goal, pick) >= limit:  # known buffers have raised it since
            continue
        variant.place_first()
        for contender in variant.contenders:
            if (found := contender.cost(goal, pick)) < best:
                best, spare = found, spare_worth(contender.cards_left())


def _leaves_spare(variant: VariantSearch) -> bool:
    """Whether its weights leave so much of the cards' memory that `rank` may prefer it for its quality."""
    return variant.case.model.n_bytes <= (1 - SPARE) * sum(card.free for card in variant.case.rig.cards)


def _ranked(searches: Sequence[VariantSearch], goal: Goal) -> Ranked:
    return rank([c for one in searches for c in one.contenders], goal)


def _lines(searches: Sequence[VariantSearch], goal: Goal) -> list[VariantSearch]:
    """What may get a line in the list by its forecasts, each variant with the engine of the lower bound."""
    best: dict[int, tuple[float, VariantSearch]] = {}
    for least, variant in sorted(((v.least_cost(goal), v) for v in searches), key=lambda pair: pair[0]):
        best.setdefault(variant.case.variant, (least, variant))
    return [v for _, v in lines(list(best.values()), lambda p: Line(p[1].case.name, p[1].loss, p[1].bound, p[0]))]
