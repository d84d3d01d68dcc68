"""The command in use, from the request to the answer: its variant is read, its patterns are matched safely."""

from __future__ import annotations

import time

import pytest

from service.engine.errors import InvalidInput
from service.engine.goal import Constraints
from service.flows.advice import matching
from service.flows.advice.advise import compute_advice, read_advice, request_advice
from service.flows.context import Context
from service.wire.advice.advice import Advice, AdviceRequest
from tests.flows.conftest import WatchedHub
from tests.waiting import PATIENCE

QWEN = "Qwen/Qwen3-0.6B-GGUF"
RIG = "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"


def advised(context: Context, command: str, repo: str = QWEN, **limits: object) -> Advice:
    constraints = Constraints(current_command=command, **limits)  # type: ignore[arg-type]
    request = AdviceRequest(repo=repo, hardware=RIG, constraints=constraints)
    advice = request_advice(context, request).advice
    compute_advice(context, advice.id)
    return read_advice(context, advice.id)


def test_the_answer_has_the_command_and_what_the_configs_gain_on_it(context: Context) -> None:
    advice = advised(context, "llama-server -m /models/Qwen3-0.6B-Q8_0.gguf -c 4096 -ngl 0")
    assert advice.state == "ready", advice.problem
    assert advice.mine is not None
    assert (advice.mine.variant, advice.mine.fits) == ("Q8_0", True)
    assert advice.configs[0].versus_mine is not None
    assert advice.configs[0].versus_mine.tg.times > 2


def test_its_variant_is_read_next_to_those_asked_for_and_not_advised(context: Context, hub: WatchedHub) -> None:
    advice = advised(context, "llama-server -m Qwen3-0.6B-BF16.gguf -c 4096 -ngl 0", f"{QWEN}:Q8_0")
    assert sorted(hub.read) == ["BF16", "Q8_0"]
    assert advice.mine is not None
    assert advice.mine.variant == "BF16"
    assert {c.variant for c in advice.configs if not c.is_mine} == {"Q8_0"}


def test_a_file_with_a_name_of_its_own_is_the_only_variant_asked_for(context: Context) -> None:
    advice = advised(context, "llama-server -m /models/mine.gguf -c 4096 -ngl 0", f"{QWEN}:Q8_0")
    assert advice.mine is not None
    assert advice.mine.variant == "Q8_0"


def test_a_command_of_another_model_is_a_problem_with_the_variants_there_are(context: Context, hub: WatchedHub) -> None:
    advice = advised(context, "llama-server -m /models/Mistral-7B-Q4_K_M.gguf -ngl 99")
    assert advice.state == "failed"
    assert advice.problem is not None
    assert advice.problem.type.endswith("unknown-variant")
    assert advice.problem.choices == ["Q4_K_M", "Q8_0", "BF16"]
    assert hub.read == []


@pytest.mark.parametrize("pattern", ["(a*)*b", "((((.*)*)*)*)x", "(.|.)*\\\\1Z"])
def test_a_pattern_that_never_ends_costs_seconds_and_is_a_finding(
    context: Context, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "SECONDS", 0.5)
    began = time.monotonic()
    advice = advised(context, f"llama-server -m Qwen3-0.6B-Q8_0.gguf -c 4096 -ngl 99 -ot '{pattern}=CPU'")
    assert advice.state == "ready", advice.problem
    assert advice.mine is not None
    assert time.monotonic() - began < PATIENCE


def test_questions_about_other_hardware_are_answered(context: Context) -> None:
    request = AdviceRequest(repo=f"{QWEN}:Q8_0", hardware=RIG, what_if=["no GPU", "best"])
    advice = request_advice(context, request).advice
    compute_advice(context, advice.id)
    answers = read_advice(context, advice.id).what_if
    assert [answer.asked for answer in answers] == ["no GPU", "best"]
    assert answers[0].upgrades[0].strategy == "CPU only"


def test_a_question_that_is_not_understood_is_refused_before_anything_is_queued(context: Context) -> None:
    with pytest.raises(InvalidInput) as error:
        request_advice(context, AdviceRequest(repo=QWEN, hardware=RIG, what_if=["more power"]))
    assert error.value.field == "what_if"
