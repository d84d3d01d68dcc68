"""Graphs of ik_llama.cpp by architecture."""

from __future__ import annotations

from collections.abc import Callable

from service.engine.memory.graphs.ik import generic, gqa, hybrid, latent, windows
from service.engine.memory.graphs.ik.blocks import IkGraph

ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = {
    "llama": gqa.llama,
    "qwen3": gqa.llama,
    "qwen2": gqa.qwen2,
    "qwen3moe": gqa.qwen3_moe,
    "glm4moe": gqa.glm4_moe,
    "minimax-m2": gqa.minimax_m2,
    "gpt-oss": windows.gpt_oss,
    "gemma3": windows.gemma3,
    "llama4": windows.llama4,
    "deepseek2": latent.deepseek2,
    "qwen3next": hybrid.qwen3_next,
}

FAMILIES: dict[str, Callable[[IkGraph], None]] = ARCHITECTURES | {"generic": generic.generic}
