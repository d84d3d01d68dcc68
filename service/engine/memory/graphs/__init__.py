"""Compute graphs by engine and architecture; an unknown architecture gets the graph of the nearest family."""

from __future__ import annotations

from typing import NamedTuple

from service.engine.memory.fused import keep_alives
from service.engine.memory.graph import Graph, finish
from service.engine.memory.graphs import ik, llama
from service.engine.memory.graphs.base import MissingTensor
from service.engine.memory.graphs.ik.blocks import IkGraph
from service.engine.memory.graphs.llama.blocks import LlamaGraph
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model

_MAX_GRAPHS = 6  # kept a model: the planner varies placements, which share a graph
_MAX_LAYERS_DESCRIBED = 512


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
    if model.n_layer > _MAX_LAYERS_DESCRIBED or (not known and any(not la.n_head_kv for la in model.layers)):
        return BuiltGraph(None, False)
    family = model.architecture if known else nearest_family(model)
    try:
        return BuiltGraph(_describe(model, spec, family), known)
    except MissingTensor:
        return BuiltGraph(None, False)


def _describe(model: Model, spec: GraphSpec, family: str) -> Graph:
    if spec.engine == "ik_llama.cpp":
        g = IkGraph(model, spec)
        ik.ARCHITECTURES[family](g)
        return finish(g, llama=False)
    h = LlamaGraph(model, spec)
    llama.ARCHITECTURES[family](h)
    graph = finish(h, llama=True)
    graph.keep_alives = keep_alives(h.nodes)
    return graph


def nearest_family(model: Model) -> str:
    """Return the described architecture that is most like an unknown one, by what its header has."""
    if model.recurrent is not None:
        return "qwen3next"
    if model.mla is not None:
        return "deepseek2"
    if any(layer.n_swa for layer in model.layers):
        has_sinks = "blk.0.attn_sinks.weight" in model.by_name
        return "gpt-oss" if has_sinks else "gemma3" if "blk.0.post_ffw_norm.weight" in model.by_name else "llama4"
    norms = model.by_name.get("blk.0.attn_q_norm.weight")
    if norms is not None and model.moe_layers and norms.dims[0] > model.layers[0].head_dim_k:
        return "minimax-m2"
    if "blk.0.post_attention_norm.weight" in model.by_name and "blk.0.ffn_norm.weight" not in model.by_name:
        return "glm4moe"
    return "qwen3moe" if len(model.moe_layers) == model.n_layer - model.n_layer_nextn else "glm4moe"
