"""Latent attention, and what attention does for some models whatever is asked."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.memory.spec import latent_mode
from service.engine.rules.case import Case
from service.engine.rules.rule import Found, rule

_LATENT = "latent-attention--mla-and--amb"
_COMMON = "ik_llama.cpp common/common.cpp:1922-2300"
_WITHOUT_FLASH_ATTENTION = frozenset({"grok", "openpangu"})


@rule("mla-without-effect", "info", _LATENT, _COMMON, only="ik_llama.cpp", mend="leave it out")
def mla_without_effect(case: Case) -> Iterator[Found]:
    """`-mla` does something for models with latent attention only."""
    if case.flags.mla is not None and case.model.mla is None:
        yield Found(f"-mla {case.flags.mla} does nothing: {case.model.architecture} has no latent attention")


@rule("amb-without-effect", "info", _LATENT, _COMMON, only="ik_llama.cpp", mend="leave it out")
def amb_without_effect(case: Case) -> Iterator[Found]:
    """`-amb` limits a buffer that exists without flash attention, or with latent attention."""
    amb = case.flags.attn_max_batch
    if amb is None or case.parsed.program == "llama-bench":
        return
    if case.model.mla is None and case.flags.flash_attn != "off":
        yield Found(
            f"-amb {amb} does nothing: with flash attention only latent attention (DeepSeek, GLM-5) has the buffer"
        )


@rule("amb-too-small", "info", _LATENT, _COMMON, only="ik_llama.cpp", mend="-amb 128 or more")
def amb_too_small(case: Case) -> Iterator[Found]:
    """`-amb` below 128 MiB is raised to 128."""
    amb, least = case.flags.attn_max_batch, case.parsed.build.rules.memory.least_batch
    does = case.model.mla is not None or case.flags.flash_attn == "off"
    if amb is not None and does and 0 < amb < least and case.parsed.program != "llama-bench":
        yield Found(f"-amb {amb} is raised to {least}", f"-amb {least} or more")


@rule("mla-off", "warning", _LATENT, "ik_llama.cpp pull request 188", only="ik_llama.cpp", mend="-mla 3")
def mla_off(case: Case) -> Iterator[Found]:
    """`-mla 0` keeps K and V of all heads: many times the memory of a latent cache."""
    asked = case.model.mla is not None and case.flags.mla == 0
    if asked and latent_mode("ik_llama.cpp", case.model, case.flags, case.parsed.build.rules.memory) == 0:
        yield Found("-mla 0 keeps K and V of every head: the latent cache of -mla 3 is many times smaller")


@rule(
    "flash-attention-impossible", "info", "the-cache",
    "ik_llama.cpp src/llama.cpp, llama_init_from_model; llama.cpp src/llama-context.cpp:3816", mend="leave -fa out",
)  # fmt: skip
def flash_attention_impossible(case: Case) -> Iterator[Found]:
    """Some architectures run without flash attention whatever is asked."""
    named = {"-fa", "--flash-attn"} & set(case.parsed.used)
    if case.flags.flash_attn == "on" and named and case.model.architecture in _WITHOUT_FLASH_ATTENTION:
        yield Found(f"-fa on does nothing: {case.model.architecture} runs without flash attention")
