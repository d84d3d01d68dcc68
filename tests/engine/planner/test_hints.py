"""What an answer says of its first config: what measuring it would give, and what idle cards are good for."""

from __future__ import annotations

import re

import pytest

from service.engine.hardware_text import parse_hardware
from tests.engine.planner.asking import ask, first


def test_an_uncertain_answer_says_what_measuring_it_would_give_and_a_certain_one_does_not() -> None:
    small = parse_hardware("RTX 3060, Ryzen 5 5600, 64GB DDR4-3200")
    config = first(ask("Qwen3-30B-A3B", "q8_0", hardware=small))
    at, (said,) = config.speed[-1], [r.text for r in config.reasons if r.rule == "worth-measuring"]
    minutes, low, high = map(float, re.findall(r"about (\d+) minutes? after .* to ([\d.]+)-([\d.]+) t/s", said)[0])
    assert at.tg_low < low < at.tg_tps < high < at.tg_high
    assert (high / low) < (at.tg_high / at.tg_low) ** 0.85
    least = config.flags.n_ctx / max(p.pp_tps for p in config.speed) / 60
    assert least < minutes < least + config.flags.n_ctx / 4 / min(p.tg_tps for p in config.deeper) / 60 + 1
    sure = first(ask("Qwen3-30B-A3B", "q4_K_M", hardware=parse_hardware("RTX 4090, Ryzen 9 7950X, 64GB DDR5-6000")))
    assert sure.strategy == "all on GPU"
    assert all(reason.rule != "worth-measuring" for reason in sure.reasons)


@pytest.mark.full
def test_idle_cards_are_named_with_the_config_that_would_use_them() -> None:
    machine = parse_hardware("RTX 3090 + RX 6800 16GB, Ryzen 9 5900X, 64GB DDR4-3600")
    body = ask("Qwen3.5-27B", "q4_k_m", "q8_0", hardware=machine)
    (said,) = [r.text for r in first(body).reasons if r.rule == "idle-gpus"]
    assert said.startswith("AMD Radeon RX 6800 is idle: ")
    number = int(re.findall(r"#(\d+) \(q8_0\) uses more GPUs", said)[0])
    assert len(body.configs[number - 1].devices) == 3


@pytest.mark.full
@pytest.mark.parametrize(
    ("model", "machine", "named"),
    [
        ("DeepSeek-R1-0528", "8x H100 80GB, 2x Xeon Platinum 8480+, 2TB DDR5-4800 x16", True),
        ("Qwen3-32B", "8x H100 80GB, 2x Xeon Platinum 8480+, 2TB DDR5-4800 x16", False),
        ("Llama-3.3-70B", "4x RTX 3090, EPYC 7402, 256GB", False),
    ],
)
def test_who_uses_many_data_centre_cards_is_told_of_the_servers_that_others_run_there(
    model: str, machine: str, named: bool
) -> None:
    config = first(ask(model, "q4_K_M", hardware=parse_hardware(machine), engine="llama.cpp"))
    assert any("vLLM or SGLang" in note for note in config.notes) is named
