"""Graphs of llama.cpp by architecture: one file a family, each with the architectures it describes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from service.engine.engines.llama_cpp.graphs import (
    block_sparse,
    classic,
    compressed,
    gqa,
    hybrid,
    kimi,
    latent,
    mamba,
    pooled,
    sparse,
    windows,
)
from service.engine.engines.llama_cpp.graphs.blocks import LlamaGraph
from service.engine.engines.llama_cpp.kernels import flash_copies, flash_layers, keep_alives, without_kernel
from service.engine.memory.graph import IN_PLACE, MIN_OFFLOAD_BATCH, Graph, Node, finish
from service.engine.memory.graphs.base import family_of
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model

_FILES = (gqa, classic, windows, latent, hybrid, kimi, mamba, sparse, compressed, block_sparse, pooled)
ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {
    name: describe for file in _FILES for name, describe in file.ARCHITECTURES.items()
}

FAMILIES: dict[str, Callable[[LlamaGraph], None]] = ARCHITECTURES | {"generic": gqa.generic}

_WEIGHTLESS = ("ROPE", "FLASH_ATTN_EXT")  # ggml-backend.cpp skips rope factors and sinks


def describe(model: Model, spec: GraphSpec, kept: tuple[int, ...] | None) -> tuple[Graph, bool]:
    """Return the graph, of the layers `kept` only unless None, and whether the architecture has its own description.

    Raises MissingTensor, GraphTooLarge.
    """
    g = LlamaGraph(model, spec)
    g.kept = g.kept if kept is None else kept
    FAMILIES[family_of(model, FAMILIES)](g)
    graph = finish(
        g, in_place=IN_PLACE | {"CLAMP", "FILL", "ROPE_BACK"}, offloadable=_offloadable, weightless=_WEIGHTLESS
    )
    graph.keep_alives = keep_alives(g.nodes)
    graph.flash_copies = flash_copies(g.nodes, spec.rules)
    graph.without_kernel = without_kernel(g.nodes, spec.rules)
    graph.flash_layers = flash_layers(g.nodes, g.slots)
    return graph, model.architecture in ARCHITECTURES


def _offloadable(node: Node) -> bool:
    """ggml-cuda.cu:5636."""
    if node.op == "GET_ROWS":
        return False
    if node.op == "MUL_MAT":
        return node.ne[1] >= MIN_OFFLOAD_BATCH
    if node.op in ("MUL_MAT_ID", "ROPE", "ROPE_BACK"):
        return node.ne[2] >= MIN_OFFLOAD_BATCH
    return prod(node.ne[1:]) >= MIN_OFFLOAD_BATCH
