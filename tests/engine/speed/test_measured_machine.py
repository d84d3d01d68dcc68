"""What a machine's owner measured is taken as it is, and narrows the interval."""

from __future__ import annotations

import pytest

from service.engine.catalogue import engine_devices, resolve
from service.engine.config import Device, Flags, Override
from service.engine.hardware import Gpu, Hardware, Rig
from service.engine.hardware_text import parse_hardware
from service.engine.run.placement import place
from service.engine.run.resolved import resolve_run
from service.engine.speed.predict import Speed, predict_speed
from tests.models import build

MODEL = build("Qwen3-235B-A22B", "exps=iq4_xs,*=q8_0")
FLAGS = Flags(n_ctx=32768, n_batch=4096, n_ubatch=4096, overrides=(Override("exps", "CPU"),))


def speed(rig: Rig) -> Speed:
    devices: tuple[Device, ...] = engine_devices(rig, "ik_llama.cpp", range(len(rig.cards)))
    placement = place("ik_llama.cpp", MODEL, FLAGS, [d.free for d in devices])
    return predict_speed(resolve_run("ik_llama.cpp", MODEL, FLAGS, rig, devices, placement=placement), 0)


def machine(gpu: str, ram: str = "192GB DDR5-5600") -> Hardware:
    return parse_hardware(f"{gpu}, Ryzen 9 7950X, {ram}")


def width(low_to_high: tuple[float, float]) -> float:
    return low_to_high[1] / low_to_high[0]


def test_the_measured_copy_rate_decides_prompts_whatever_the_link_is_called() -> None:
    stated = resolve(machine("RTX 3090 pcie 4.0 x16"))
    slow, same = (resolve(machine(f"RTX 3090 pcie 4.0 x16 copies {gbs} GB/s")) for gbs in (6.2, 22.4))
    assert speed(slow).pp.expected < speed(stated).pp.expected / 2
    assert speed(same).pp.expected == pytest.approx(speed(stated).pp.expected, rel=0.05)
    assert not [a for a in slow.assumed if a.field.endswith("pcie")]


def test_an_interval_is_narrower_once_ram_and_link_are_measured() -> None:
    guessed = speed(resolve(Hardware(gpus=[Gpu(name="RTX 3090")], cpu=machine("RTX 3090").cpu)))
    known = speed(resolve(machine("RTX 3090 copies 24 GB/s", "192GB DDR5-5600 62 GB/s")))
    assert width((known.pp.low, known.pp.high)) < width((guessed.pp.low, guessed.pp.high))
    assert width((known.tg.low, known.tg.high)) < width((guessed.tg.low, guessed.tg.high))
