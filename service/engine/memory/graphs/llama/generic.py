"""llama.cpp: a description for attention models that have none of their own, led by the tensors they have."""

from __future__ import annotations

from service.engine.memory.graphs.llama.blocks import LlamaGraph
from service.engine.memory.graphs.llama.gqa import after_attention
from service.engine.memory.graphs.llama.windows import window_of


def generic(g: LlamaGraph) -> None:
    """Norm, attention (windowed or full, with sinks if there are), residual, then experts or a dense layer."""
    x = g.begin()
    g.position_input()
    windowed = window_of(g) > 0
    full, window = g.cache_inputs(0, window_of(g))
    ids = g.output_ids()
    for i in range(g.n_layer):
        q, k, v = g.query_key_value(i, g.norm(x, g.weight(i, "attn_norm.weight"), i))
        sinks = g.optional(i, "attn_sinks.weight")
        cache = window if g.layer(i).n_swa else full
        y = g.attend(i, cache, g.rope(q), g.rope(k), v, sinks=sinks, window=windowed)
        post_attention = g.optional(i, "post_attention_norm.weight")
        if post_attention is not None and g.optional(i, "ffn_norm.weight") is not None:
            y = g.norm(y, post_attention, i)
        x = after_attention(g, i, y, x, ids, norm_weights=g.expert_weights_norm)
    g.finish(x)
