"""Placements against the best there are: a slice of `python -m bench.planner`, and what that measure rests on."""

from __future__ import annotations

import random
from itertools import product

import pytest

from bench.placing.exact import RESOLUTION, everything, optimum
from bench.placing.linear import all_starts
from bench.placing.problems import short_problem
from bench.placing.written import written
from bench.planner import WITHIN, found, judged_real, judged_short
from service.engine.planner.fit import Fitted


@pytest.mark.parametrize(("seed", "n_layers", "n_cards"), [(1, 3, 1), (2, 3, 1), (3, 2, 2), (6, 2, 2)])
def test_the_exact_search_finds_what_replaying_every_placement_finds(seed: int, n_layers: int, n_cards: int) -> None:
    ours = found(short_problem(seed, [n_layers], [n_cards]))
    best = optimum(ours.linear, float("inf"), None)
    assert best.seconds == pytest.approx(everything(ours.linear), rel=RESOLUTION)


@pytest.mark.parametrize("seed", [1, 4, 7, 12])
def test_sums_over_blocks_are_the_seconds_where_they_are_taken_and_never_above_them(seed: int) -> None:
    rng, ours = random.Random(seed), found(short_problem(seed))
    linear, problem = ours.linear, ours.linear.problem
    starts, wheres = linear.read(linear.at)
    assert linear.seconds(starts, wheres) == pytest.approx(linear.request.seconds(linear.work))
    runs = list(all_starts(linear.n_cards, problem.model.n_layer + 1))
    ways = list(product(range(linear.n_cards + 1), repeat=2))
    for _ in range(20):
        starts = rng.choice(runs)
        wheres = tuple(rng.choice(ways)[: len(block.pieces)] for block in linear.blocks)
        flags = written(problem, linear.flags, starts, wheres)
        assert flags is not None
        memory = problem.memory(flags)
        assert linear.read(memory.placement) == (starts, wheres)
        priced = linear.priced(Fitted(flags, memory))
        assert priced * 0.97 < linear.seconds(starts, wheres) <= priced * (1 + 1e-7)


@pytest.mark.parametrize("seed", [1, 3, 7, 8])
def test_a_placement_of_a_short_model_is_the_best_there_is(seed: int) -> None:
    assert judged_short(seed).most <= WITHIN


def test_a_placement_of_a_published_model_is_near_the_bound() -> None:
    judged = judged_real(7)
    assert judged.name.startswith("real 7: Qwen3-Next-80B-A3B")
    assert judged.most <= WITHIN
