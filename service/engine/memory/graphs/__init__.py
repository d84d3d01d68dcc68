"""Compute graphs by engine and architecture; an unknown architecture gets the graph of the nearest family."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from service.engine.memory.finish import finish
from service.engine.memory.flash import flash_copies, flash_layers, without_kernel
from service.engine.memory.fused import keep_alives
from service.engine.memory.graph import Graph, GraphTooLarge
from service.engine.memory.graphs import ik, llama
from service.engine.memory.graphs.base import MissingTensor
from service.engine.memory.graphs.ik.blocks import IkGraph
from service.engine.memory.graphs.ik.split import SplitGraph
from service.engine.memory.graphs.llama.blocks import LlamaGraph
from service.engine.memory.graphs.repeats import NotRepeating, Repeats, kinds_of_layers, layers_of_each_kind
from service.engine.memory.graphs.sharing import BuiltGraph, GraphCache, shape_of
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model

_CACHE = GraphCache()
_MAX_REPEATS = 32


class Repeating(NamedTuple):
    """`known`: the architecture has its own description."""

    repeats: Repeats | None
    known: bool


_REPEATS: dict[tuple[bytes, GraphSpec], Repeating] = {}


def graph_of(model: Model, spec: GraphSpec) -> BuiltGraph:
    """Return the worst-case graph of `model`. The graphs used last are kept for all models of the same shape."""
    return _CACHE.get(model, spec, build_graph)


def repeats_of(model: Model, spec: GraphSpec) -> Repeating:
    """Return the graph of `model` by its layers, None where they do not repeat, and whether its description is known.

    Those used last are kept for all models of the same shape. Each layer has rope factors of its own.
    """
    spec = msgspec.structs.replace(spec, rope_owners=())
    key = shape_of(model), spec
    found = _REPEATS.pop(key, None)
    if found is None:
        found = _build_repeats(model, spec)
    _REPEATS[key] = found
    for oldest in list(_REPEATS)[:-_MAX_REPEATS]:
        _REPEATS.pop(oldest, None)
    return found


def _build_repeats(model: Model, spec: GraphSpec) -> Repeating:
    kinds = kinds_of_layers(model, spec)
    if kinds is None:
        return Repeating(None, False)
    kept, like = layers_of_each_kind(kinds)
    built = build_graph(model, spec, kept)
    if built.graph is None or len(built.graph.layer_starts) != len(kept) + 1:
        return Repeating(None, False)
    try:
        return Repeating(Repeats(built.graph, kept, like), built.known)
    except NotRepeating:
        return Repeating(None, False)


def build_graph(model: Model, spec: GraphSpec, kept: tuple[int, ...] | None = None) -> BuiltGraph:
    """Return the graph of `model`, made anew, of the layers `kept` only unless None."""
    engine = ik if spec.engine == "ik_llama.cpp" else llama
    known = model.architecture in engine.ARCHITECTURES
    family = model.architecture if model.architecture in engine.FAMILIES else nearest_family(model)
    try:
        return BuiltGraph(_describe(model, spec, family, kept), known)
    except (MissingTensor, GraphTooLarge):
        return BuiltGraph(None, False)


def _describe(model: Model, spec: GraphSpec, family: str, kept: tuple[int, ...] | None) -> Graph:
    if spec.engine == "ik_llama.cpp":
        g = IkGraph(model, spec) if spec.cards is None else SplitGraph(model, spec, spec.cards)
        g.kept = g.kept if kept is None else kept
        ik.FAMILIES[family](g)
        graph = finish(g, llama=False, by_experts=spec.rules.threshold_by_experts)
        graph.layer_starts = g.layer_starts
        return graph
    h = LlamaGraph(model, spec)
    h.kept = h.kept if kept is None else kept
    llama.FAMILIES[family](h)
    graph = finish(h, llama=True)
    graph.layer_starts = h.layer_starts
    graph.keep_alives = keep_alives(h.nodes)
    graph.flash_copies, graph.without_kernel = flash_copies(h.nodes), without_kernel(h.nodes)
    graph.flash_layers = flash_layers(h.nodes, h.slots)
    return graph


def nearest_family(model: Model) -> str:
    """Return the description that fits an unknown architecture best, by what its header has."""
    if model.recurrent is not None:
        return "qwen3next"
    return "generic" if model.mla is None else "deepseek2"
