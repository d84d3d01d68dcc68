"""llama.cpp: full attention with grouped heads, dense or with experts.

Sources: llama.cpp src/models/{llama,qwen2,qwen3,qwen3moe,glm4-moe,minimax-m2}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.memory.graph import Node
from service.engine.memory.graphs.llama.blocks import LlamaGraph


def standard(g: LlamaGraph) -> None:
    """llama, qwen2, qwen3, qwen3moe: norm, attention, residual, norm, feed-forward, residual."""
    _layers(g, norm_weights=True)


def glm4_moe(g: LlamaGraph) -> None:
    """glm4moe: as standard, with the weights of the experts normed as the header says."""
    _layers(g, norm_weights=g.expert_weights_norm)


def minimax_m2(g: LlamaGraph) -> None:
    """minimax-m2: Q and K normed over all heads at once, before they are split into heads."""
    _layers(g, norm_weights=True, norm_before_heads=True)


def _layers(g: LlamaGraph, *, norm_weights: bool, norm_before_heads: bool = False) -> None:
    x = g.begin()
    g.position_input()
    (cache,) = g.cache_inputs(0)
    ids = g.output_ids()
    for i in range(g.n_layer):
        y = g.norm(x, g.weight(i, "attn_norm.weight"), i)
        q, k, v = _normed_before_heads(g, i, y) if norm_before_heads else g.query_key_value(i, y)
        factors = g.rope_factors(i)
        y = g.attend(i, cache, g.rope(q, factors), g.rope(k, factors), v)
        x = after_attention(g, i, y, x, ids, norm_weights=norm_weights)
    g.finish(x)


def after_attention(g: LlamaGraph, layer: int, y: Node, x: Node, ids: Node | None, *, norm_weights: bool) -> Node:
    """Add the residual (in the last layer of the wanted rows only), then norm, feed-forward and residual."""
    if layer == g.n_layer - 1 and ids is not None:
        y, x = g.get_rows(y, ids), g.get_rows(x, ids)
    h = g.add(y, x)
    y = g.norm(h, g.first_of(layer, "ffn_norm.weight", "post_attention_norm.weight"), layer)
    if not g.layer(layer).moe:
        return g.add(g.feed_forward(layer, y), h)
    return g.add(g.expert_layer(layer, y, g.gating, norm_weights=norm_weights, scale=g.expert_weights_scale), h)


def _normed_before_heads(g: LlamaGraph, layer: int, y: Node) -> tuple[Node, Node, Node]:
    """Q and K are normed over all heads at once."""
    facts = g.layer(layer)
    q, k, v = (g.mul_mat(g.weight(layer, f"attn_{part}.weight"), y) for part in "qkv")
    q = g.norm(q, g.weight(layer, "attn_q_norm.weight"), layer)
    k = g.norm(k, g.weight(layer, "attn_k_norm.weight"), layer)
    return (
        g.reshape(q, facts.head_dim_k, facts.n_head, g.n_tokens),
        g.reshape(k, facts.head_dim_k, facts.n_head_kv, g.n_tokens),
        g.reshape(v, facts.head_dim_v, facts.n_head_kv, g.n_tokens),
    )


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {
    "llama": standard,
    "qwen2": standard,
    "qwen3": standard,
    "qwen3moe": standard,
    "glm4moe": glm4_moe,
    "minimax-m2": minimax_m2,
}
