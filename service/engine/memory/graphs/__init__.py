"""Compute graphs by engine and architecture; an unknown architecture gets the graph of the nearest family."""

from __future__ import annotations

from service.engine.memory.flash import flash_copies, flash_layers, without_kernel
from service.engine.memory.fused import keep_alives
from service.engine.memory.graph import Graph, GraphTooLarge, finish
from service.engine.memory.graphs import ik, llama
from service.engine.memory.graphs.base import MissingTensor
from service.engine.memory.graphs.ik.blocks import IkGraph
from service.engine.memory.graphs.llama.blocks import LlamaGraph
from service.engine.memory.graphs.sharing import BuiltGraph, GraphCache
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model

_CACHE = GraphCache()


def graph_of(model: Model, spec: GraphSpec) -> BuiltGraph:
    """Return the worst-case graph of `model`. The graphs used last are kept for all models of the same shape."""
    return _CACHE.get(model, spec, build_graph)


def build_graph(model: Model, spec: GraphSpec) -> BuiltGraph:
    """Return the graph of `model`, made anew."""
    engine = ik if spec.engine == "ik_llama.cpp" else llama
    known = model.architecture in engine.ARCHITECTURES
    family = model.architecture if model.architecture in engine.FAMILIES else nearest_family(model)
    try:
        return BuiltGraph(_describe(model, spec, family), known)
    except (MissingTensor, GraphTooLarge):
        return BuiltGraph(None, False)


def _describe(model: Model, spec: GraphSpec, family: str) -> Graph:
    if spec.engine == "ik_llama.cpp":
        g = IkGraph(model, spec)
        ik.FAMILIES[family](g)
        return finish(g, llama=False, by_experts=spec.rules.threshold_by_experts)
    h = LlamaGraph(model, spec)
    llama.FAMILIES[family](h)
    graph = finish(h, llama=True)
    graph.keep_alives = keep_alives(h.nodes)
    graph.flash_copies, graph.without_kernel = flash_copies(h.nodes), without_kernel(h.nodes)
    graph.flash_layers = flash_layers(h.nodes, h.slots)
    return graph


def nearest_family(model: Model) -> str:
    """Return the description that fits an unknown architecture best, by what its header has."""
    if model.recurrent is not None:
        return "qwen3next"
    return "generic" if model.mla is None else "deepseek2"
