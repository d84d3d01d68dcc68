"""Graphs shared by models of one shape, such as the variants of a repo, which differ in the types of their weights.

The types of weights decide the bytes of weights and of views of them, and whether ik fuses a layer's up and gate;
nothing else in a graph. The allocator looks the first up in the model, the second is part of the shape.
"""

from __future__ import annotations

from hashlib import sha256

from service.engine.ggml_types import type_named
from service.engine.memory.graph import Slot, joined_type
from service.engine.model import Model
from service.engine.run.weights import can_fuse


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


def _fused_layers(model: Model) -> list[str]:
    """The ups that ik can multiply together with their gates, by their types."""
    found = []
    for tensor in model.tensors:
        gate = model.by_name.get(tensor.name.replace(".ffn_up", ".ffn_gate")) if ".ffn_up" in tensor.name else None
        dense = "_exps." not in tensor.name
        if gate is not None and can_fuse(type_named(tensor.type), type_named(gate.type), dense=dense):
            found.append(tensor.name)
    return found


def weight_type(model: Model, slot: Slot) -> str | None:
    """Return the type of the weight in `slot`, of the file or made when it is loaded; None if it holds no weight."""
    if slot.kind in ("cache", "layer"):
        return None
    if slot.kind == "derived":
        parts = (model.by_name[f"blk.{slot.layer}.attn_{part}.weight"].type for part in ("k_b", "v_b"))
        return joined_type(*parts)
    tensor = model.by_name.get(slot.name)
    return (model.by_name["token_embd.weight"] if tensor is None else tensor).type
