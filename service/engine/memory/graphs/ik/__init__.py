"""Graphs of ik_llama.cpp by architecture: one file a family, each with the architectures it describes."""

from __future__ import annotations

from collections.abc import Callable

from service.engine.memory.graphs.ik import gemma, generic, gqa, granite, hybrid, latent, windows
from service.engine.memory.graphs.ik.blocks import IkGraph

ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = (
    gqa.ARCHITECTURES
    | windows.ARCHITECTURES
    | gemma.ARCHITECTURES
    | latent.ARCHITECTURES
    | hybrid.ARCHITECTURES
    | granite.ARCHITECTURES
)

FAMILIES: dict[str, Callable[[IkGraph], None]] = ARCHITECTURES | {"generic": generic.generic}
