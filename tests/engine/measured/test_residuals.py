"""What others measured on the same cards says of an estimate, and how little any of them can make it say."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from service.engine.measured.residuals import CUT, Residual, shared, with_residuals
from tests.speeds import point

PRIOR = 0.2
LEAST, MOST = math.log(0.3), math.log(3.0)


def of(error: float, owner: str = "a", weight: float = 1.0) -> Residual:
    return Residual(owner, {"tg": error, "pp": error}, weight)


def owners(errors: list[float], weight: float = 1.0) -> list[Residual]:
    return [of(error, f"owner {n}", weight) for n, error in enumerate(errors)]


def shift(observed: list[Residual]) -> float:
    return shared(PRIOR, "tg", observed).shift


def test_owners_who_agree_move_an_estimate_the_further_the_more_they_are_and_narrow_it() -> None:
    made = [shared(PRIOR, "tg", owners([0.1] * n)) for n in (0, 1, 3, 7, 30)]
    assert made[0].shift == 0
    assert made[0].spread == PRIOR
    assert all(a.shift < b.shift < 0.1 and a.spread > b.spread for a, b in pairwise(made))
    assert made[3].shift > 0.06


def test_of_a_thousand_results_of_one_owner_the_median_counts_as_one_voice() -> None:
    honest = owners([0.02, -0.03, 0.05])
    assert shift([*honest, *[of(MOST, "many")] * 1000]) == shift([*honest, *[of(MOST, "many")] * 10])
    assert shift([of(0.01, "x"), of(0.05, "x"), of(0.9, "x")]) == shift([of(0.05, "x")])


@pytest.mark.parametrize("claim", [LEAST, MOST])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 9, 40])
def test_no_single_owner_moves_what_others_are_told_by_more_than_3_percent(n: int, claim: float) -> None:
    chance = random.Random(n)
    for errors in ([chance.gauss(0, 0.2) for _ in range(n)], [-CUT] * n, [CUT] * n):
        for weight in (0.1, 0.449, 0.5, 1.0):
            honest = owners(errors, weight)
            moved = shift([*honest, of(claim, "liar")]) - shift(honest)
            assert math.exp(abs(moved)) - 1 <= 0.03


@pytest.mark.parametrize("claim", [LEAST, MOST])
@pytest.mark.parametrize("n", [9, 18, 45, 900])
def test_a_tenth_of_the_owners_colluding_move_it_by_no_more_either(n: int, claim: float) -> None:
    for honest in ([-CUT] * n, [CUT] * n, [0.0] * n):
        liars = [of(claim, f"liar {i}") for i in range(n // 9)]
        moved = shift([*owners(honest), *liars]) - shift(owners(honest))
        assert math.exp(abs(moved)) - 1 <= 0.03


def test_all_owners_together_move_it_by_no_more_than_one_voice_may_say() -> None:
    assert shift(owners([MOST] * 500)) < CUT


def test_owners_who_disagree_widen_an_estimate() -> None:
    assert shared(PRIOR, "tg", owners([-0.9, 0.8, -0.7, 0.9, 0.0])).spread > 2 * PRIOR
    assert shared(PRIOR, "tg", owners([0.05, 0.04, 0.06, 0.05, 0.05])).spread < PRIOR


def test_what_is_only_said_counts_less() -> None:
    assert 0 < shift([of(0.1, weight=0.5)]) < shift([of(0.1)])
    assert shift([of(0.1, weight=0.5), of(0.1, weight=1.0)]) == shift([of(0.1)])


def test_what_is_more_than_three_times_off_says_nothing() -> None:
    assert shared(PRIOR, "tg", [of(math.log(0.2))]).shift == 0


def test_a_point_moves_with_its_interval_and_stays_where_nobody_measured() -> None:
    before = point(4096, 500, 20, factor=1.36)
    after = with_residuals(before, owners([0.1] * 6))
    assert 20 < after.tg_tps < 22
    assert after.tg_low < after.tg_tps < after.tg_high
    assert after.basis == "calibrated on 6 results"
    assert with_residuals(before, []) == before
    known = point(0, 500, 20, factor=1.0)
    assert with_residuals(known, owners([0.1])) == known
