"""The fit: linear algebra, steps, limits, intervals."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec
import pytest

from bench import runs
from bench.calibrate import written
from bench.conformal import fitted_intervals, guess
from bench.fit import Row, rows_of_tests
from service.engine.calibration import Calibration, shipped
from service.engine.speed.fitting import Fit, cholesky, solve


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    mine = [s for s in runs.setups(runs.DATA[:1])[0] if s.group == "AesSedai"]
    return rows_of_tests(test for one in mine for test in runs.tests_of(one, every=False))


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


@pytest.mark.full
def test_steps_bring_errors_down_and_stay_above_the_limits(rows: list[Row]) -> None:
    fit = Fit(rows, shipped().parameters)
    at = fit.start()
    first = fit.slopes(at)
    for _ in range(3):
        at = fit.step(at, fit.slopes(at))
    last = fit.slopes(at)

    def total(slopes: list[Any]) -> float:
        error: float = sum(abs(s.error) for s in slopes)
        return error

    assert total(last) < total(first)
    for name, known in shipped().parameters.items():
        assert at.values[name] >= known.least


class _Measured(msgspec.Struct, frozen=True):
    """A speed that one parameter predicts: `times` what its value says."""

    offset: str
    times: float
    weight: float = 100.0

    def error(self, p: dict[str, float]) -> float:
        return math.log(p["a"] * self.times)


def test_what_only_one_group_shows_is_gone_without_it() -> None:
    known = msgspec.structs.replace(shipped().parameters["gpu_read.pascal"], prior=1.0, prior_spread=5.0, least=0.0)
    others = [_Measured(f"other {i}", 1 / 2.0) for i in range(3)]
    mine = [_Measured(f"mine {i}", 1 / 8.0) for i in range(12)]
    fit = Fit([*others, *mine], {"a": known})
    at = fit.start()
    for _ in range(12):
        at = fit.step(at, fit.slopes(at))
    without = fit.without(at, fit.slopes(at), lambda row: row.offset.partition(" ")[0])
    assert at.values["a"] > 6
    assert without["mine"]["a"] == pytest.approx(2, rel=0.02)
    assert without["other"]["a"] == pytest.approx(8, rel=0.02)


@pytest.mark.full
def test_each_test_of_llama_bench_has_a_context_of_its_own() -> None:
    setup = next(s for s in runs.setups()[0] if s.case["id"] == "djip007-780m-120b")
    prompts = [test for test in runs.tests_of(setup, every=False) if test.phase == "PP"]
    assert [test.run.n_ubatch for test in prompts] == [512, 1024, 2048, 4096]


@pytest.mark.full
def test_a_parameter_without_runs_keeps_its_prior(rows: list[Row]) -> None:
    fit = Fit(rows, shipped().parameters)
    at = fit.step(fit.start(), fit.slopes(fit.start()))
    assert at.values["gpu_read.pascal"] == pytest.approx(shipped().parameters["gpu_read.pascal"].prior)


def test_no_shipped_value_passes_its_physical_limit_or_lacks_a_prior() -> None:
    for name, p in shipped().parameters.items():
        assert p.value >= p.least, name
        assert p.prior > 0, name
        assert p.source in {"published runs", "one-device scoreboard", "GPU day", "prior"}, name


def test_intervals_hold_four_of_five_errors_of_their_class(rows: list[Row]) -> None:
    guesses = [guess(row, dict(shipped().coefficients)) for row in rows]
    found = fitted_intervals(guesses, shipped().intervals)
    for kind in {g.kind for g in guesses}:
        of_kind = [g for g in guesses if g.kind == kind]
        inside = sum(abs(g.error) <= math.log(g.factor(found)) + 1e-3 for g in of_kind)
        assert inside / len(of_kind) >= 0.7, kind


def test_the_written_file_reads_back() -> None:
    assert msgspec.json.decode(written(shipped()), type=Calibration) == shipped()
