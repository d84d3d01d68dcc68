"""KV caches that people posted from real cards: equal to ours, but where the build of the time or the post differs."""

from __future__ import annotations

import pytest

from bench.memory_published import CACHE_TARGET, NOT_EXPLAINED, Figure, cache_cause, caches

FIGURES = caches()


def test_the_posted_caches_are_read() -> None:
    assert len(FIGURES) > 130
    assert sum(abs(figure.error) <= CACHE_TARGET for figure in FIGURES) > 0.96 * len(FIGURES)


@pytest.mark.parametrize("figure", [f for f in FIGURES if abs(f.error) > CACHE_TARGET], ids=lambda f: f.row.id)
def test_a_posted_cache_of_another_size_has_a_cause(figure: Figure) -> None:
    assert cache_cause(figure) != NOT_EXPLAINED
