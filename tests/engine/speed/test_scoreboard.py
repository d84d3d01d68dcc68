"""Cards of every back end against published speeds of one device."""

from __future__ import annotations

import statistics

import pytest

from bench.scoreboard import Line, lines, report
from service.engine.calibration import shipped


@pytest.fixture(scope="module")
def found() -> list[Line]:
    return lines()


def test_four_of_five_published_speeds_lie_in_their_interval(found: list[Line]) -> None:
    assert len(found) > 200
    assert statistics.mean(line.inside for line in found) >= 0.75


def test_lines_that_the_fit_never_saw_are_as_near_as_others(found: list[Line]) -> None:
    errors = {
        held_out: statistics.median(abs(x.error) for x in found if x.held_out is held_out) for held_out in (True, False)
    }
    assert errors[True] < 1.5 * errors[False] + 0.05


def test_generations_without_published_lines_stay_a_formula(found: list[Line]) -> None:
    names = shipped().parameters
    for line in found:
        if line.predicted.basis == "formula":
            assert line.predicted.expected >= 1.99 * line.predicted.low
    assert "gpu_compute.rocm.rdna4" in names
    assert "gpu_compute.rocm.rdna1" not in names


def test_the_report_shows_held_out_lines_apart(found: list[Line]) -> None:
    text = "\n".join(report(found))
    for backend in ("CUDA", "Metal", "ROCm", "Vulkan"):
        assert f"| {backend}, held out | PP |" in text
