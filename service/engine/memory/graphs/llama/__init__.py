"""Graphs of llama.cpp by architecture: one file a family, each with the architectures it describes."""

from __future__ import annotations

from collections.abc import Callable

from service.engine.memory.graphs.llama import (
    gemma,
    generic,
    gqa,
    granite,
    hybrid,
    kimi,
    latent,
    mamba,
    shortconv,
    sparse,
    windows,
)
from service.engine.memory.graphs.llama.blocks import LlamaGraph

ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = (
    gqa.ARCHITECTURES
    | windows.ARCHITECTURES
    | gemma.ARCHITECTURES
    | latent.ARCHITECTURES
    | hybrid.ARCHITECTURES
    | kimi.ARCHITECTURES
    | mamba.ARCHITECTURES
    | granite.ARCHITECTURES
    | shortconv.ARCHITECTURES
    | sparse.ARCHITECTURES
)

FAMILIES: dict[str, Callable[[LlamaGraph], None]] = ARCHITECTURES | {"generic": generic.generic}
