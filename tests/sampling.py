"""Campaigns: cases of which some are in every run, and all in the full one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import pytest

from service.engine.config import ENGINES, Engine
from tests.models import model_names

Case = TypeVar("Case")


def some_of(cases: Sequence[Case], every: int, group: Callable[[Case], Hashable] = lambda case: None) -> list[Any]:
    """Return the parameters of a test: every run has the first of each group and every `every`th behind it."""
    seen: Counter[Hashable] = Counter()
    chosen = []
    for case in cases:
        left_out = seen[group(case)] % every != 0
        seen[group(case)] += 1
        values = case if type(case) is tuple else (case,)
        chosen.append(pytest.param(*values, marks=pytest.mark.full if left_out else ()))
    return chosen


def models_on_engines(first: int = 0) -> list[Any]:
    """Return every (model, engine): each model is in every run on one of the engines, `first` on that of the first."""
    pairs: list[tuple[str, Engine]] = []
    for i, name in enumerate(model_names()):
        pairs += [(name, ENGINES[(first + i + n) % len(ENGINES)]) for n in range(len(ENGINES))]
    return some_of(pairs, every=len(ENGINES))
