"""Placements against a lower bound: a slice of `python -m bench.planner`, and what that measure rests on."""

from __future__ import annotations

import random
from itertools import product

import pytest

from bench.placing.problems import published_problem
from bench.placing.written import written
from bench.planner import WITHIN, found, judged


@pytest.mark.parametrize("seed", [3, 7, 15])
def test_sums_over_blocks_are_the_seconds_where_they_are_taken_and_never_above_them(seed: int) -> None:
    rng, ours = random.Random(seed), found(published_problem(seed))
    linear, problem = ours.linear, ours.linear.problem
    starts, wheres = linear.read(linear.at)
    assert linear.seconds(starts, wheres) == pytest.approx(linear.request.seconds(linear.work))
    n_slots = problem.model.n_layer + 1
    ways = list(product(range(linear.n_cards + 1), repeat=2))
    for _ in range(5):
        starts = (0, *sorted(rng.randint(0, n_slots) for _ in range(linear.n_cards - 1)), n_slots)
        wheres = tuple(rng.choice(ways)[: len(block.pieces)] for block in linear.blocks)
        flags = written(problem, linear.flags, starts, wheres)
        assert flags is not None
        tried = problem.tried(flags)
        assert linear.read(tried.placement) == (starts, wheres)
        priced = linear.priced(tried)
        assert priced * 0.97 < linear.seconds(starts, wheres) <= priced * (1 + 1e-7)


@pytest.mark.full
def test_a_placement_of_a_published_model_is_near_the_bound() -> None:
    row = judged(19)
    assert row.name.startswith("19: Ling-3.0-flash")
    assert row.most <= WITHIN
