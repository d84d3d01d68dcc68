"""No command that is advised breaks a rule."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from service.engine.catalogue import resolve
from service.engine.commands.parse import parse
from service.engine.goal import Constraints, GoalRequest
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.rules.all_rules import findings
from service.engine.rules.case import case_of
from tests.engine.planner.asking import ask
from tests.models import build
from tests.rigs import (
    EIGHT_3090,
    LAPTOP_6GB,
    ONE_3090_DESKTOP,
    RADEON,
    TWO_5090_TWO_4090,
    TWO_EPYC_NO_GPU,
)
from tests.sampling import some_of


class Question(NamedTuple):
    """A model in a mix, the machine that it is to run on, and what for."""

    model: str
    mix: str
    hardware: Hardware
    goal: GoalRequest = GoalRequest()
    reserve_mib: int | None = None


EPYC_DDR4 = Cpu(model="EPYC 7713")
SLOW_LINKS = Hardware(
    gpus=[Gpu(name="RTX 4060 Ti 16GB", count=2, pcie="3.0 x4")],
    cpu=Cpu(model="EPYC 9355"),
    ram=Ram(total_gb=384, type="DDR5", channels=12, mts=6400),
)
FULL_CARD_BESIDE = Hardware(
    gpus=[Gpu(name="RTX 4060 Ti 16GB", free_gib=5.12), Gpu(name="RTX 3090")],
    cpu=EPYC_DDR4,
    ram=Ram(total_gb=768, type="DDR4", channels=8, mts=3200),
)
CARD_IN_USE = Hardware(
    gpus=[Gpu(name="RTX 4060 Ti 16GB", pcie="4.0 x8", free_gib=4.43)],
    cpu=EPYC_DDR4,
    ram=Ram(total_gb=384, type="DDR4", channels=8, mts=3200),
)
TWO_CARDS_IN_USE = Hardware(
    gpus=[Gpu(name="RTX 5060 Ti", count=2, free_gib=4.1)], cpu=Cpu(model="Ryzen 7 5800X3D"), ram=Ram(total_gb=512)
)
UNLIKE_CARDS_IN_USE = Hardware(
    gpus=[Gpu(name="Tesla P40", count=2, free_gib=5.14), Gpu(name="RTX PRO 6000 Blackwell", free_gib=7.07)],
    cpu=Cpu(model="Xeon Platinum 8480+", sockets=2),
    ram=Ram(total_gb=256),
)
ONE_3090 = Hardware(gpus=[Gpu(name="RTX 3090")], cpu=EPYC_DDR4, ram=Ram(total_gb=256, type="DDR4", channels=8))
ONE_ON_A_SLOW_LINK = Hardware(
    gpus=[Gpu(name="RTX 4060 Ti 16GB", pcie="3.0 x4")],
    cpu=Cpu(model="EPYC 9355"),
    ram=Ram(total_gb=512, type="DDR5", channels=12, mts=6400),
)
FASTEST = GoalRequest(preset="fastest")

QUESTIONS = (
    Question("Qwen3-235B-A22B", "q2_k", ONE_3090_DESKTOP),
    Question("Qwen3-30B-A3B", "q4_K_M", LAPTOP_6GB),
    Question("Qwen3-30B-A3B", "q4_K_M", ONE_3090_DESKTOP),
    Question("Qwen3-32B", "q4_K_M", EIGHT_3090),
    Question("DeepSeek-R1-0528", "q4_K_M", TWO_EPYC_NO_GPU),
    Question("GLM-4.5-Air", "q4_K_M", ONE_3090_DESKTOP),
    Question("gpt-oss-120b", "q4_K_M", TWO_5090_TWO_4090),
    Question("Llama-3.3-70B", "q4_K_M", ONE_3090_DESKTOP),
    Question("Gemma-3-27B", "q4_K_M", RADEON),
    Question("Qwen3-Next-80B-A3B", "q4_K_M", ONE_3090_DESKTOP),
    Question("North-Mini-Code", "q4_k_m", CARD_IN_USE, GoalRequest(preset="long", context=100_000)),
    Question("Gemma-4-E4B", "q5_k_m", UNLIKE_CARDS_IN_USE, FASTEST, reserve_mib=2_048),
)
LONG = (  # seconds each
    Question("Qwen3-235B-A22B", "q4_K_M", TWO_5090_TWO_4090),
    Question("DeepSeek-R1-0528", "ffn_down_exps=iq5_ks_r4,exps=iq4_ks_r4,*=q8_0", TWO_5090_TWO_4090),
    Question("GLM-4.6", "iq4_xs", TWO_5090_TWO_4090),
    Question("Qwen3.5-397B-A17B", "q3_k_m", SLOW_LINKS, GoalRequest(preset="quality"), reserve_mib=0),
    Question("DeepSeek-V3.2", "q8_0", FULL_CARD_BESIDE, GoalRequest(preset="fastest", context=32768), reserve_mib=0),
    Question("DeepSeek-V3-0324", "q5_k_m", ONE_ON_A_SLOW_LINK, reserve_mib=2_048),
    Question("Gemma-4-E2B", "bf16", TWO_CARDS_IN_USE, FASTEST),
    Question("Gemma-4-E4B", "exps=iq4_ks,*=q8_0", UNLIKE_CARDS_IN_USE, FASTEST),
    Question("Grok-2", "q2_k", ONE_3090, GoalRequest(preset="quality")),  # never with flash attention, nor its kernels
)


@pytest.mark.parametrize(
    "question",
    [*some_of(QUESTIONS, 4), *(pytest.param(q, marks=pytest.mark.full) for q in LONG)],
    ids=lambda q: f"{q.model}-{q.mix[:8]}",
)
def test_no_advised_command_breaks_a_rule(question: Question) -> None:
    limits = Constraints(reserve_mib=question.reserve_mib)
    body = ask(question.model, question.mix, hardware=question.hardware, goal=question.goal, constraints=limits)
    model, rig = build(question.model, question.mix), resolve(question.hardware)
    broken = []
    for config in body.configs:
        for command in (config.commands.server, config.commands.bench):
            parsed = parse(command, config.engine)
            case = case_of(parsed, model, rig, command, "cuda", reserve_mib=question.reserve_mib)
            broken += [(f.rule, f.message, command) for f in findings(case) if f.severity != "info"]
    assert body.configs
    assert broken == []
