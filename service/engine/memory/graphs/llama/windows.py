"""llama.cpp: models with sliding windows, whose windowed layers have a small cache and mask of their own.

Sources: llama.cpp src/models/{gemma3,openai-moe,llama4}.cpp, src/llama-kv-cache-iswa.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.memory.graph import Node
from service.engine.memory.graphs.llama.blocks import CacheInput, LlamaGraph


def window_of(g: LlamaGraph) -> int:
    """Return the model's sliding window in tokens."""
    return max(layer.n_swa for layer in g.model.layers)


def gpt_oss(g: LlamaGraph) -> None:
    """gpt-oss: every other layer with a windowed cache, attention sinks, biased experts."""
    x = g.begin()
    g.position_input()
    full, window = g.cache_inputs(0, window_of(g))
    ids = g.output_ids()
    for i in range(g.n_layer):
        y = _attention(g, i, x, window if g.layer(i).n_swa else full)
        h = g.add(y, x)
        y = g.norm(h, g.weight(i, "post_attention_norm.weight"), i)
        x = g.add(g.expert_layer(i, y, "weight", norm_weights=False, scale=g.expert_weights_scale), h)
    x = g.get_rows(g.output(x), ids)  # the hidden states are an output of their own
    g.finish(x)


def _attention(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
    sinks = g.optional(layer, "attn_sinks.weight")
    return g.attend(layer, cache, g.rope(q), g.rope(k), v, sinks=sinks, window=True)


def gemma3(g: LlamaGraph) -> None:
    """Scaled embeddings and queries, and norms behind attention and feed-forward as well as before."""
    x = g.begin()
    x = g.apply("SCALE", x)
    g.position_input()
    full, window = g.cache_inputs(0, window_of(g))
    ids = g.output_ids()
    for i in range(g.n_layer):
        q, k, v = g.query_key_value(i, g.norm(x, g.weight(i, "attn_norm.weight"), i))
        q, k = g.rope(q), g.rope(k)
        y = g.attend(i, window if g.layer(i).n_swa else full, g.apply("SCALE", q), k, v, window=True)
        if i == g.n_layer - 1:
            y, x = g.get_rows(y, ids), g.get_rows(x, ids)
        h = g.add(g.norm(y, g.weight(i, "post_attention_norm.weight"), i), x)
        y = g.feed_forward(i, g.norm(h, g.weight(i, "ffn_norm.weight"), i))
        x = g.add(g.norm(y, g.weight(i, "post_ffw_norm.weight"), None), h)
    g.finish(x)


def llama4(g: LlamaGraph) -> None:
    """Three windowed layers with rope, then a full one without, whose queries are scaled by position."""
    x = g.begin()
    g.position_input()
    scale = g.input("f32", 1, 1, g.n_tokens)
    full, window = g.cache_inputs(0, window_of(g))
    ids = g.output_ids()
    for i in range(g.n_layer):
        y = _llama4_attention(g, i, x, window if g.layer(i).n_swa else full, scale)
        if i == g.n_layer - 1:
            y, x = g.get_rows(y, ids), g.get_rows(x, ids)
        h = g.add(y, x)
        y = g.norm(h, g.weight(i, "ffn_norm.weight"), i)
        if g.layer(i).moe:
            y = g.expert_layer(i, y, "sigmoid", norm_weights=False, scale=False, weight_before=True)
        else:
            y = g.feed_forward(i, y)
        x = g.add(y, h)
    g.finish(x)


def _llama4_attention(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, scale: Node) -> Node:
    q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
    if g.layer(layer).n_swa:
        factors = g.rope_factors(layer)
        q, k = g.rope(q, factors), g.rope(k, factors)
        if g.model.n_expert != 128:  # Maverick has no norm on Q and K
            q, k = g.apply("RMS_NORM", q), g.apply("RMS_NORM", k)
    else:
        q = g.mul(q, scale)
    return g.attend(layer, cache, q, k, v, window=True)


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {
    "gpt-oss": gpt_oss,
    "gemma3": gemma3,
    "llama4": llama4,
}
