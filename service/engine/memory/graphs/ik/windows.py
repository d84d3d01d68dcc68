"""ik_llama.cpp: models with sliding windows. Every windowed layer has a cache and a mask of full size.

Sources: ik src/graphs/build_gemma.cpp, build_openai_moe.cpp, build_llama4.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.memory.graph import Node
from service.engine.memory.graphs.ik.blocks import IkGraph


def gpt_oss(g: IkGraph) -> None:
    """gpt-oss: every other layer windowed, attention sinks, biased experts chosen by their logits."""
    x, ids, full, window = g.begin(), g.output_ids(), g.mask(), g.mask()
    for i in range(g.n_layer):
        mask = window if g.layer(i).n_swa else full
        x = g.standard_attention(i, x, mask, ids, sinks=g.weight(i, "attn_sinks.weight"))
        x = g.expert_layer(i, x, "weight", norm_weights=False)
    g.finish(x)


def gemma3(g: IkGraph) -> None:
    """Scaled embeddings, and norms behind attention and feed-forward as well as before."""
    x = g.begin()
    x = g.apply("SCALE", x)
    full, window = g.mask(), g.mask()
    for i in range(g.n_layer):
        q, k, v = g.query_key_value(i, g.norm(x, g.weight(i, "attn_norm.weight")))
        y = g.attend(i, g.rope(q), g.rope(k), v, window if g.layer(i).n_swa else full)
        y = g.norm(y, g.weight(i, "post_attention_norm.weight"))
        y, x = g.last_rows(i, None, y, x)
        h = g.add(y, x)
        y = g.feed_forward(i, h, g.weight(i, "ffn_norm.weight"))
        x = g.add(g.norm(y, g.weight(i, "post_ffw_norm.weight")), h)
    g.finish(x)


def llama4(g: IkGraph) -> None:
    """Three windowed layers with rope, then a full one without, whose queries are scaled by position."""
    x = g.begin()
    scale = g.input("f32", 1, 1, g.n_tokens)
    full, window, ids = g.mask(), g.mask(), g.output_ids()
    for i in range(g.n_layer):
        if g.layer(i).n_swa:
            x = g.standard_attention(i, x, window, ids, g.rope_factors(i))
        else:
            x = _unroped_attention(g, i, x, full, scale)
        norm = g.weight(i, "ffn_norm.weight")
        if not g.layer(i).moe:
            x = g.feed_forward(i, x, norm, add_input=True)
            continue
        y = g.norm(x, norm)
        routed = g.add(g.routed_experts(i, y, "sigmoid", norm_weights=False, weight_before=True), y)
        x = g.add(routed, g.shared_expert(i, y))
    g.finish(x)


def _unroped_attention(g: IkGraph, layer: int, x: Node, mask: Node, scale: Node) -> Node:
    q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight")))
    out = g.attend(layer, g.mul(q, scale), k, v, mask)
    out, x = g.last_rows(layer, None, out, x)
    return g.add(out, x)


ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = {
    "gpt-oss": gpt_oss,
    "gemma3": gemma3,
    "llama4": llama4,
}
