"""ik_llama.cpp: full attention with grouped heads, dense or with experts.

Sources: ik src/graphs/build_llama.cpp, build_qwen2.cpp, build_qwen3.cpp, build_glm4.cpp, build_minimaxm2.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.memory.graphs.ik.blocks import IkGraph


def llama(g: IkGraph) -> None:
    """llama, qwen3: dense or with experts beside the residual; rope factors where the file has them."""
    x, mask, ids = g.begin(), g.mask(), g.output_ids()
    for i in range(g.n_layer):
        x = g.standard_attention(i, x, mask, ids, g.rope_factors(i))
        norm = g.weight(i, "ffn_norm.weight")
        if g.layer(i).moe:
            y = g.norm(x, norm)
            x = g.add(g.routed_experts(i, y, "softmax", norm_weights=True), y)
        else:
            x = g.feed_forward(i, x, norm, add_input=True)
    g.finish(x)


def qwen2(g: IkGraph) -> None:
    """qwen2: biased Q, K and V; the rows of the logits are chosen in the last layer."""
    x, mask = g.begin(), g.mask()
    for i in range(g.n_layer):
        q, k, v = g.query_key_value(i, g.norm(x, g.weight(i, "attn_norm.weight")))
        out = g.attend(i, g.rope(q), g.rope(k), v, mask)
        out, x = g.last_rows(i, None, out, x)
        h = g.add(out, x)
        x = g.add(g.feed_forward(i, h, g.weight(i, "ffn_norm.weight")), h)
    g.finish(x)


def qwen3_moe(g: IkGraph) -> None:
    """qwen3moe: experts in every layer, Q and K normed head by head."""
    x, mask = g.begin(), g.mask()
    for i in range(g.n_layer):
        x = g.standard_attention(i, x, mask, None)
        x = g.expert_layer(i, x, "softmax", norm_weights=True)
    g.finish(x)


def minimax_m2(g: IkGraph) -> None:
    """Q and K are normed over all heads at once, before they are split into heads."""
    x, ids, mask = g.begin(), g.output_ids(), g.mask()
    for i in range(g.n_layer):
        facts = g.layer(i)
        y = g.norm(x, g.weight(i, "attn_norm.weight"))
        q, k, v = (g.mul_mat(g.weight(i, f"attn_{part}.weight"), y) for part in "qkv")
        q = g.reshape(g.norm(q, g.weight(i, "attn_q_norm.weight")), facts.head_dim_k, facts.n_head, g.n_tokens)
        k = g.reshape(g.norm(k, g.weight(i, "attn_k_norm.weight")), facts.head_dim_k, facts.n_head_kv, g.n_tokens)
        out = g.attend(i, g.rope(q), g.rope(k), v, mask)
        out, x = g.last_rows(i, ids, out, x)
        x = g.expert_layer(i, g.add(out, x), g.gating, norm_weights=True)
    g.finish(x)


def glm4_moe(g: IkGraph) -> None:
    """glm4moe: dense layers first, then experts and a shared one; the next-token layer does not run."""
    x, mask, ids = g.begin(), g.mask(), g.output_ids()
    for i in range(g.n_layer):
        x = g.standard_attention(i, x, mask, ids)
        if g.layer(i).moe:
            x = g.expert_layer(i, x, g.gating, norm_weights=g.expert_weights_norm, scale=g.expert_weights_scale)
        else:
            x = g.feed_forward(i, x, g.weight(i, "post_attention_norm.weight"), add_input=True)
    g.finish(x)


ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = {
    "llama": llama,
    "qwen3": llama,
    "qwen2": qwen2,
    "qwen3moe": qwen3_moe,
    "glm4moe": glm4_moe,
    "minimax-m2": minimax_m2,
}
