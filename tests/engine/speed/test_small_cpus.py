"""Old and small processors alone: Llama 3.1 8B in Q4_K_M with llama.cpp's release b8235 for Windows, as posted.

From brand-o/normiebench, issues 38, 34, 46, 42, 41, 8 and 52 (March 2026): pp512 and tg128. None of these runs was used
in a fit but the first, whose core's width it tells (`speed/machine.py`).
"""

from __future__ import annotations

import pytest

from service.engine.advice import SpeedPoint
from service.engine.catalogue import resolve
from service.engine.check.run import check
from service.engine.hardware_text import parse_hardware
from tests.models import build

POSTED = [
    ("Intel N100, 16GB RAM", 6.53, 3.01),
    ("i5-9500, 16GB RAM", 35.43, 6.51),
    ("i5-1135G7, 16GB RAM", 25.52, 6.86),
    ("i7-7820HQ, 40GB RAM", 22.53, 5.62),
    ("i7-8550U, 16GB RAM", 13.07, 4.42),
    ("Ryzen 7 8840U, 30GB RAM", 49.75, 9.63),
    ("Threadripper 3970X, 64GB RAM", 155.5, 16.78),
]


def alone(machine: str) -> SpeedPoint:
    """The speed without a context of the posted model on a processor alone."""
    rig, model = resolve(parse_hardware(f"{machine}, no GPU")), build("Llama-3.1-8B", "q4_k_m")
    return check("llama-bench -m model.gguf -p 512 -n 128 -ngl 0", "llama.cpp", model, rig, depths=[0]).speed[0]


@pytest.mark.parametrize(("machine", "pp", "tg"), POSTED, ids=[machine.partition(",")[0] for machine, *_ in POSTED])
def test_a_posted_run_is_within_the_interval(machine: str, pp: float, tg: float) -> None:
    at = alone(f"{machine}, Windows 11")
    assert at.pp_low <= pp <= at.pp_high
    assert at.tg_low <= tg <= at.tg_high


def test_cores_of_half_the_width_are_that_much_slower_at_prompts() -> None:
    small, full = (alone(f"{cpu}, 16GB DDR4-3200") for cpu in ("Intel N100", "i5-6500"))
    assert small.pp_tps < 0.6 * full.pp_tps
