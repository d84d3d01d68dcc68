"""Prompts on more threads than a hybrid CPU has performance cores, as posted (tests/data/perf_2026.jsonl)."""

from __future__ import annotations

import statistics

import msgspec
import pytest

from bench.fit import rows_of_tests
from bench.runs import setups
from bench.runs import tests_of as of_case
from service.engine.calibration import shipped
from service.engine.catalogue import resolve
from service.engine.config import Flags
from service.engine.hardware_text import parse_hardware
from service.engine.speed.machine import machine_of


def cycles(cpu: str, threads: int) -> tuple[float, float]:
    """The cycles a second of a token and of a batch on so many threads, over those of the default."""
    rig, p = resolve(parse_hardware(f"{cpu}, 64GB, no GPU")), shipped().coefficients
    asked, default = (machine_of(rig, (), Flags(threads=n), p) for n in (threads, None))
    return asked.token_cpu.cycles / default.token_cpu.cycles, asked.batch_cpu.cycles / default.batch_cpu.cycles


@pytest.mark.full
def test_posted_prompts_on_the_cores_of_a_machine_that_was_named_and_not_counted() -> None:
    """A Core Ultra 7 270K Plus with 18 threads: 0.47 to 0.63 of the posted speeds were predicted without the others."""
    rig = resolve(parse_hardware("RTX PRO 6000, Core Ultra 7 270K Plus, 224GB DDR5"))
    posted = [s for s in setups()[0] if s.case["id"].startswith("daim-step37-")]
    ratios = []
    for setup in posted:
        named = msgspec.structs.replace(
            setup.rig, physical_cores=rig.physical_cores, efficient_cores=rig.efficient_cores
        )
        mine = msgspec.structs.replace(setup, rig=named, whole=None)
        prompts = [t for t in of_case(mine, every=True) if t.phase == "PP"]
        ratios += [row.error(dict(shipped().coefficients)) for row in rows_of_tests(prompts)]
    assert len(ratios) == 9
    assert abs(statistics.median(ratios)) < 0.1
    assert max(map(abs, ratios)) < 0.3


@pytest.mark.parametrize(("cpu", "threads", "low", "high"), [("i9-13900K", 24, 1.4, 1.8), ("285K", 24, 2.0, 2.4)])
def test_efficiency_cores_add_to_prompts_by_the_width_of_their_vectors(
    cpu: str, threads: int, low: float, high: float
) -> None:
    token, batch = cycles(cpu, threads)
    assert token == 1
    assert low < batch < high


@pytest.mark.parametrize("cpu", ["Ryzen 9 7950X", "i9-10900X", "Rockchip RK3588", "Core Ultra 9 285HX"])
def test_threads_beyond_the_cores_of_other_cpus_add_nothing(cpu: str) -> None:
    assert cycles(cpu, 64) == (1, 1)


def test_threads_beyond_all_cores_add_nothing() -> None:
    assert cycles("i9-13900K", 24) == cycles("i9-13900K", 32)
