"""Compute graphs by engine and architecture; an unknown architecture gets the graph of the nearest family."""

from __future__ import annotations

from typing import NamedTuple

from service.engine.memory.fused import keep_alives
from service.engine.memory.graph import Graph, GraphTooLarge, finish
from service.engine.memory.graphs import ik, llama
from service.engine.memory.graphs.base import MissingTensor
from service.engine.memory.graphs.ik.blocks import IkGraph
from service.engine.memory.graphs.llama.blocks import LlamaGraph
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model

_MAX_GRAPHS = 6  # kept a model: the planner varies placements, which share a graph


class BuiltGraph(NamedTuple):
    """`known`: the architecture has its own description. `graph` is None where no description fits the tensors."""

    graph: Graph | None
    known: bool


def graph_of(model: Model, spec: GraphSpec) -> BuiltGraph:
    """Return the worst-case graph of `model`; the latest few are kept with the model."""
    kept: dict[GraphSpec, BuiltGraph] = model.__dict__.setdefault("_graphs", {})
    built = kept.pop(spec, None)
    if built is None:
        built = _build(model, spec)
        while len(kept) >= _MAX_GRAPHS:
            del kept[next(iter(kept))]
    kept[spec] = built
    return built


def _build(model: Model, spec: GraphSpec) -> BuiltGraph:
    known = model.architecture in ik.ARCHITECTURES
    family = model.architecture if known else nearest_family(model)
    try:
        return BuiltGraph(_describe(model, spec, family), known)
    except (MissingTensor, GraphTooLarge):
        return BuiltGraph(None, False)


def _describe(model: Model, spec: GraphSpec, family: str) -> Graph:
    if spec.engine == "ik_llama.cpp":
        g = IkGraph(model, spec)
        ik.FAMILIES[family](g)
        return finish(g, llama=False)
    h = LlamaGraph(model, spec)
    llama.FAMILIES[family](h)
    graph = finish(h, llama=True)
    graph.keep_alives = keep_alives(h.nodes)
    return graph


def nearest_family(model: Model) -> str:
    """Return the description that fits an unknown architecture best, by what its header has."""
    if model.recurrent is not None:
        return "qwen3next"
    return "generic" if model.mla is None else "deepseek2"
