"""GPUs that work on every layer together (-sm graph)."""

from __future__ import annotations

import pytest

from service.engine.config import Flags
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.run.resolved import resolve_run
from service.engine.speed.predict import Speed, predict_speed
from tests.engine.speed.machines import P40, RTX_3090, all_on_gpu, card, devices, rig
from tests.models import build

DENSE = build("Qwen3-32B", "q4_K")
FOUR_KV_HEADS = build("Qwen3-235B-A22B", "q4_K")


def speed(model: Model, mode: str, n_kv: int, n: int = 2, of: Rig | None = None) -> Speed:
    machine = of or rig(*[RTX_3090] * n)
    flags = Flags(split_mode=mode, n_ubatch=2048)
    return predict_speed(
        resolve_run("ik_llama.cpp", model, flags, machine, devices(machine), placement=all_on_gpu(model, n)), n_kv
    )


@pytest.mark.parametrize("n_kv", [0, 32_768])
def test_cards_together_are_faster_than_one_after_the_other(n_kv: int) -> None:
    graph, layer = speed(DENSE, "graph", n_kv), speed(DENSE, "layer", n_kv)
    assert 1.2 < graph.tg.expected / layer.tg.expected < 2
    assert 1.2 < graph.pp.expected / layer.pp.expected < 2


def test_the_gain_of_small_active_experts_comes_with_depth() -> None:
    model = build("Qwen3-30B-A3B", "q4_K")
    gain = [speed(model, "graph", d).tg.expected / speed(model, "layer", d).tg.expected for d in (0, 65_536)]
    assert gain[0] < 1.1 < gain[1]


def test_attention_is_cut_into_no_more_parts_than_kv_heads() -> None:
    four, eight = (
        speed(FOUR_KV_HEADS, "graph", 65_536, n, rig(*[card("H", "ampere", 192, 936, 284, 31.5)] * n)) for n in (4, 8)
    )
    assert eight.parts_tg["attention"] == pytest.approx(four.parts_tg["attention"], rel=0.05)


def test_the_slowest_share_decides() -> None:
    slow = rig(RTX_3090, P40)
    assert speed(DENSE, "graph", 0, 2, slow).tg.expected < speed(DENSE, "graph", 0).tg.expected


def test_one_card_has_nothing_to_split() -> None:
    assert speed(DENSE, "graph", 0, 1).tg == speed(DENSE, "layer", 0, 1).tg


@pytest.mark.parametrize("mode", ["graph", "layer"])
def test_parts_add_up_to_the_predicted_time(mode: str) -> None:
    found = speed(DENSE, mode, 8192)
    assert sum(found.parts_tg.values()) == pytest.approx(1 / found.tg.expected)
    assert sum(found.parts_pp.values()) == pytest.approx(found.n_ubatch / found.pp.expected)
    assert min(found.parts_tg.values()) >= 0
    assert min(found.parts_pp.values()) >= 0
