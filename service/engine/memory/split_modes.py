"""Ways to split a model over several cards that an engine does not take.

What llama.cpp refuses was tried with its build 0c1e57098.
"""

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

# ik src/llama.cpp:3895 (is_model_split_supported); anything else is placed by layer, with a line in the log.
GRAPH_SPLIT_IK = frozenset({
    "cohere2", "cohere2_moe", "command-r", "deepseek2", "ernie4_5-moe", "gemma4", "gemma4-assistant", "gemma4_mtp",
    "glm-dsa", "glm4moe", "gpt-oss", "hunyuan-moe", "laguna", "llama", "mellum", "mimo2", "minimax-m2", "minimax-m3",
    "mistral3", "mistral4", "muse-glimmer", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3vl", "seed_oss", "step35",
})  # fmt: skip


def splits_graph(model: Model) -> bool:
    """Return whether ik_llama.cpp's `-sm graph` and `-sm attn` work on `model`'s architecture."""
    per_layer = model.architecture == "gemma4" and model.int_value("embedding_length_per_layer_input") > 0
    return model.architecture in GRAPH_SPLIT_IK and not per_layer


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
