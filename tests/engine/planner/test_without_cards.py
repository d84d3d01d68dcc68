"""An engine on cards that it does not offload to: it runs on the CPU what no other loads, or beside its own GPU."""

from __future__ import annotations

import pytest

from service.engine.advice import AdviceBody
from service.engine.check.run import check
from service.engine.commands.parse import parse
from service.engine.hardware_text import parse_hardware
from service.engine.run.devices import rig_of_command
from tests.engine.planner.asking import ask, first
from tests.models import build

MODEL, ONLY_IK, BOTH = "Qwen3-30B-A3B", "exps=iq4_ks,*=q8_0", "q4_K_M"
SERVER = "2x E5-2699 v4, 256GB DDR4-2400"
NOT_USED = "not used: ik_llama.cpp offloads only to NVIDIA cards with CUDA"


def advice(text: str, *mixes: str, what_if: tuple[str, ...] = ()) -> AdviceBody:
    return ask(MODEL, *mixes, hardware=parse_hardware(text), what_if=what_if)


@pytest.mark.parametrize("cards", ["2x MI50 32GB", "Arc A770 16GB", "RX 7900 XTX + RX 580"])
def test_the_answer_is_that_of_the_machine_without_its_cards_and_says_so(cards: str) -> None:
    there, without = (first(advice(text, ONLY_IK)) for text in (f"{SERVER}, {cards}", f"{SERVER}, no GPU"))
    assert (there.engine, there.strategy) == ("ik_llama.cpp", "CPU only")
    assert there.commands == without.commands
    assert (there.devices, there.speed) == (without.devices, without.speed)
    assert next(note for note in there.notes if note not in without.notes).endswith(NOT_USED)


def test_a_mac_runs_it_on_its_cpu_and_gets_no_unit_of_systemd() -> None:
    config = first(advice("Mac Studio M3 Ultra 96GB", ONLY_IK))
    assert (config.engine, config.strategy, [d.device for d in config.devices]) == ("ik_llama.cpp", "CPU only", ["CPU"])
    assert (config.commands.docker, config.commands.systemd) == ("", "")
    assert f"the GPU is {NOT_USED}" in config.notes


def test_where_it_does_not_fit_the_answer_says_how_much_is_missing() -> None:
    body = advice("RX 7900 XTX, Ryzen 5 3600, 8GB", ONLY_IK)
    assert not body.configs
    assert "too little RAM" in next(r.reason for r in body.refused if r.engine == "ik_llama.cpp")


def test_a_variant_that_another_engine_runs_with_the_cards_is_not_tried_without_them() -> None:
    body = advice(f"{SERVER}, 2x MI50 32GB", BOTH)
    assert {c.engine for c in body.configs} == {"llama.cpp"}
    assert "offloads only to NVIDIA" in next(r.reason for r in body.refused if r.engine == "ik_llama.cpp")


def test_a_processor_s_own_gpu_does_not_keep_another_engine_from_its_cores() -> None:
    body = advice("Core Ultra 7 155H, 32GB LPDDR5X-7467", BOTH)
    own = {(c.engine, c.strategy) for c in body.configs}
    assert ("ik_llama.cpp", "CPU only") in own
    assert not any(r.engine == "ik_llama.cpp" for r in body.refused)
    on_mac = advice("MacBook Pro M4 Max 64GB", BOTH)
    assert {c.engine for c in on_mac.configs} == {"llama.cpp"}


def test_cards_that_cuda_dropped_are_named_with_the_back_end_that_is_left() -> None:
    """CUDA 12.0's release notes remove Kepler; a K80's owner is not told that its engine is for NVIDIA cards."""
    body = advice(f"{SERVER}, 2x Tesla K80 12GB", BOTH)
    reason = next(r.reason for r in body.refused if r.engine == "ik_llama.cpp")
    assert reason.endswith("CUDA, and CUDA 12 does not support the Tesla K80; llama.cpp runs these with Vulkan")
    (assumed,) = [one for one in body.assumed if one.field == "hardware.backend"]
    assert (assumed.value, "CUDA 12 does not support the Tesla K80" in assumed.why) == ("vulkan", True)


def test_beside_an_nvidia_card_that_card_is_used() -> None:
    config = first(advice(f"{SERVER}, RTX 3090 + RX 7900 XTX", ONLY_IK))
    assert [d.device for d in config.devices] == ["CUDA0", "CPU"]
    assert not any("not used" in note for note in config.notes)


def test_more_ram_is_asked_of_the_same_engine() -> None:
    (more,) = advice(f"{SERVER}, 2x MI50 32GB", ONLY_IK, what_if=("512GB RAM",)).what_if
    assert (more.upgrades[0].engine, more.upgrades[0].strategy) == ("ik_llama.cpp", "CPU only")


def test_a_check_of_its_command_sees_no_cards_either() -> None:
    hardware = parse_hardware(f"{SERVER}, 2x MI50 32GB")
    config = first(ask(MODEL, ONLY_IK, hardware=hardware))
    command = parse(config.commands.server, "ik_llama.cpp")
    rig = rig_of_command(hardware, command)
    report = check(config.commands.server, "ik_llama.cpp", build(MODEL, ONLY_IK), rig)
    assert [finding.rule for finding in report.findings if finding.severity != "info"] == []
    assert [row.device for row in report.memory.devices] == ["CPU"]
    on_cards = parse(config.commands.server.replace("-ngl 0", "-ngl 99"), "ik_llama.cpp")
    assert len(rig_of_command(hardware, on_cards).cards) == 2
