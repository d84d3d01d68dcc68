"""ik_llama.cpp: full attention with grouped heads, dense or with experts; Granite.

Sources: ik src/graphs/build_{llama,qwen2,qwen3,glm4,minimaxm2,ernie45,hunyuan,seedoss,smollm3,phi3,deci,grok}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from service.engine.engines.ik_llama_cpp.graphs.blocks import IkGraph
from service.engine.memory.graph import Node
from service.engine.memory.graphs.base import Gating


def llama(g: IkGraph) -> None:
    """llama, qwen3: dense or with experts in parallel to the residual; rope factors where the file has them."""
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        x = _experts_in_parallel(g, i, g.standard_attention(i, x, mask, g.rope_factors(i)))
    g.finish(x)


def _experts_in_parallel(g: IkGraph, layer: int, x: Node) -> Node:
    norm = g.weight(layer, "ffn_norm.weight")
    if not g.layer(layer).moe:
        return g.feed_forward(layer, x, norm, add_input=True)
    y = g.norm(x, norm)
    return g.add(g.routed_experts(layer, y, "softmax", norm_weights=True), y)


def granite(g: IkGraph) -> None:
    """granite, granitemoe: as llama; embeddings, queries, logits and the residual stream behind each part are scaled.

    All four scales must be in the file (ik src/llama-hparams.cpp:1343).
    """
    x, mask = g.apply("SCALE", g.begin()), g.mask()
    for i in g.layers():
        x = g.apply("SCALE", _scaled_attention(g, i, x, mask))
        x = g.apply("SCALE", _experts_in_parallel(g, i, x))
    g.finish(x, scale=True)


def _scaled_attention(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """As llama's, but the queries are scaled before they are split into heads."""
    facts, factors = g.layer(layer), g.rope_factors(layer)
    y = g.normed(layer, "attn_norm", x)
    q, k, v = (g.mul_mat(g.weight(layer, f"attn_{part}.weight"), y) for part in "qkv")
    g.expand(q, k, v)
    q = g.reshape(g.apply("SCALE", q), facts.head_dim_k, facts.n_head, g.n_tokens)
    k = g.reshape(k, facts.head_dim_k, facts.n_head_kv, g.n_tokens)
    return g.with_residual(layer, g.attend(layer, g.rope(q, factors), g.rope(k, factors), v, mask), x)


def standard(g: IkGraph, *, gating: Gating | None = None, n_axes: int = 1) -> None:
    """Attention, then experts, routed by `gating` or as the header says, or a dense layer.

    minimax-m3 too: its attention is full, for the engine has no indexer. The next-token layer of glm4moe does not run.
    """
    x, mask = g.begin(n_axes), g.mask()
    for i in g.layers():
        x = g.experts_or_dense(i, g.standard_attention(i, x, mask), gating)
    g.finish(x)


def mistral3(g: IkGraph) -> None:
    """mistral3 (Ministral 3), dense: queries are scaled by position where the header has a temperature."""
    x = g.begin()
    scale = g.input("f32", 1, 1, g.n_tokens) if g.given("attention.temperature_scale") else None
    mask = g.mask()
    for i in g.layers():
        x = g.standard_attention(i, x, mask, g.rope_factors(i), q_scale=scale)
        x = g.feed_forward(i, x, g.weight(i, "ffn_norm.weight"), add_input=True)
    g.finish(x)


def sequential(g: IkGraph, *, late: bool = False, without_rope: int = 0) -> None:
    """qwen2, ernie4_5 (`late`: Q, K and V are expanded where they are stored), smollm3: dense, with plain residuals.

    `without_rope`: every how many layers one has no rope.
    """
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        q, k, v = (g.products if late else g.query_key_value)(i, g.normed(i, "attn_norm", x))
        if not without_rope or (i + 1) % without_rope:
            q, k = g.rope(q), g.rope(k)
        h = g.with_residual(i, g.attend(i, q, k, v, mask), x)
        x = g.add(g.feed_forward(i, h, g.weight(i, "ffn_norm.weight")), h)
    g.finish(x)


def minimax_m2(g: IkGraph) -> None:
    """Q and K are normed over all heads at once, before they are split into heads."""
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        x = g.experts_or_dense(i, g.attention_normed_at_once(i, x, mask), g.gating)
    g.finish(x)


def grok(g: IkGraph) -> None:
    """grok: scores squashed before the soft max, norms behind both parts of a layer, a dense part next to experts."""
    g.caps_scores = True
    x, mask = g.apply("SCALE", g.begin()), g.mask()
    for i in g.layers():
        q, k, v = g.query_key_value(i, g.normed(i, "attn_norm", x))
        out, x = g.last_rows(i, g.attend(i, g.rope(q), g.rope(k), v, mask), x)
        h = g.add(g.normed(i, "attn_output_norm", out), x)
        y = g.normed(i, "ffn_norm", h)
        out = g.routed_experts(i, y, "softmax", norm_weights=True)
        if g.optional(i, "ffn_up.weight") is not None:
            out = g.apply("SCALE", g.add(g.feed_forward(i, y), out))
        x = g.add(g.norm(out, g.first_of(i, "layer_output_norm.weight", "post_ffw_norm.weight")), h)
    g.finish(x, scale=True, soft_cap=g.given("final_logit_softcapping"))


def qwen2_moe(g: IkGraph) -> None:
    """qwen2moe: experts whose weights are not normed, and a shared one behind a gate of its own."""
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        q, k, v = g.query_key_value(i, g.normed(i, "attn_norm", x))
        h = g.with_residual(i, g.attend(i, g.rope(q), g.rope(k), v, mask), x)
        y = g.normed(i, "ffn_norm", h)
        routed = g.routed_experts(i, y, "softmax", norm_weights=False)
        router = g.new("MUL_MAT", "f32", (1, y.ne[1]), g.weight(i, "ffn_gate_inp_shexp.weight"), y)
        opened = g.apply("DIV", g.apply("UNARY", router), router)
        x = g.add(g.add(routed, g.mul(g.shared_expert(i, y), opened)), h)
    g.finish(x)


def qwen3_vl_moe(g: IkGraph) -> None:
    """qwen3vlmoe: positions on four axes; not built of the same blocks as qwen3moe."""
    x, mask = g.begin(n_axes=4), g.mask()
    for i in g.layers():
        q, k, v = g.query_key_value(i, g.normed(i, "attn_norm", x))
        h = g.with_residual(i, g.attend(i, g.rope(q), g.rope(k), v, mask), x)
        y = g.normed(i, "ffn_norm", h)
        x = g.add(g.routed_experts(i, y, "softmax", norm_weights=True), h)
    g.finish(x)


def glm4(g: IkGraph) -> None:
    """glm4 (dense): norms behind attention and feed-forward as well as before, gate and up in one weight."""
    x, mask = g.begin(n_axes=g.position_axes), g.mask()
    for i in g.layers():
        q, k, v = g.products(i, g.normed(i, "attn_norm", x))
        out, x = g.last_rows(i, g.attend(i, g.rope(q), g.rope(k), v, mask), x)
        h = g.add(g.normed(i, "post_attention_norm", out), x)
        y = g.norm(g.feed_forward(i, h, g.weight(i, "ffn_norm.weight")), g.weight(i, "post_ffw_norm.weight"))
        x = g.add(y, h)
    g.finish(x)


def phi3(g: IkGraph) -> None:
    """phi3 (Phi-3, Phi-4): Q, K and V in one weight, gate and up in one, scaled queries."""
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        factors = g.rope_factors(i)
        q, k, v = g.query_key_value(i, g.normed(i, "attn_norm", x))
        q, k = g.apply("SCALE", g.rope(q, factors)), g.rope(k, factors)
        h = g.with_residual(i, g.attend(i, q, k, v, mask), x)
        x = g.add(h, g.feed_forward(i, h, g.weight(i, "ffn_norm.weight")))
    g.finish(x)


def deci(g: IkGraph) -> None:
    """deci (Nemotron Super and Ultra): layers may lack attention, or have a product in its place, or lack the rest."""
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        facts, y = g.layer(i), x
        if facts.n_head:
            y = g.normed(i, "attn_norm", x)
        if facts.n_head and facts.n_head_kv:
            factors = g.rope_factors(i)
            q, k, v = g.query_key_value(i, y)
            y = g.attend(i, g.rope(q, factors), g.rope(k, factors), v, mask)
        elif facts.n_head:
            y = g.mul_mat(g.weight(i, "attn_output.weight"), y)
        norm = g.optional(i, "ffn_norm.weight")
        if norm is None:
            continue
        y, residual = g.last_rows(i, y, x)
        h = g.add(y, residual) if facts.n_head else y
        x = g.add(g.feed_forward(i, h, norm), h)
    g.finish(x)


def bailing2(g: IkGraph) -> None:
    """bailingmoe2 (Ling and Ring 2.0): Q, K and V in one weight, dense layers first, then experts and a shared one."""
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        q, k, v = g.query_key_value(i, g.normed(i, "attn_norm", x))
        out, x = g.last_rows(i, g.attend(i, g.rope(q), g.rope(k), v, mask), x)
        x = g.shared_before_residual(i, g.add(out, x))
    g.finish(x)


def dots1(g: IkGraph) -> None:
    """dots1: Q and K normed head by head, dense layers first, then experts and a shared one."""
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        q, k, v = g.products(i, g.normed(i, "attn_norm", x))
        q, k = (g.rope(g.norm(t, g.weight(i, f"attn_{part}_norm.weight"))) for part, t in (("q", q), ("k", k)))
        out, x = g.last_rows(i, g.attend(i, q, k, v, mask), x)
        x = g.shared_before_residual(i, g.add(out, x))
    g.finish(x)


ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = {
    "bailingmoe2": bailing2,
    "dots1": dots1,
    "granite": granite,
    "granitemoe": granite,
    "mistral3": mistral3,
    "llama": llama,
    "qwen3": llama,
    "qwen2": sequential,
    "qwen3moe": partial(standard, gating="softmax"),
    "glm4moe": standard,
    "minimax-m2": minimax_m2,
    "minimax-m3": standard,
    "grok": grok,
    "seed_oss": standard,
    "ernie4_5": partial(sequential, late=True),
    "ernie4_5-moe": partial(standard, gating="softmax"),
    "hunyuan-moe": partial(standard, gating="softmax"),
    "smollm3": partial(sequential, without_rope=4),
    "qwen2moe": qwen2_moe,
    "qwen3vl": partial(standard, n_axes=4),
    "qwen3vlmoe": qwen3_vl_moe,
    "glm4": glm4,
    "phi3": phi3,
    "deci": deci,
}


def generic(g: IkGraph) -> None:
    """Norm, attention (windowed or full, with sinks if there are), residual, then experts or a dense layer.

    For attention models that have no description of their own: led by the tensors they have.
    """
    x, full, window = g.begin(), g.mask(), g.mask()
    for i in g.layers():
        q, k, v = g.query_key_value(i, g.normed(i, "attn_norm", x))
        sinks = g.optional(i, "attn_sinks.weight")
        y = g.attend(i, g.rope(q), g.rope(k), v, window if g.layer(i).n_swa else full, sinks)
        post_attention = g.optional(i, "post_attention_norm.weight")
        if post_attention is not None and g.optional(i, "ffn_norm.weight") is not None:
            y = g.norm(y, post_attention)
        x = g.experts_or_dense(i, g.with_residual(i, y, x))
    g.finish(x)
