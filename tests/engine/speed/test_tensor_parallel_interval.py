"""Cards that work together read together: the limit of an interval is that of all of them."""

from __future__ import annotations

import pytest

from service.engine.catalogue import engine_devices, resolve
from service.engine.config import Engine, Flags
from service.engine.hardware_text import parse_hardware
from service.engine.run.placement import place
from service.engine.run.resolved import resolve_run
from service.engine.speed.predict import predict_speed
from tests.models import build


@pytest.mark.parametrize(("engine", "mode"), [("ik_llama.cpp", "graph"), ("llama.cpp", "tensor")])
def test_the_expected_speed_lies_within_its_interval(engine: Engine, mode: str) -> None:
    model, flags = build("Llama-3.3-70B", "q4_K_M"), Flags(n_ctx=16384, split_mode=mode)
    rig = resolve(parse_hardware("2x RTX 3090, Ryzen 9 5950X, 64GB DDR4-3600"))
    devices = engine_devices(rig, engine, range(2))
    placement = place(engine, model, flags, [d.free for d in devices])
    for n_kv in (0, 4096, 16384):
        tg = predict_speed(resolve_run(engine, model, flags, rig, devices, placement=placement), n_kv).tg
        assert tg.low <= tg.expected <= tg.high
