"""The speed model against published runs, all rooms together. In-sample: a guard against breaking it, no promise."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict

import pytest

from bench.speed import Point, as_of, collect, stated_order
from service.engine.config import Flags
from tests.engine.speed.machines import RTX_3090, RTX_4090, RTX_5090, rig


@pytest.fixture(scope="module")
def points() -> list[Point]:
    return collect()[0]


def errors(points: list[Point], phase: str) -> list[float]:
    by_case: dict[str, list[float]] = defaultdict(list)
    for point in points:
        if point.phase == phase:
            by_case[point.case].append(point.error)
    return sorted(abs(statistics.median(of_case)) for of_case in by_case.values())


@pytest.mark.parametrize(("phase", "median", "p80"), [("TG", 1.15, 1.35), ("PP", 1.30, 1.75)])
def test_published_runs_come_out_within_the_errors_that_the_docs_state(
    points: list[Point], phase: str, median: float, p80: float
) -> None:
    found = errors(points, phase)
    assert len(found) > 150
    assert math.exp(statistics.median(found)) < median
    assert math.exp(found[int(0.8 * len(found))]) < p80


@pytest.mark.parametrize("phase", ["TG", "PP"])
def test_intervals_hold_at_least_three_of_four_published_speeds(points: list[Point], phase: str) -> None:
    inside = [p.predicted.low <= p.observed <= p.predicted.high for p in points if p.phase == phase]
    assert statistics.mean(inside) > 0.75


def test_a_flag_left_out_means_what_it_meant_at_the_date() -> None:
    old = as_of(Flags(), "llama-sweep-bench -m x", "ik_llama.cpp", "2025-05-01")
    assert (old.flash_attn, old.fused_moe, old.mla) == ("off", False, 0)
    assert as_of(Flags(), "llama-sweep-bench -m x", "ik_llama.cpp", "2026-01-01") == Flags()
    assert as_of(Flags(mla=1), "llama-sweep-bench -fa -fmoe -mla 1", "ik_llama.cpp", "2025-05-01") == Flags(mla=1)


def test_a_stated_order_of_devices_is_kept() -> None:
    cards = rig(RTX_5090, RTX_4090, RTX_4090, RTX_3090)
    assert stated_order(cards, "CUDA order 4090,5090,4090,3090 as printed") == (1, 0, 2, 3)
    assert stated_order(cards, "") == (0, 1, 2, 3)
