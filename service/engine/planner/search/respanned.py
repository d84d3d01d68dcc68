"""The best config placed again from other starts: a local search that moves one boundary at a time stays near its own.

Each start costs a few replays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice

from msgspec.structs import replace

from service.engine.planner.pricing.candidate import Cards
from service.engine.planner.pricing.fit import Placed
from service.engine.planner.ranking.rank import Contender
from service.engine.planner.search.fitting import PLACEMENT_FIELDS
from service.engine.planner.search.layout import Starts, on_first_cards
from service.engine.planner.search.layout_flags import starts_of
from service.engine.planner.search.placement import PlacementSearch

_MOST_OF_OTHERS = 3
_HOPELESS = 1.01  # times the best one's seconds: replays that correct a layout seldom gain more


def respanned(best: Contender, others: Sequence[Contender]) -> Placed | None:
    """Return the fastest placement found from several starts, None where `best` has one card or nothing in RAM.

    They are its own spans, those of the cheapest of `others` on some of its cards, and all blocks on one card or on the
    first ones.
    """
    candidate, problem, stated = best.candidate, best.problem, set(best.candidate.user_fields)
    if candidate.strategy != "FFN in RAM" or len(candidate.cards) < 2 or stated & set(PLACEMENT_FIELDS):
        return None
    flags = replace(best.fitted.flags, n_gpu_layers=999, overrides=(), tensor_split=(), n_cpu_moe=0, cpu_moe=False)
    search, found = PlacementSearch(problem, flags, whole=False), None
    # An engine's own placement may leave the last slot in RAM: the head, which the last card gets here.
    for spans in dict.fromkeys((*starts[:-1], search.n_slots) for starts in _spans(best, others, search.n_slots)):
        found = _faster_from(search, spans, found)
    return _faster_from(search, starts_of(found.fitted.placement, len(candidate.cards)), found) if found else None


def _faster_from(search: PlacementSearch, spans: Starts, known: Placed | None) -> Placed | None:
    limit = known.seconds * _HOPELESS if known else math.inf
    found = search.search_from(spans, widely=False, limit=limit)
    if isinstance(found, Placed) and (known is None or found.seconds < known.seconds):
        return found
    return known


def _spans(best: Contender, others: Sequence[Contender], n_slots: int) -> Iterator[Starts]:
    cards = best.candidate.cards
    n = len(cards)
    yield starts_of(best.fitted.placement, n)
    alike = (c for c in others if c is not best and set(c.candidate.cards) <= set(cards))
    on_cards = (c for c in alike if c.candidate.strategy in ("FFN in RAM", "all on GPU"))
    yield from islice(dict.fromkeys(_spans_of(cards, c) for c in on_cards), _MOST_OF_OTHERS)
    for card in range(1, n):
        yield on_first_cards(n_slots, card, n)
        yield (*[0] * (card + 1), *[n_slots] * (n - card))


def _spans_of(cards: Cards, other: Contender) -> Starts:
    """The spans of a config on some of these cards, perhaps in another order, as spans of all of them."""
    starts = starts_of(other.fitted.placement, len(other.candidate.cards))
    blocks = {card: starts[i + 1] - starts[i] for i, card in enumerate(other.candidate.cards)}
    return (0, *accumulate(blocks.get(card, 0) for card in cards))
