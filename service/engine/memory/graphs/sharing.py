"""Graphs shared by models of one shape, such as the variants of a repo, which differ in the types of their weights.

The types of weights decide the bytes of weights and of views of them, and whether ik fuses a layer's up and gate;
nothing else in a graph. The first is put in when a shared graph is bound to a model, the second is part of the shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

from service.engine.memory.graph import Graph, Slot, contiguous_bytes, cuda_row_padding
from service.engine.memory.graphs.ik.latent import derived_kv_b
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model

_MAX_TENSORS = 400_000  # in all graphs kept, 300 to 450 bytes each; most graphs have 2,000 to 25,000


class BuiltGraph(NamedTuple):
    """`known`: the architecture has its own description. `graph` is None where no description fits the tensors."""

    graph: Graph | None
    known: bool


class GraphCache:
    """The graphs used last, as many as `max_tensors` tensors hold. Threads may share it: each step leaves it whole."""

    def __init__(self, max_tensors: int = _MAX_TENSORS) -> None:
        self._max_tensors = max_tensors
        self._kept: dict[tuple[bytes, GraphSpec], BuiltGraph] = {}

    def get(self, model: Model, spec: GraphSpec, build: Callable[[Model, GraphSpec], BuiltGraph]) -> BuiltGraph:
        """Return the graph of `model`, made by `build` unless one of its shape is kept."""
        key = (shape_of(model), spec)
        built = self._kept.pop(key, None)
        if built is None:
            built = build(model, spec)
        self._kept[key] = built
        self._drop_oldest()
        return built if built.graph is None else BuiltGraph(bind(built.graph, model), built.known)

    def _drop_oldest(self) -> None:
        sizes = [(key, _size(built)) for key, built in list(self._kept.items())]
        excess = sum(size for _, size in sizes) - self._max_tensors
        for key, size in sizes:
            if excess <= 0:
                break
            self._kept.pop(key, None)
            excess -= size


def _size(built: BuiltGraph) -> int:
    return len(built.graph.op) if built.graph else 1


def shape_of(model: Model) -> bytes:
    """Return a digest of everything in a model that its graphs depend on, the bytes of weights aside."""
    known: bytes | None = model.__dict__.get("_graph_shape")
    if known is None:
        facts = {k: v for k, v in model.metadata.items() if k.startswith(f"{model.architecture}.")}
        tensors = sorted((t.name, t.dims) for t in model.tensors)
        of_model = (model.architecture, model.n_layer, model.n_layer_nextn, model.n_embd, model.n_vocab, model.n_expert)
        parts = (of_model, model.n_expert_used, model.layers, model.mla, model.recurrent, sorted(facts.items()))
        text = repr((parts, tensors, _fused_layers(model)))
        known = model.__dict__["_graph_shape"] = sha256(text.encode()).digest()
    return known


def _fused_layers(model: Model) -> list[int]:
    """The layers whose experts' up and gate have one type, which ik multiplies in one operation."""
    found = []
    for layer in model.moe_layers:
        up, gate = (model.by_name.get(f"blk.{layer}.ffn_{part}_exps.weight") for part in ("up", "gate"))
        if up is not None and gate is not None and up.type == gate.type:
            found.append(layer)
    return found


def bind(graph: Graph, model: Model) -> Graph:
    """Return `graph` with the bytes and paddings of the weights of `model`, which has the graph's shape."""
    n_bytes, padding = list(graph.n_bytes), list(graph.padding)
    kinds = [None if slot.kind == "cache" else weight_type(model, slot) for slot in graph.slots]
    for t, shape in graph.weights:
        kind = kinds[graph.home[t]]
        if kind is not None:
            n_bytes[t] = contiguous_bytes(kind, shape)
            padding[t] = cuda_row_padding(kind, shape[0])
    return replace(graph, n_bytes=n_bytes, padding=padding)


def weight_type(model: Model, slot: Slot) -> str:
    """Return the type of what `slot` holds: a tensor of the file, or one that is made when it is loaded."""
    if slot.kind == "derived":
        parts = (model.by_name[f"blk.{slot.layer}.attn_{part}.weight"].type for part in ("k_b", "v_b"))
        return derived_kv_b(*parts)
    tensor = model.by_name.get(slot.name)
    return (model.by_name["token_embd.weight"] if tensor is None else tensor).type
