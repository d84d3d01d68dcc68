"""The fit: linear algebra, steps, limits, intervals."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from bench.calibrate import training_rows, written
from bench.conformal import fitted_intervals, guess
from bench.fit import Row
from service.engine.speed import calibration, coefficients
from service.engine.speed.calibration import Calibration
from service.engine.speed.fitting import Fit, cholesky, solve


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [row for row in training_rows() if row.test.setup.group == "AesSedai"]


def test_a_factor_solves_its_equations() -> None:
    numbers = random.Random(1)
    half = [[numbers.gauss(0, 1) for _ in range(6)] for _ in range(6)]
    matrix = [
        [sum(a * b for a, b in zip(x, y, strict=True)) + 6 * (i == j) for j, y in enumerate(half)]
        for i, x in enumerate(half)
    ]
    right = [numbers.gauss(0, 1) for _ in range(6)]
    x = solve(cholesky(matrix), right)
    assert [sum(a * b for a, b in zip(line, x, strict=True)) for line in matrix] == pytest.approx(right)


def test_steps_bring_errors_down_and_stay_above_the_limits(rows: list[Row]) -> None:
    fit = Fit(rows, calibration().parameters)
    at = fit.start()
    first = fit.slopes(at)
    for _ in range(3):
        at = fit.step(at, fit.slopes(at), lambda _: True)
    last = fit.slopes(at)

    def total(slopes: list) -> float:  # type: ignore[type-arg]
        return sum(abs(s.error) for s in slopes)

    assert total(last) < total(first)
    for name, known in calibration().parameters.items():
        assert at.values[name] >= known.least


def test_a_parameter_without_runs_keeps_its_prior(rows: list[Row]) -> None:
    fit = Fit(rows, calibration().parameters)
    at = fit.step(fit.start(), fit.slopes(fit.start()), lambda _: True)
    assert at.values["gpu_read.pascal"] == pytest.approx(calibration().parameters["gpu_read.pascal"].prior)


def test_no_shipped_value_passes_its_physical_limit_or_lacks_a_prior() -> None:
    for name, p in calibration().parameters.items():
        assert p.value >= p.least, name
        assert p.prior > 0, name
        assert p.source in {"published runs", "one-device scoreboard", "prior"}, name


def test_intervals_hold_four_of_five_errors_of_their_class(rows: list[Row]) -> None:
    guesses = [guess(row, dict(coefficients())) for row in rows]
    found = fitted_intervals(guesses, calibration().intervals)
    for kind in {g.kind for g in guesses}:
        of_kind = [g for g in guesses if g.kind == kind]
        inside = sum(abs(g.error) <= math.log(g.factor(found)) + 1e-3 for g in of_kind)
        assert inside / len(of_kind) >= 0.7, kind


def test_the_written_file_reads_back() -> None:
    assert msgspec.json.decode(written(calibration()), type=Calibration) == calibration()
