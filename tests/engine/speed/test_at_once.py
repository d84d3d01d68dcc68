"""Several requests at once, held to published tables."""

from __future__ import annotations

import math
import statistics

from bench.at_once import ratios, run_of, tables
from service.engine.speed.generation import token_seconds
from service.engine.speed.machine import machine_of
from service.engine.speed.predict import at_once, evaluation, predict_speed
from service.engine.speed.sums import work_of


def test_most_published_figures_lie_within_the_interval() -> None:
    errors = sorted(abs(math.log(ratio)) for table in tables() for n, ratio in ratios(table) if n > 1)
    assert statistics.median(errors) < math.log(1.2)
    assert errors[int(0.8 * len(errors))] < math.log(1.5)


def test_one_request_at_once_is_a_token() -> None:
    run = run_of(tables()[0])
    p, work = run.rig.calibration.coefficients, work_of(run)
    machine = machine_of(run.rig, run.devices, run.flags, p)
    assert evaluation(work, machine, p, 1, 4_000) == token_seconds(work, machine, p, 4_000)


def test_more_at_once_are_faster_together_and_slower_each() -> None:
    run = run_of(tables()[-1])
    alone = predict_speed(run, 1_000).tg.expected
    found = [at_once(run, n, 1_000).expected for n in (2, 4, 8, 16, 32)]
    assert found == sorted(found)
    each = [tps / n for tps, n in zip(found, (2, 4, 8, 16, 32), strict=True)]
    assert [alone, *each] == sorted([alone, *each], reverse=True)
