"""ik_llama.cpp: full attention with grouped heads, dense or with experts.

Sources: ik src/graphs/build_{llama,qwen2,qwen3,glm4,minimaxm2,ernie45,hunyuan,seedoss,smollm3,phi3,deci,grok}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.ik_llama_cpp.graphs.blocks import IkGraph
from service.engine.memory.graph import Node


def llama(g: IkGraph) -> None:
    """llama, qwen3: dense or with experts in parallel to the residual; rope factors where the file has them."""
    x, mask, ids = g.begin(), g.mask(), g.output_ids()
    for i in g.layers():
        x = g.standard_attention(i, x, mask, ids, g.rope_factors(i))
        norm = g.weight(i, "ffn_norm.weight")
        if g.layer(i).moe:
            y = g.norm(x, norm)
            x = g.add(g.routed_experts(i, y, "softmax", norm_weights=True), y)
        else:
            x = g.feed_forward(i, x, norm, add_input=True)
    g.finish(x)


def mistral3(g: IkGraph) -> None:
    """mistral3 (Ministral 3), dense: queries are scaled by position where the header has a temperature."""
    x = g.begin()
    scale = g.input("f32", 1, 1, g.n_tokens) if g.given("attention.temperature_scale") else None
    mask, ids = g.mask(), g.output_ids()
    for i in g.layers():
        x = g.standard_attention(i, x, mask, ids, g.rope_factors(i), q_scale=scale)
        x = g.feed_forward(i, x, g.weight(i, "ffn_norm.weight"), add_input=True)
    g.finish(x)


def qwen2(g: IkGraph) -> None:
    """qwen2: biased Q, K and V; the rows of the logits are chosen in the last layer."""
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        q, k, v = g.query_key_value(i, g.norm(x, g.weight(i, "attn_norm.weight")))
        out = g.attend(i, g.rope(q), g.rope(k), v, mask)
        out, x = g.last_rows(i, None, out, x)
        h = g.add(out, x)
        x = g.add(g.feed_forward(i, h, g.weight(i, "ffn_norm.weight")), h)
    g.finish(x)


def qwen3_moe(g: IkGraph) -> None:
    """qwen3moe: experts in every layer, Q and K normed head by head."""
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        x = g.standard_attention(i, x, mask, None)
        x = g.expert_layer(i, x, "softmax", norm_weights=True)
    g.finish(x)


def minimax_m2(g: IkGraph) -> None:
    """Q and K are normed over all heads at once, before they are split into heads."""
    x, ids, mask = g.begin(), g.output_ids(), g.mask()
    for i in g.layers():
        x = g.attention_normed_at_once(i, x, mask, ids)
        x = g.expert_layer(i, x, g.gating, norm_weights=True)
    g.finish(x)


def minimax_m3(g: IkGraph) -> None:
    """minimax-m3: dense layers first, then experts and a shared one. Attention is full: the engine has no indexer."""
    x, ids, mask = g.begin(), g.output_ids(), g.mask()
    for i in g.layers():
        x = g.standard_attention(i, x, mask, ids)
        if g.layer(i).moe:
            x = g.expert_layer(i, x, g.gating, norm_weights=g.expert_weights_norm, scale=g.expert_weights_scale)
        else:
            x = g.feed_forward(i, x, g.weight(i, "ffn_norm.weight"), add_input=True)
    g.finish(x)


def grok(g: IkGraph) -> None:
    """grok: scores squashed before the soft max, norms behind both parts of a layer, a dense part next to experts."""
    g.caps_scores = True
    x, mask = g.apply("SCALE", g.begin()), g.mask()
    for i in g.layers():
        q, k, v = g.query_key_value(i, g.norm(x, g.weight(i, "attn_norm.weight")))
        out, x = g.last_rows(i, None, g.attend(i, g.rope(q), g.rope(k), v, mask), x)
        h = g.add(g.norm(out, g.weight(i, "attn_output_norm.weight")), x)
        y = g.norm(h, g.weight(i, "ffn_norm.weight"))
        out = g.routed_experts(i, y, "softmax", norm_weights=True)
        if g.optional(i, "ffn_up.weight") is not None:
            out = g.apply("SCALE", g.add(g.feed_forward(i, y), out))
        x = g.add(g.norm(out, g.first_of(i, "layer_output_norm.weight", "post_ffw_norm.weight")), h)
    g.finish(x, scale=True, soft_cap=g.given("final_logit_softcapping"))


def glm4_moe(g: IkGraph) -> None:
    """glm4moe: dense layers first, then experts and a shared one; the next-token layer does not run."""
    x, mask, ids = g.begin(), g.mask(), g.output_ids()
    for i in g.layers():
        x = g.standard_attention(i, x, mask, ids)
        if g.layer(i).moe:
            x = g.expert_layer(i, x, g.gating, norm_weights=g.expert_weights_norm, scale=g.expert_weights_scale)
        else:
            x = g.feed_forward(i, x, g.weight(i, "post_attention_norm.weight"), add_input=True)
    g.finish(x)


def seed_oss(g: IkGraph) -> None:
    """seed_oss: as llama, the norm before the feed-forward under another name."""
    x, ids, mask = g.begin(), g.output_ids(), g.mask()
    for i in g.layers():
        x = g.standard_attention(i, x, mask, ids)
        x = g.feed_forward(i, x, g.weight(i, "post_attention_norm.weight"), add_input=True)
    g.finish(x)


def ernie4_5_moe(g: IkGraph) -> None:
    """ernie4_5-moe, hunyuan-moe: dense layers first if any, then experts and shared ones, by soft max."""
    x, mask, ids = g.begin(), g.mask(), g.output_ids()
    for i in g.layers():
        x = g.standard_attention(i, x, mask, ids)
        if g.layer(i).moe:
            x = g.expert_layer(i, x, "softmax", norm_weights=True)
        else:
            x = g.feed_forward(i, x, g.weight(i, "ffn_norm.weight"), add_input=True)
    g.finish(x)


def ernie4_5(g: IkGraph) -> None:
    """ernie4_5: Q, K and V are expanded only where they are stored."""
    x, mask, ids = g.begin(), g.mask(), g.output_ids()
    for i in g.layers():
        q, k, v = g.products(i, g.norm(x, g.weight(i, "attn_norm.weight")))
        out, x = g.last_rows(i, ids, g.attend(i, g.rope(q), g.rope(k), v, mask), x)
        h = g.add(out, x)
        x = g.add(g.feed_forward(i, h, g.weight(i, "ffn_norm.weight")), h)
    g.finish(x)


def smollm3(g: IkGraph) -> None:
    """smollm3: every fourth layer without rope."""
    x, ids, mask = g.begin(), g.output_ids(), g.mask()
    for i in g.layers():
        q, k, v = g.query_key_value(i, g.norm(x, g.weight(i, "attn_norm.weight")))
        if (i + 1) % 4:
            q, k = g.rope(q), g.rope(k)
        out, x = g.last_rows(i, ids, g.attend(i, q, k, v, mask), x)
        h = g.add(out, x)
        x = g.add(g.feed_forward(i, h, g.weight(i, "ffn_norm.weight")), h)
    g.finish(x)


def qwen2_moe(g: IkGraph) -> None:
    """qwen2moe: experts whose weights are not normed, and a shared one behind a gate of its own."""
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        q, k, v = g.query_key_value(i, g.norm(x, g.weight(i, "attn_norm.weight")))
        out, x = g.last_rows(i, None, g.attend(i, g.rope(q), g.rope(k), v, mask), x)
        h = g.add(out, x)
        y = g.norm(h, g.weight(i, "ffn_norm.weight"))
        routed = g.routed_experts(i, y, "softmax", norm_weights=False)
        router = g.new("MUL_MAT", "f32", (1, y.ne[1]), g.weight(i, "ffn_gate_inp_shexp.weight"), y)
        opened = g.apply("DIV", g.apply("UNARY", router), router)
        x = g.add(g.add(routed, g.mul(g.shared_expert(i, y), opened)), h)
    g.finish(x)


def qwen3_vl(g: IkGraph) -> None:
    """qwen3vl: as qwen3, positions on four axes."""
    x, mask, ids = g.begin(n_axes=4), g.mask(), g.output_ids()
    for i in g.layers():
        x = g.standard_attention(i, x, mask, ids)
        x = g.feed_forward(i, x, g.weight(i, "ffn_norm.weight"), add_input=True)
    g.finish(x)


def qwen3_vl_moe(g: IkGraph) -> None:
    """qwen3vlmoe: positions on four axes; not built of the same blocks as qwen3moe."""
    x, mask = g.begin(n_axes=4), g.mask()
    for i in g.layers():
        q, k, v = g.query_key_value(i, g.norm(x, g.weight(i, "attn_norm.weight")))
        out, x = g.last_rows(i, None, g.attend(i, g.rope(q), g.rope(k), v, mask), x)
        h = g.add(out, x)
        y = g.norm(h, g.weight(i, "ffn_norm.weight"))
        x = g.add(g.routed_experts(i, y, "softmax", norm_weights=True), h)
    g.finish(x)


def glm4(g: IkGraph) -> None:
    """glm4 (dense): norms behind attention and feed-forward as well as before, gate and up in one weight."""
    x, mask = g.begin(n_axes=g.position_axes), g.mask()
    for i in g.layers():
        q, k, v = g.products(i, g.norm(x, g.weight(i, "attn_norm.weight")))
        out, x = g.last_rows(i, None, g.attend(i, g.rope(q), g.rope(k), v, mask), x)
        h = g.add(g.norm(out, g.weight(i, "post_attention_norm.weight")), x)
        y = g.norm(g.feed_forward(i, h, g.weight(i, "ffn_norm.weight")), g.weight(i, "post_ffw_norm.weight"))
        x = g.add(y, h)
    g.finish(x)


def phi3(g: IkGraph) -> None:
    """phi3 (Phi-3, Phi-4): Q, K and V in one weight, gate and up in one, scaled queries."""
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        factors = g.rope_factors(i)
        q, k, v = g.query_key_value(i, g.norm(x, g.weight(i, "attn_norm.weight")))
        q, k = g.apply("SCALE", g.rope(q, factors)), g.rope(k, factors)
        out, x = g.last_rows(i, None, g.attend(i, q, k, v, mask), x)
        h = g.add(out, x)
        x = g.add(h, g.feed_forward(i, h, g.weight(i, "ffn_norm.weight")))
    g.finish(x)


def deci(g: IkGraph) -> None:
    """deci (Nemotron Super and Ultra): layers may lack attention, or have a product in its place, or lack the rest."""
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        facts, y = g.layer(i), x
        if facts.n_head:
            y = g.norm(x, g.weight(i, "attn_norm.weight"))
        if facts.n_head and facts.n_head_kv:
            factors = g.rope_factors(i)
            q, k, v = g.query_key_value(i, y)
            y = g.attend(i, g.rope(q, factors), g.rope(k, factors), v, mask)
        elif facts.n_head:
            y = g.mul_mat(g.weight(i, "attn_output.weight"), y)
        norm = g.optional(i, "ffn_norm.weight")
        if norm is None:
            continue
        y, residual = g.last_rows(i, None, y, x)
        h = g.add(y, residual) if facts.n_head else y
        x = g.add(g.feed_forward(i, h, norm), h)
    g.finish(x)


def bailing2(g: IkGraph) -> None:
    """bailingmoe2 (Ling and Ring 2.0): Q, K and V in one weight, dense layers first, then experts and a shared one."""
    x, mask, ids = g.begin(), g.mask(), g.output_ids()
    for i in g.layers():
        q, k, v = g.query_key_value(i, g.norm(x, g.weight(i, "attn_norm.weight")))
        out, x = g.last_rows(i, ids, g.attend(i, g.rope(q), g.rope(k), v, mask), x)
        x = _with_shared_expert(g, i, g.add(out, x))
    g.finish(x)


def dots1(g: IkGraph) -> None:
    """dots1: Q and K normed head by head, dense layers first, then experts and a shared one."""
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        q, k, v = g.products(i, g.norm(x, g.weight(i, "attn_norm.weight")))
        q, k = (g.rope(g.norm(t, g.weight(i, f"attn_{part}_norm.weight"))) for part, t in (("q", q), ("k", k)))
        out, x = g.last_rows(i, None, g.attend(i, q, k, v, mask), x)
        x = _with_shared_expert(g, i, g.add(out, x))
    g.finish(x)


def _with_shared_expert(g: IkGraph, layer: int, h: Node) -> Node:
    """Norm, feed-forward and the residual; the shared expert is added to the routed ones first."""
    y = g.norm(h, g.weight(layer, "ffn_norm.weight"))
    if not g.layer(layer).moe:
        return g.add(g.feed_forward(layer, y), h)
    norm, scale = g.expert_weights_norm, g.expert_weights_scale
    routed = g.routed_experts(layer, y, g.gating, norm_weights=norm, scale=scale)
    return g.add(g.add(routed, g.shared_expert(layer, y)), h)


ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = {
    "bailingmoe2": bailing2,
    "dots1": dots1,
    "mistral3": mistral3,
    "llama": llama,
    "qwen3": llama,
    "qwen2": qwen2,
    "qwen3moe": qwen3_moe,
    "glm4moe": glm4_moe,
    "minimax-m2": minimax_m2,
    "minimax-m3": minimax_m3,
    "grok": grok,
    "seed_oss": seed_oss,
    "ernie4_5": ernie4_5,
    "ernie4_5-moe": ernie4_5_moe,
    "hunyuan-moe": ernie4_5_moe,
    "smollm3": smollm3,
    "qwen2moe": qwen2_moe,
    "qwen3vl": qwen3_vl,
    "qwen3vlmoe": qwen3_vl_moe,
    "glm4": glm4,
    "phi3": phi3,
    "deci": deci,
}


def generic(g: IkGraph) -> None:
    """Norm, attention (windowed or full, with sinks if there are), residual, then experts or a dense layer.

    For attention models that have no description of their own: led by the tensors they have.
    """
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
