"""Graphs of ik_llama.cpp by architecture: one file a family, each with the architectures it describes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from service.engine.engines.ik_llama_cpp.graphs import compressed, gqa, hybrid, latent, windows
from service.engine.engines.ik_llama_cpp.graphs.blocks import IkGraph
from service.engine.engines.ik_llama_cpp.graphs.split import SplitGraph
from service.engine.memory.graph import IN_PLACE, MIN_OFFLOAD_BATCH, Graph, GraphBuilder, Node, finish
from service.engine.memory.graphs.base import family_of
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model

ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = (
    gqa.ARCHITECTURES | windows.ARCHITECTURES | latent.ARCHITECTURES | hybrid.ARCHITECTURES | compressed.ARCHITECTURES
)

FAMILIES: dict[str, Callable[[IkGraph], None]] = ARCHITECTURES | {"generic": gqa.generic}


def describe(model: Model, spec: GraphSpec, kept: tuple[int, ...] | None) -> tuple[Graph, bool]:
    """Return the graph, of the layers `kept` only unless None, and whether the architecture has its own description.

    Raises MissingTensor, GraphTooLarge.
    """
    g = IkGraph(model, spec) if spec.cards is None else SplitGraph(model, spec, spec.cards)
    g.kept = g.kept if kept is None else kept
    FAMILIES[family_of(model, FAMILIES)](g)
    offloadable = partial(_offloadable, by_experts=spec.rules.threshold_by_experts)
    graph = finish(g, in_place=IN_PLACE, offloadable=offloadable)
    # Each norm with a mean, its product and the slot of its weight, where both run (ggml-backend.cpp:1494).
    graph.norms_at_weights = [
        (n.src[0].index, n.index, n.src[1].slot)
        for n in g.nodes
        if n.op == "MUL" and n.src[0].op == "NORM" and n.src[1].slot >= 0
    ]
    graph.on_cards = _on_cards(g)
    return graph, model.architecture in ARCHITECTURES


def _offloadable(node: Node, by_experts: bool) -> bool:
    """ggml-cuda.cu:5180: experts only where a batch hits most of them (`by_experts`)."""
    if node.op in ("MUL_MAT_ID", "MOE_FUSED_UP_GATE"):
        used = node.src[2 if node.op == "MUL_MAT_ID" else 3].ne[0]
        enough = not by_experts or node.ne[2] * used >= MIN_OFFLOAD_BATCH * node.src[0].ne[2]
        return enough and node.ne[2] >= MIN_OFFLOAD_BATCH
    return node.op != "GET_ROWS" and node.ne[1] >= MIN_OFFLOAD_BATCH


def _on_cards(builder: GraphBuilder) -> list[tuple[int, int]]:
    """The card of each part of a sum, and of the sum itself where its root is one of them (ggml-backend.cpp:1472)."""
    found = []
    for node in builder.nodes if builder.reduced else ():
        if node.index not in builder.reduced:
            continue
        for part, card in zip(node.src, builder.reduced[node.index], strict=False):
            found += [(part.index, card), (node.index, card)] if part is node.root else [(part.index, card)]
    return found
