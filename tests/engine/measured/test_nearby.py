"""What near configs say of an estimate: their mean, shrunken to nothing where they say nothing."""

from __future__ import annotations

import math

import pytest

from service.engine.measured.nearby import Nearness, Observation, corrected, correction
from tests.speeds import point

SAME = Nearness(variant=True, engine=True)
FAR = Nearness(variant=False, engine=False, model=False)
WIDE = 0.24  # what the published errors of tokens scatter by


def of(error: float, source: str = "a", nearness: Nearness = SAME) -> Observation:
    return Observation(source, nearness, {"tg": error, "pp": error})


def test_one_near_result_moves_an_estimate_most_of_the_way_and_narrows_it() -> None:
    made = correction(WIDE, "tg", [of(math.log(1.5))])
    assert 1.35 < math.exp(made.shift) < 1.5
    assert made.spread < 0.65 * WIDE


def test_more_sources_move_it_further_and_repeats_of_one_do_not() -> None:
    one, two = (correction(WIDE, "tg", them).shift for them in ([of(0.4)], [of(0.4), of(0.4, "b")]))
    again = correction(WIDE, "tg", [of(0.4), of(0.4)]).shift
    assert one == again < two < 0.4


def test_of_one_source_the_nearest_counts() -> None:
    assert correction(WIDE, "tg", [of(0.4), of(-0.9, nearness=FAR)]) == correction(WIDE, "tg", [of(0.4)])


def test_a_corrected_point_says_on_how_many_results_and_keeps_its_depth() -> None:
    before = point(4096, 500, 20, factor=1.36)
    after = corrected(before, [of(math.log(1.2)), of(math.log(1.3), "b")])
    assert after.basis == "calibrated on 2 results"
    assert after.n_kv == 4096
    assert 22 < after.tg_tps < 26
    assert after.tg_high / after.tg_low < before.tg_high / before.tg_low
    assert after.tg_low < after.tg_tps < after.tg_high


def test_without_results_or_without_an_interval_nothing_changes() -> None:
    before = point(0, 500, 20, factor=1.3)
    assert corrected(before, []) == before
    known = point(0, 500, 20, factor=1.0)
    assert corrected(known, [of(0.3)]) == known


def test_what_is_more_than_three_times_off_says_nothing_of_others() -> None:
    assert correction(WIDE, "tg", [of(math.log(0.2))]).shift == 0
    assert correction(WIDE, "tg", [of(math.log(0.2)), of(0.2, "b")]) == correction(WIDE, "tg", [of(0.2, "b")])


@pytest.mark.parametrize("error", [-1.0, 0.0, 1.0])
def test_no_correction_passes_what_was_seen(error: float) -> None:
    shift = correction(WIDE, "pp", [of(error), of(error, "b"), of(error, "c")]).shift
    assert abs(shift) <= abs(error)
