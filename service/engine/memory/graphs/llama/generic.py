"""llama.cpp: a description for attention models that have none of their own, led by the tensors they have."""

from __future__ import annotations

from service.engine.memory.graph import Node
from service.engine.memory.graphs.llama.blocks import CacheInput, LlamaGraph
from service.engine.memory.graphs.llama.gqa import after_attention, decoder


def generic(g: LlamaGraph) -> None:
    """Norm, attention (windowed or full, with sinks if there are), residual, then experts or a dense layer."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
        y = g.attend(layer, cache, g.rope(q), g.rope(k), v, sinks=g.optional(layer, "attn_sinks.weight"))
        post_attention = g.optional(layer, "post_attention_norm.weight")
        if post_attention is not None and g.optional(layer, "ffn_norm.weight") is not None:
            y = g.norm(y, post_attention, layer)
        return after_attention(g, layer, y, x, ids, norm_weights=g.expert_weights_norm)

    decoder(g, layer_of)
