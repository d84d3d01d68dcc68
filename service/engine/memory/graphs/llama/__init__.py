"""Graphs of llama.cpp by architecture."""

from __future__ import annotations

from collections.abc import Callable

from service.engine.memory.graphs.llama import generic, gqa, hybrid, latent, windows
from service.engine.memory.graphs.llama.blocks import LlamaGraph

ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {
    "llama": gqa.standard,
    "qwen2": gqa.standard,
    "qwen3": gqa.standard,
    "qwen3moe": gqa.standard,
    "glm4moe": gqa.glm4_moe,
    "minimax-m2": gqa.minimax_m2,
    "gpt-oss": windows.gpt_oss,
    "gemma3": windows.gemma3,
    "llama4": windows.llama4,
    "deepseek2": latent.deepseek2,
    "qwen3next": hybrid.qwen3_next,
}

FAMILIES: dict[str, Callable[[LlamaGraph], None]] = ARCHITECTURES | {"generic": generic.generic}
