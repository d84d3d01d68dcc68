"""What a check says about images: of Gemma 4 and its like, one has to fit a micro-batch."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.finding import Finding
from service.engine.hardware import Gpu, Hardware, Ram
from service.engine.rules.all_rules import findings
from service.engine.rules.case import case_of
from service.engine.rules.companion_headers import CompanionHeaders
from tests.models import build
from tests.projectors import encoder_header, gemma3_header

RIG = resolve(Hardware(gpus=[Gpu(name="RTX 3090")], ram=Ram(total_gb=64)))
GEMMA = build("Gemma-4-26B-A4B", "q4_K_M")
GEMMA4, GEMMA4_E4B = (
    encoder_header("gemma4v", 1152, 4304, patch=16, merge=3, n_text=n_text, gated=True) for n_text in (2816, 2560)
)
QWEN = encoder_header("qwen3vl_merger", 1152, 4304, patch=16)


def found(flags: str, header: object = GEMMA4, engine: Engine = "llama.cpp", day: str | None = None) -> list[Finding]:
    text = f"llama-server -m m.gguf -c 16384 -ngl 99 --mmproj p.gguf {flags}"
    case = case_of(
        parse(text, engine, build=day),
        GEMMA,
        RIG,
        text,
        "cuda",
        CompanionHeaders(projector=header),  # type: ignore[arg-type]
    )
    return [f for f in findings(case) if f.rule == "image-beyond-micro-batch"]


# unsloth issue 10559 and pull 10683: build 10840 with its defaults ends at an image of 862 tokens
def test_an_image_of_gemma_4_that_does_not_fit_a_micro_batch_ends_the_server() -> None:
    (told,) = found("")
    assert told.severity == "warning"
    assert "more than 512 tokens ends the program" in told.message
    assert "1,120" in told.message
    assert told.fix is not None
    assert "-ub 1120" in told.fix
    assert not found("-ub 1120")
    assert not found("--image-max-tokens 512")
    assert "-b 1120" in str(found("-b 512 -ub 512")[0].fix)


@pytest.mark.parametrize(
    ("flags", "header", "engine", "day"),
    [("", QWEN, "llama.cpp", None), ("", GEMMA4_E4B, "llama.cpp", None), ("", GEMMA4, "llama.cpp", "2026-08-01"),
     ("", GEMMA4, "ik_llama.cpp", None)],
)  # fmt: skip
def test_images_that_are_read_token_by_token_or_are_small_enough_need_no_larger_one(
    flags: str, header: object, engine: Engine, day: str | None
) -> None:
    assert not found(flags, header, engine, day)


# llama.cpp issue 21461 (--image-max-tokens 1200 ends it), ollama pull 17154
@pytest.mark.parametrize("engine", ["llama.cpp", "ik_llama.cpp"])
def test_more_tokens_for_an_image_need_a_larger_micro_batch_in_older_builds_too(engine: Engine) -> None:
    assert found("--image-max-tokens 1120", GEMMA4, engine, "2026-08-01")


def test_a_projector_of_another_model_ends_the_server() -> None:
    text = "llama-server -m m.gguf -c 8192 -ngl 99 --mmproj p.gguf"
    for model, of_another in (("Gemma-3-12B", False), ("Gemma-3-27B", True)):
        headers = CompanionHeaders(projector=gemma3_header())
        case = case_of(parse(text, "llama.cpp"), build(model, "q4_K_M"), RIG, text, "cuda", headers)
        told = [f for f in findings(case) if f.rule == "projector-of-another-model"]
        assert bool(told) is of_another
    assert "3,840 values a token, the model's embeddings have 5,376" in told[0].message


@pytest.mark.full
def test_an_image_may_have_as_many_tokens_as_a_small_context() -> None:
    for kind, context, said in (("qwen3vl_merger", 4096, True), ("qwen3vl_merger", 8192, False), ("new", 1024, False)):
        text = f"llama-server -m m.gguf -c {context} -ngl 99 --mmproj p.gguf"
        headers = CompanionHeaders(projector=encoder_header(kind, 1152, 4304, patch=16))
        case = case_of(parse(text, "llama.cpp"), GEMMA, RIG, text, "cuda", headers)
        assert any(f.rule == "image-beyond-context" for f in findings(case)) is said
