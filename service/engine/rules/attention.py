"""Latent attention, and what attention does for some models whatever is asked."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.rules.case import Case
from service.engine.rules.rule import Found, rule


@rule(
    "flash-attention-impossible", "info", "the-cache",
    "ik_llama.cpp src/llama.cpp, llama_init_from_model; llama.cpp src/llama-context.cpp:3816", fix="leave out -fa",
)  # fmt: skip
def flash_attention_impossible(case: Case) -> Iterator[Found]:
    """Some architectures run without flash attention whatever is asked."""
    named = {"-fa", "--flash-attn"} & set(case.parsed.used)
    without = case.spec.architectures.having("no_flash_attention")
    if case.flags.flash_attn == "on" and named and case.model.architecture in without:
        yield Found(f"-fa on does nothing: {case.model.architecture} runs without flash attention")
