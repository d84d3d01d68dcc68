"""Ways to split a model over several cards that llama.cpp refuses; each was tried with its build 0c1e57098."""

from __future__ import annotations

from service.engine.config import CPU, Flags
from service.engine.memory.overrides import matching_names
from service.engine.model import Model

# Architectures that the engine does not split (llama-arch.cpp:1142).
_NOT_SPLIT = frozenset({
    "bailingmoe3", "bitnet", "deepseek2", "deepseek32", "dots3note", "falcon-h1", "gemma3n", "glm-dsa", "glm5-next",
    "granitehybrid", "grok", "hy_v4", "jamba", "kimi-k3", "kimi-linear", "mamba", "mamba2", "minicpm3", "minimax-01",
    "minimax-m2", "minimax-m3", "mistral4", "mpt", "nemotron_h", "nemotron_h_moe", "olmo2", "olmoe", "plamo2",
    "qwen3tts", "qwen4exp", "t5",
})  # fmt: skip


def split_refused(model: Model, flags: Flags) -> str | None:
    """Return why llama.cpp does not load `model` with these flags' `-sm` on CUDA, None where it does.

    `-sm row` is not judged here: other back ends have it.
    """
    named = {rule.device for rule in flags.overrides if matching_names(model, rule.pattern)} - {CPU}
    if flags.split_mode == "none" and named - {f"CUDA{flags.main_gpu or 0}"}:
        return f"-ot names {min(named)}, but with -sm none there is only CUDA{flags.main_gpu or 0}"
    if flags.split_mode != "tensor":
        return None
    if model.architecture in _NOT_SPLIT:
        return f"-sm tensor: llama.cpp does not have it for {model.architecture}"
    if flags.flash_attn == "off":
        return "-sm tensor needs flash attention, and -fa is off"
    return f"-ot names {min(named)}, but with -sm tensor all cards are one device" if named else None
