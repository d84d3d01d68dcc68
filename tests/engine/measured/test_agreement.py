"""When two measurements agree, and when one is an outlier of its cell."""

from __future__ import annotations

import math

import pytest

from service.engine.calibration import shipped
from service.engine.measured.nearby import TOLERANCE, Phase, Place, agree, outlier
from tests.speeds import point

ONE = [point(0, 900, 40), point(8192, 700, 30)]


def test_two_runs_agree_within_less_than_two_deviations_of_the_difference_of_two_configs() -> None:
    for (phase, place), stated in TOLERANCE.items():
        own = shipped().comparisons[f"{phase}.{place}"].own
        assert stated <= math.expm1(2 * math.sqrt(2) * own) + 0.03


@pytest.mark.parametrize(
    ("pp", "tg", "place", "expected"),
    [(1.1, 1.05, "gpu", True), (1.1, 1.1, "gpu", False), (1.1, 1.1, "cpu", True), (1.3, 1.0, "cpu", False)],
)
def test_both_phases_must_lie_within_the_tolerance_of_their_place(
    pp: float, tg: float, place: Place, expected: bool
) -> None:
    other = [point(0, 900 * pp, 40 * tg), point(8192, 700 * pp, 30 * tg)]
    assert agree(ONE, other, place) is expected
    assert agree(other, ONE, place) is expected


def test_what_has_no_depth_in_common_does_not_agree() -> None:
    assert not agree(ONE, [point(32_768, 400, 20)], "gpu")


def cell(*tg: float) -> list[list[object]]:
    return [[point(0, 900, speed)] for speed in tg]


@pytest.mark.parametrize(
    ("others", "own", "word"),
    [
        ((40, 41, 39), 80.0, "2.0 times above what 3 others"),
        ((40, 41, 39, 40), 20.0, "2.0 times below"),
        ((40, 41, 39), 43.0, None),  # within agreement
        ((20, 80, 40, 60), 100.0, None),  # they do not agree with each other either
        ((40, 41), 400.0, None),  # two others are no spread
    ],
)
def test_an_outlier_lies_beyond_the_spread_of_its_cell(others: tuple[float, ...], own: float, word: str | None) -> None:
    found = outlier([point(0, 900, own)], cell(*others), "gpu")  # type: ignore[arg-type]
    assert (found is None) if word is None else (word in (found or ""))


def test_each_phase_has_a_tolerance_on_both_places() -> None:
    phases: tuple[Phase, ...] = ("tg", "pp")
    assert set(TOLERANCE) == {(phase, place) for phase in phases for place in ("cpu", "gpu")}
