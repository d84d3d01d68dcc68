"""The crowd that the database is measured with is the same from a seed, and could be real."""

from __future__ import annotations

from bench.crowd import crowd
from service.engine.measured.classes import speeds_by_depth


def test_a_crowd_is_the_same_from_a_seed_and_uneven_as_in_life() -> None:
    once, again = list(crowd(300, 7, 20)), list(crowd(300, 7, 20))
    assert once == again
    assert len({one.id for one in once}) == 300
    models = [one.model_slug for one in once]
    common = max(models.count(name) for name in set(models))
    assert 10 < common < 100
    assert 50 < len(set(models)) < 250
    assert all(speeds_by_depth(one.rows) for one in once)
    assert {one.tier for one in once} == {"self-reported", "agent-run", "replicated"}
