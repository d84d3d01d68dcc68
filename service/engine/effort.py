"""What computing an advice costs, estimated before it is begun: CPU seconds by the size of the question.

Fitted to `python -m bench.effort` (bench/results/effort.txt): most of an advice is placing candidates, of which a
search places about the same number however many it considers; one placement takes longer the more cards share a model.
Right to about a factor of two for usual models; one whose layers read from further back takes longer, which its budget
ends.
"""

from __future__ import annotations

import msgspec

_OF_CARD, _MOST_FORECASTS, _FORECAST_SECONDS = 12, 350, 0.0002  # candidates of one variant and engine, a card and kind
_PLACEMENT_SECONDS, _OF_CARDS = 0.01, 0.012  # one placement without cards; more for each card
_MOST_PLACEMENTS, _FIRST_PLACEMENTS, _OF_VARIANT = 16.0, 3.0, 2.4  # of one engine
_OF_QUESTION, _ADDED = 24.0, 4  # placements of a question about other hardware, and cards that it may add


class Effort(msgspec.Struct, frozen=True):
    """How large a question is. `cards`: GPUs, one by one, of so many `kinds`; `what_if`: questions of that sort."""

    variants: int
    cards: int
    kinds: int
    engines: int
    what_if: int = 0


def estimated_seconds(effort: Effort) -> float:
    """Return the CPU seconds that an advice is estimated to take, headers read."""
    forecasts = effort.engines * effort.variants * min(_MOST_FORECASTS, _OF_CARD * effort.cards * effort.kinds)
    own = effort.engines * min(_MOST_PLACEMENTS, _FIRST_PLACEMENTS + _OF_VARIANT * effort.variants)
    asked = effort.what_if * _OF_QUESTION * _placement(effort.cards + _ADDED)
    return forecasts * _FORECAST_SECONDS + own * _placement(effort.cards) + asked


def _placement(cards: int) -> float:
    return _PLACEMENT_SECONDS + _OF_CARDS * cards
