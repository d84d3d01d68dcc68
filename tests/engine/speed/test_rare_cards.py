"""Cards that few owners published: the runs of perf_cards_unseen.jsonl are in no fit (docs/speed.md)."""

from __future__ import annotations

import math
import statistics

import msgspec
import pytest

from bench import runs
from bench.conformal import Guess, guess
from bench.fit import rows_of_tests
from bench.runs import CARDS, setups
from service.engine.calibration import shipped
from service.engine.catalogue import resolve
from service.engine.config import Flags
from service.engine.hardware import Card
from service.engine.hardware_text import parse_hardware
from service.engine.run.resolved import resolve_run
from service.engine.speed.predict import predict_speed
from tests.engine.speed.machines import RTX_3090, all_on_gpu, card, devices, rig
from tests.models import build

QWEN = build("Qwen3-14B", "q4_K")
UNSEEN = CARDS.with_name("perf_cards_unseen.jsonl")
RADEON_VII = card("Radeon VII", "vega20", 16, 1024, 53.8, 26.9, backend="vulkan")


@pytest.fixture(scope="module")
def unseen() -> list[tuple[str, Guess]]:
    rows = rows_of_tests(test for setup in setups((UNSEEN,))[0] for test in runs.tests_of(setup, every=True))
    values = {name: p.value for name, p in shipped().parameters.items()}
    return [(row.test.setup.case["id"], guess(row, values)) for row in rows]


def test_prompts_of_polaris_that_no_fit_has_seen_come_out_within_a_third(unseen: list[tuple[str, Guess]]) -> None:
    """An RX 480 and an RX 570 of two owners. They came out at a third of their speed."""
    errors = [g.error for ident, g in unseen if g.phase == "pp" and ("rx480" in ident or "rx570" in ident)]
    assert len(errors) == 6
    assert max(abs(error) for error in errors) < math.log(4 / 3)
    assert abs(statistics.median(errors)) < math.log(1.2)


def test_intervals_hold_the_speeds_of_rare_cards_that_no_fit_has_seen(unseen: list[tuple[str, Guess]]) -> None:
    """Four of five, as they say, but for Intel's with Mesa 24.2: those are slower than any interval allows."""
    old_driver = {ident for ident, _ in unseen if ident.startswith("rillomas") and ident.endswith("linux")}
    held = [abs(g.error) <= math.log(g.factor(shipped().intervals)) for ident, g in unseen if ident not in old_driver]
    assert len(held) == 36
    assert statistics.mean(held) >= 0.8


def test_cards_without_int8_products_multiply_prompts_at_twice_the_rate_of_fp16() -> None:
    """INT8 that the catalogue gives at FP16's rate is no rate of products of int8 on GCN and Vega."""
    without = _prompt(msgspec.structs.replace(RADEON_VII, int8_tops=RADEON_VII.fp16_tflops))
    assert without == pytest.approx(_prompt(RADEON_VII))
    ampere = msgspec.structs.replace(RTX_3090, backend="vulkan", int8_tops=RTX_3090.fp16_tflops)
    assert _prompt(ampere) < _prompt(msgspec.structs.replace(RTX_3090, backend="vulkan"))


@pytest.mark.parametrize("generation", ["alchemist", "battlemage", "xe2"])
def test_speeds_of_intel_in_vulkan_hang_on_the_driver(generation: str) -> None:
    """An A770, a B580 and an Arc 140V were 2.5 to 3 times as slow with Mesa 24.2 as under Windows (one owner); an Arc
    Pro B70 made half as many tokens with Mesa 26.0.3, 26.0.6 and 26.0.8 as with 26.2.2 (three owners)."""
    tg, pp = _least(card("Arc", generation, 16, 560, 200, 40, backend="vulkan"))
    assert tg >= 2
    assert pp >= 2


def test_speeds_of_gcn_in_vulkan_under_windows_hang_on_the_driver() -> None:
    """A Pro VII had a quarter of the prompt speed, and half of the tokens, of others with RADV."""
    tg, pp = _least(RADEON_VII, windows=True)
    assert tg >= 2
    assert pp >= 4
    tg, pp = _least(RADEON_VII)
    assert tg < 2
    assert pp < 4


def test_a_jetson_orin_makes_less_of_its_chip_than_cards_do() -> None:
    """An AGX Orin (MAXN) makes 14.5 t/s of Qwen2.5-14B in Q4_K_M and reads 455 of a prompt; as a card it was predicted
    at 17.7 and 847. One owner, so the interval is wide."""
    model = build("Qwen2.5-14B", "token_embd=q4_K,output=q6_K,ffn_down=q5_K,attn_v=q5_K,*=q4_K")
    of = resolve(parse_hardware("Jetson AGX Orin 64GB"))
    run = resolve_run("llama.cpp", model, Flags(flash_attn="on"), of, devices(of), placement=all_on_gpu(model))
    speed = predict_speed(run, 0)
    assert speed.tg.expected == pytest.approx(14.5, rel=0.15)
    assert speed.pp.expected == pytest.approx(455, rel=0.15)
    assert speed.tg.low <= speed.tg.expected / 2


def _prompt(one: Card) -> float:
    of = rig(one)
    return predict_speed(
        resolve_run("llama.cpp", QWEN, Flags(), of, devices(of), placement=all_on_gpu(QWEN)), 0
    ).pp.expected


def _least(one: Card, windows: bool = False) -> tuple[float, float]:
    of = msgspec.structs.replace(rig(one), os="windows" if windows else "linux")
    speed = predict_speed(resolve_run("llama.cpp", QWEN, Flags(), of, devices(of), placement=all_on_gpu(QWEN)), 0)
    return speed.tg.expected / speed.tg.low, speed.pp.expected / speed.pp.low
