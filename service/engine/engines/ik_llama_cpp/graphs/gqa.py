"""ik_llama.cpp: full attention with grouped heads, dense or with experts; Granite.

Sources: ik src/graphs/build_{llama,qwen2,qwen3,glm4,minimaxm2,ernie45,hunyuan,seedoss,smollm3,phi3,deci,grok}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from service.engine.engines.ik_llama_cpp.graphs.blocks import IkGraph
from service.engine.memory.graph import Node
from service.engine.memory.graphs.base import Gating, by_name

LayerOf: TypeAlias = Callable[[IkGraph, int, Node, Node], Node]
"""What a layer makes of the residual stream."""


def decoder(
    g: IkGraph, layer_of: LayerOf, x: Node | None = None, *, n_axes: int = 1, scale_before: bool = False,
    scale: bool = False, soft_cap: bool = False,
) -> None:  # fmt: skip
    """All layers, each with the mask for its window, from the embeddings (or `x`, made of them) to the logits."""
    x = g.begin(n_axes) if x is None else x
    full, window = g.mask(), g.mask()
    for i in g.layers():
        x = layer_of(g, i, x, window if g.layer(i).n_swa else full)
    g.finish(x, scale_before=scale_before, scale=scale, soft_cap=soft_cap)


def decoders(layers: Mapping[str, LayerOf]) -> dict[str, Callable[[IkGraph], None]]:
    """Return descriptions of which nothing but the layers is special, by architecture."""
    return {name: partial(decoder, layer_of=layer_of) for name, layer_of in by_name(layers).items()}


def llama(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """llama, qwen3: dense or with experts in parallel to the residual; rope factors where the file has them."""
    return _experts_in_parallel(g, layer, g.standard_attention(layer, x, mask, g.rope_factors(layer)))


def _experts_in_parallel(g: IkGraph, layer: int, x: Node) -> Node:
    norm = g.weight(layer, "ffn_norm.weight")
    if not g.layer(layer).moe:
        return g.feed_forward(layer, x, norm, add_input=True)
    y = g.norm(x, norm)
    return g.add(g.routed_experts(layer, y, "softmax", norm_weights=True), y)


def granite(g: IkGraph) -> None:
    """granite, granitemoe: as llama; embeddings, queries, logits and the residual stream after each part are scaled.

    All four scales must be in the file (ik src/llama-hparams.cpp:1343).
    """

    def layer_of(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
        x = g.apply("SCALE", _scaled_attention(g, layer, x, mask))
        return g.apply("SCALE", _experts_in_parallel(g, layer, x))

    decoder(g, layer_of, g.apply("SCALE", g.begin()), scale=True)


def _scaled_attention(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """As llama's, but the queries are scaled before they are split into heads."""
    facts, factors = g.layer(layer), g.rope_factors(layer)
    y = g.normed(layer, "attn_norm", x)
    q, k, v = (g.mul_mat(g.weight(layer, f"attn_{part}.weight"), y) for part in "qkv")
    g.expand(q, k, v)
    q = g.reshape(g.apply("SCALE", q), facts.head_dim_k, facts.n_head, g.n_tokens)
    k = g.reshape(k, facts.head_dim_k, facts.n_head_kv, g.n_tokens)
    return g.with_residual(layer, g.attend(layer, g.rope(q, factors), g.rope(k, factors), v, mask), x)


def standard(g: IkGraph, layer: int, x: Node, mask: Node, *, gating: Gating | None = None) -> Node:
    """Attention, then experts, routed by `gating` or as the header says, or a dense layer.

    minimax-m3 too: its attention is full, for the engine has no indexer. The next-token layer of glm4moe does not run.
    """
    return g.experts_or_dense(layer, g.standard_attention(layer, x, mask), gating)


def mistral3(g: IkGraph) -> None:
    """mistral3 (Ministral 3), dense: queries are scaled by position where the header has a temperature."""
    scale = g.input("f32", 1, 1, g.n_tokens) if g.given("attention.temperature_scale") else None

    def layer_of(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
        x = g.standard_attention(layer, x, mask, g.rope_factors(layer), q_scale=scale)
        return g.feed_forward(layer, x, g.weight(layer, "ffn_norm.weight"), add_input=True)

    decoder(g, layer_of)


def sequential(g: IkGraph, layer: int, x: Node, mask: Node, *, late: bool = False, without_rope: int = 0) -> Node:
    """qwen2, ernie4_5 (`late`: Q, K and V are expanded where they are stored), smollm3: dense, with plain residuals.

    `without_rope`: every how many layers one has no rope.
    """
    q, k, v = (g.products if late else g.query_key_value)(layer, g.normed(layer, "attn_norm", x))
    if not without_rope or (layer + 1) % without_rope:
        q, k = g.rope(q), g.rope(k)
    h = g.with_residual(layer, g.attend(layer, q, k, v, mask), x)
    return g.add(g.feed_forward(layer, h, g.weight(layer, "ffn_norm.weight")), h)


def minimax_m2(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """Q and K are normed over all heads at once, before they are split into heads."""
    return g.experts_or_dense(layer, g.attention_normed_at_once(layer, x, mask), g.gating)


def grok(g: IkGraph) -> None:
    """grok: scores squashed before the soft max, norms after both parts of a layer, a dense part next to experts."""
    g.caps_scores = True

    def layer_of(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
        q, k, v = g.query_key_value(layer, g.normed(layer, "attn_norm", x))
        out, x = g.last_rows(layer, g.attend(layer, g.rope(q), g.rope(k), v, mask), x)
        h = g.add(g.normed(layer, "attn_output_norm", out), x)
        y = g.normed(layer, "ffn_norm", h)
        out = g.routed_experts(layer, y, "softmax", norm_weights=True)
        if g.optional(layer, "ffn_up.weight") is not None:
            out = g.apply("SCALE", g.add(g.feed_forward(layer, y), out))
        return g.add(g.norm(out, g.first_of(layer, "layer_output_norm.weight", "post_ffw_norm.weight")), h)

    decoder(g, layer_of, g.apply("SCALE", g.begin()), scale=True, soft_cap=g.given("final_logit_softcapping"))


def qwen2_moe(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """qwen2moe: experts whose weights are not normed, and a shared one behind a gate of its own."""
    h = g.standard_attention(layer, x, mask)
    y = g.normed(layer, "ffn_norm", h)
    routed = g.routed_experts(layer, y, "softmax", norm_weights=False)
    router = g.new("MUL_MAT", "f32", (1, y.ne[1]), g.weight(layer, "ffn_gate_inp_shexp.weight"), y)
    opened = g.apply("DIV", g.apply("UNARY", router), router)
    return g.add(g.add(routed, g.mul(g.shared_expert(layer, y), opened)), h)


def qwen3_vl_moe(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """qwen3vlmoe: positions on four axes; not built of the same blocks as qwen3moe."""
    h = g.standard_attention(layer, x, mask)
    y = g.normed(layer, "ffn_norm", h)
    return g.add(g.routed_experts(layer, y, "softmax", norm_weights=True), h)


def glm4(g: IkGraph) -> None:
    """glm4 (dense): norms after attention and feed-forward as well as before, gate and up in one weight."""

    def layer_of(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
        q, k, v = g.products(layer, g.normed(layer, "attn_norm", x))
        out, x = g.last_rows(layer, g.attend(layer, g.rope(q), g.rope(k), v, mask), x)
        h = g.add(g.normed(layer, "post_attention_norm", out), x)
        y = g.feed_forward(layer, h, g.weight(layer, "ffn_norm.weight"))
        return g.add(g.normed(layer, "post_ffw_norm", y), h)

    decoder(g, layer_of, n_axes=g.model.position_axes)


def phi3(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """phi3 (Phi-3, Phi-4): Q, K and V in one weight, gate and up in one, scaled queries."""
    factors = g.rope_factors(layer)
    q, k, v = g.query_key_value(layer, g.normed(layer, "attn_norm", x))
    q, k = g.apply("SCALE", g.rope(q, factors)), g.rope(k, factors)
    h = g.with_residual(layer, g.attend(layer, q, k, v, mask), x)
    return g.add(h, g.feed_forward(layer, h, g.weight(layer, "ffn_norm.weight")))


def deci(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """deci (Nemotron Super and Ultra): layers may lack attention, or have a product in its place, or lack the rest."""
    facts, y = g.layer(layer), x
    if facts.n_head:
        y = g.normed(layer, "attn_norm", x)
    if facts.n_head and facts.n_head_kv:
        factors = g.rope_factors(layer)
        q, k, v = g.query_key_value(layer, y)
        y = g.attend(layer, g.rope(q, factors), g.rope(k, factors), v, mask)
    elif facts.n_head:
        y = g.mul_mat(g.weight(layer, "attn_output.weight"), y)
    norm = g.optional(layer, "ffn_norm.weight")
    if norm is None:
        return x
    y, residual = g.last_rows(layer, y, x)
    h = g.add(y, residual) if facts.n_head else y
    return g.add(g.feed_forward(layer, h, norm), h)


def bailing2(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """bailingmoe2 (Ling and Ring 2.0): Q, K and V in one weight, dense layers first, then experts and a shared one."""
    return g.shared_before_residual(layer, g.standard_attention(layer, x, mask))


def dots1(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """dots1: Q and K normed head by head, dense layers first, then experts and a shared one."""
    q, k, v = g.products(layer, g.normed(layer, "attn_norm", x))
    q, k = (g.rope(g.norm(t, g.weight(layer, f"attn_{part}_norm.weight"))) for part, t in (("q", q), ("k", k)))
    return g.shared_before_residual(layer, g.with_residual(layer, g.attend(layer, q, k, v, mask), x))


def generic_layer(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """Norm, attention (windowed or full, with sinks if there are), residual, then experts or a dense layer.

    For attention models that have no description of their own: led by the tensors they have.
    """
    q, k, v = g.query_key_value(layer, g.normed(layer, "attn_norm", x))
    y = g.attend(layer, g.rope(q), g.rope(k), v, mask, g.optional(layer, "attn_sinks.weight"))
    post_attention = g.optional(layer, "post_attention_norm.weight")
    if post_attention is not None and g.optional(layer, "ffn_norm.weight") is not None:
        y = g.norm(y, post_attention)
    return g.experts_or_dense(layer, g.with_residual(layer, y, x))


_SOFTMAX = partial(standard, gating="softmax")

ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = decoders(
    {
        "bailingmoe2": bailing2,
        "dots1": dots1,
        "llama qwen3": llama,
        "qwen2": sequential,
        "qwen3moe ernie4_5-moe hunyuan-moe": _SOFTMAX,
        "glm4moe minimax-m3 seed_oss": standard,
        "minimax-m2": minimax_m2,
        "ernie4_5": partial(sequential, late=True),
        "smollm3": partial(sequential, without_rope=4),
        "qwen2moe": qwen2_moe,
        "phi3": phi3,
        "deci": deci,
    }
) | {
    "glm4": glm4,
    "granite": granite,
    "granitemoe": granite,
    "grok": grok,
    "mistral3": mistral3,
    "qwen3vl": partial(decoder, layer_of=standard, n_axes=4),
    "qwen3vlmoe": partial(decoder, layer_of=qwen3_vl_moe, n_axes=4),
}

generic = partial(decoder, layer_of=generic_layer)
