"""What rules a speed, and what faster RAM would gain."""

from __future__ import annotations

import pytest

from service.engine.run.resolved import resolve_run
from service.engine.speed.predict import limit_of, predict_speed
from tests.engine.speed.machines import RTX_5090, devices, hybrid_flags, rig, spread
from tests.models import build

MODEL = build("GLM-4.5-Air", "exps=q4_K,*=q8_0")


def test_experts_in_ram_make_ram_the_limit_of_tokens() -> None:
    machine = rig(RTX_5090)
    run = resolve_run("ik_llama.cpp", MODEL, hybrid_flags(), machine, devices(machine), placement=spread(MODEL, 1))
    limit = limit_of(run, predict_speed(run, 0).parts_tg, "tg", 0)
    assert limit.resource == "RAM and CPU"
    assert limit.share == max(limit.share, 1 - 1 / limit.gains["GPU"])
    assert 1 < limit.ram < 4 / 3


def test_gains_are_what_is_left_without_the_part() -> None:
    machine = rig(RTX_5090)
    placement = spread(MODEL, 1, experts_on_gpu=range(MODEL.n_layer))
    run = resolve_run("ik_llama.cpp", MODEL, hybrid_flags(), machine, devices(machine), placement=placement)
    parts = predict_speed(run, 0).parts_tg
    limit = limit_of(run, parts, "tg", 0)
    left = sum(parts.values()) - parts["weights on GPU"] - parts["attention"]
    assert limit.gains["GPU"] == pytest.approx(sum(parts.values()) / left)
    assert limit.ram == pytest.approx(1)
