"""Apple, AMD and Intel against published speeds of one device."""

from __future__ import annotations

import statistics

import pytest

from bench.scoreboard import Line, lines, report
from service.engine.speed import coefficients


@pytest.fixture(scope="module")
def found() -> list[Line]:
    return lines()


def test_four_of_five_published_speeds_of_apple_amd_and_intel_lie_in_their_interval(found: list[Line]) -> None:
    assert len(found) > 30
    assert statistics.mean(line.inside for line in found) >= 0.8


def test_their_intervals_stay_wide_and_say_that_they_are_a_formula(found: list[Line]) -> None:
    assert {line.predicted.basis for line in found} == {"formula"}
    assert all(line.predicted.expected >= 1.99 * line.predicted.low for line in found)


@pytest.mark.parametrize("backend", ["Metal", "ROCm", "SYCL"])
@pytest.mark.parametrize("phase", ["PP", "TG"])
def test_factors_are_the_median_of_the_fitted_lines(found: list[Line], backend: str, phase: str) -> None:
    fitted = [x.error for x in found if (x.backend, x.phase, x.held_out) == (backend, phase, False)]
    assert abs(statistics.median(fitted)) < 0.01


def test_no_factor_touches_nvidia() -> None:
    assert not {"gpu_read.cuda", "gpu_compute.cuda"} & set(coefficients())


def test_the_report_shows_held_out_lines_apart(found: list[Line]) -> None:
    text = "\n".join(report(found))
    assert "| Metal, held out | PP |" in text
    assert "| ROCm, held out | TG |" in text
