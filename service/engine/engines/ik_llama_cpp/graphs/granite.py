"""ik_llama.cpp: Granite, llama with scaled embeddings, queries, residuals and logits.

Source: ik src/graphs/build_llama.cpp, src/llama-hparams.cpp:1343 (all four scales must be in the file).
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.ik_llama_cpp.graphs.blocks import IkGraph
from service.engine.memory.graph import Node


def granite(g: IkGraph) -> None:
    """granite, granitemoe: the whole residual stream is scaled behind attention and behind feed-forward."""
    x = g.apply("SCALE", g.begin())
    mask, ids = g.mask(), g.output_ids()
    for i in g.layers():
        x = g.apply("SCALE", _attention(g, i, x, mask, ids))
        norm = g.weight(i, "ffn_norm.weight")
        if g.layer(i).moe:
            y = g.norm(x, norm)
            x = g.add(g.routed_experts(i, y, "softmax", norm_weights=True), y)
        else:
            x = g.feed_forward(i, x, norm, add_input=True)
        x = g.apply("SCALE", x)
    logits = g.mul_mat(g.output_head(), g.norm(x, g.required("output_norm.weight")))
    g.expand(g.apply("SCALE", logits))


def _attention(g: IkGraph, layer: int, x: Node, mask: Node, ids: Node) -> Node:
    """As llama's, but the queries are scaled before they are split into heads."""
    facts, factors = g.layer(layer), g.rope_factors(layer)
    y = g.norm(x, g.weight(layer, "attn_norm.weight"))
    q, k, v = (g.mul_mat(g.weight(layer, f"attn_{part}.weight"), y) for part in "qkv")
    g.expand(q, k, v)
    q = g.reshape(g.apply("SCALE", q), facts.head_dim_k, facts.n_head, g.n_tokens)
    k = g.reshape(k, facts.head_dim_k, facts.n_head_kv, g.n_tokens)
    out = g.attend(layer, g.rope(q, factors), g.rope(k, factors), v, mask)
    out, x = g.last_rows(layer, ids, out, x)
    return g.add(out, x)


ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = {
    "granite": granite,
    "granitemoe": granite,
}
