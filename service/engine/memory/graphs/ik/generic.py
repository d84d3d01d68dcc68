"""ik_llama.cpp: a description for attention models that have none of their own, led by the tensors they have."""

from __future__ import annotations

from service.engine.memory.graphs.ik.blocks import IkGraph


def generic(g: IkGraph) -> None:
    """Norm, attention (windowed or full, with sinks if there are), residual, then experts or a dense layer."""
    x, ids, full, window = g.begin(), g.output_ids(), g.mask(), g.mask()
    for i in g.layers():
        q, k, v = g.query_key_value(i, g.norm(x, g.weight(i, "attn_norm.weight")))
        sinks = g.optional(i, "attn_sinks.weight")
        y = g.attend(i, g.rope(q), g.rope(k), v, window if g.layer(i).n_swa else full, sinks)
        post_attention = g.optional(i, "post_attention_norm.weight")
        if post_attention is not None and g.optional(i, "ffn_norm.weight") is not None:
            y = g.norm(y, post_attention)
        y, x = g.last_rows(i, ids, y, x)
        x = g.add(y, x)
        if g.layer(i).moe:
            x = g.expert_layer(i, x, g.gating, norm_weights=g.expert_weights_norm, scale=g.expert_weights_scale)
        else:
            norm = g.first_of(i, "ffn_norm.weight", "post_attention_norm.weight")
            x = g.feed_forward(i, x, norm, add_input=True)
    g.finish(x)
