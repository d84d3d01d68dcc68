"""No command that is advised breaks a rule."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from service.engine.catalogue import resolve
from service.engine.commands import parse
from service.engine.hardware import Hardware
from service.engine.rules import case_of, findings
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


class Question(NamedTuple):
    """A model in a mix, and the machine that it is to run on."""

    model: str
    mix: str
    hardware: Hardware


QUESTIONS = (
    Question("Qwen3-235B-A22B", "q2_k", ONE_3090_DESKTOP),
    Question("Qwen3-235B-A22B", "q4_K_M", TWO_5090_TWO_4090),
    Question("Qwen3-30B-A3B", "q4_K_M", LAPTOP_6GB),
    Question("Qwen3-30B-A3B", "q4_K_M", ONE_3090_DESKTOP),
    Question("DeepSeek-R1-0528", "ffn_down_exps=iq5_ks_r4,exps=iq4_ks_r4,*=q8_0", TWO_5090_TWO_4090),
    Question("Qwen3-32B", "q4_K_M", EIGHT_3090),
    Question("DeepSeek-R1-0528", "q4_K_M", TWO_EPYC_NO_GPU),
    Question("GLM-4.5-Air", "q4_K_M", ONE_3090_DESKTOP),
    Question("GLM-4.6", "iq4_xs", TWO_5090_TWO_4090),
    Question("gpt-oss-120b", "q4_K_M", TWO_5090_TWO_4090),
    Question("Llama-3.3-70B", "q4_K_M", ONE_3090_DESKTOP),
    Question("Gemma-3-27B", "q4_K_M", RADEON),
    Question("Qwen3-Next-80B-A3B", "q4_K_M", ONE_3090_DESKTOP),
)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: f"{q.model}-{q.mix[:8]}")
def test_no_advised_command_breaks_a_rule(question: Question) -> None:
    body = ask(question.model, question.mix, hardware=question.hardware)
    model, rig = build(question.model, question.mix), resolve(question.hardware)
    broken = []
    for config in body.configs:
        for command in (config.commands.server, config.commands.bench):
            case = case_of(parse(command, config.engine), model, rig, command, "cuda")
            broken += [(f.rule, f.message, command) for f in findings(case) if f.severity != "info"]
    assert body.configs
    assert broken == []
