"""Campaigns: cases of which some are in every run, and all in the full one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import settings

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
        values: tuple[Any, ...] = case if isinstance(case, tuple) and type(case) is tuple else (case,)
        chosen.append(pytest.param(*values, marks=pytest.mark.full if left_out else ()))
    return chosen


def models_on_engines(first: int = 0) -> list[Any]:
    """Return every (model, engine): every run has each ninth model, from `first` on, on one engine after the other."""
    names = model_names()
    pairs: list[tuple[str, Engine]] = []
    for i, name in enumerate((*names[first:], *names[:first])):
        pairs += [(name, ENGINES[(i // 9 + n) % len(ENGINES)]) for n in range(len(ENGINES))]
    return some_of(pairs, every=9 * len(ENGINES))


def examples(number: int, **others: Any) -> settings:
    """Return the settings of a property that takes `number` examples in the full run, and a quarter in every run."""
    profile: Any = settings.default
    return settings(max_examples=max(number * profile.max_examples // 100, 1), **others)
