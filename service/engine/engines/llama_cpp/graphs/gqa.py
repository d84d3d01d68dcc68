"""llama.cpp: full attention with grouped heads, dense or with experts.

Sources: llama.cpp src/models/{llama,dots1,qwen2,qwen2moe,qwen3,qwen3moe,qwen3vl,glm4,glm4-moe,minimax-m2,
ernie4-5,ernie4-5-moe,hunyuan-moe,hunyuan-vl,hy-v3,mistral3,seed-oss,smollm3,arcee,phi3,deci,grok}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, Hidden, LlamaGraph
from service.engine.memory.graph import Node


class LayerOf(Protocol):
    """What a layer makes of the residual stream; `ids` are the rows wanted of the last one."""

    def __call__(self, g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node: ...


def decoder(
    g: LlamaGraph, layer_of: LayerOf, x: Node | None = None, *, hidden: Hidden = "", scale: bool = False,
    soft_cap: bool = False, n_axes: int = 1, learned: bool = False,
) -> None:  # fmt: skip
    """All layers, each with the cache for its window, from the embeddings (or `x`, made of them) to the logits.

    `learned`: embeddings of the positions are added.
    """
    x = g.begin() if x is None else x
    g.position_input(n_axes)
    caches = g.cache_inputs(0, g.window) if g.window else g.cache_inputs(0)
    ids = g.output_ids()
    if learned:
        x = g.add(x, g.get_rows(g.required("position_embd.weight"), g.positions))
    for i in g.layers():
        last = i == g.n_layer - 1 and not hidden
        x = layer_of(g, i, x, caches[1 if g.layer(i).n_swa else 0], ids if last else None)
    g.finish(x, ids, hidden=hidden, scale=scale, soft_cap=soft_cap)


def standard(g: LlamaGraph) -> None:
    """Norm, attention, residual, norm, feed-forward, residual; rope factors where the file has them."""
    decoder(g, standard_layer)


def without_factors(g: LlamaGraph, n_axes: int = 1) -> None:
    """As standard, whatever rope factors the file has."""
    decoder(g, partial(standard_layer, with_factors=False), n_axes=n_axes)


def standard_layer(
    g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None, *, norm_weights: bool = True,
    q_scale: Node | None = None, with_factors: bool = True,
) -> Node:  # fmt: skip
    """Return the residual stream behind a layer as Llama's are. `q_scale`: what queries are multiplied with."""
    q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
    factors = g.rope_factors(layer) if with_factors else None
    q, k = g.rope(q, factors), g.rope(k, factors)
    y = g.attend(layer, cache, q if q_scale is None else g.mul(q, q_scale), k, v)
    return after_attention(g, layer, y, x, ids, norm_weights=norm_weights)


def mistral3(g: LlamaGraph) -> None:
    """mistral3 (Ministral 3): as standard; queries are scaled by position where the header has a temperature."""
    x = g.begin()
    g.position_input()
    scale = g.input("f32", 1, 1, g.n_tokens) if g.given("attention.temperature_scale") else None
    (cache,) = g.cache_inputs(0)
    ids = g.output_ids()
    for i in g.layers():
        x = standard_layer(g, i, x, cache, ids if i == g.n_layer - 1 else None, q_scale=scale)
    g.finish(x)


def after_attention(g: LlamaGraph, layer: int, y: Node, x: Node, ids: Node | None, *, norm_weights: bool) -> Node:
    """Add the residual (in the last layer of the wanted rows only), then norm, feed-forward and residual."""
    y, x = g.last_rows(ids, y, x)
    h = g.add(y, x)
    y = g.norm(h, g.first_of(layer, "ffn_norm.weight", "post_attention_norm.weight"), layer)
    return g.add(feed_forward(g, layer, y, norm_weights=norm_weights), h)


def feed_forward(g: LlamaGraph, layer: int, y: Node, *, norm_weights: bool) -> Node:
    """Return what the layer's experts, or its dense part, make of `y`."""
    if not g.layer(layer).moe:
        return g.feed_forward(layer, y)
    return g.expert_layer(layer, y, g.gating, norm_weights=norm_weights, scale=g.expert_weights_scale)


def norm_by_header(g: LlamaGraph, *, hidden: Hidden = "") -> None:
    """hy_v3, dots1, …: as standard, with the weights of the experts normed as the header says."""
    decoder(g, partial(standard_layer, norm_weights=g.expert_weights_norm), hidden=hidden)


def glm4_moe(g: LlamaGraph) -> None:
    """glm4moe: as standard; positions on four axes where the header divides the rotation."""
    decoder(g, partial(standard_layer, norm_weights=g.expert_weights_norm), n_axes=g.position_axes)


def not_normed(g: LlamaGraph) -> None:
    """deepseek: as standard, with the experts' weights as the router gave them."""
    decoder(g, partial(standard_layer, norm_weights=False))


def hunyuan(g: LlamaGraph, n_axes: int = 1) -> None:
    """hunyuan-moe, hunyuan-dense, hunyuan_vl, maincoder: Q and K normed after the rotation."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        y = g.norm(x, g.weight(layer, "attn_norm.weight"), layer)
        q, k, v = g.query_key_value(layer, y, norm=False)
        factors = g.rope_factors(layer)
        q, k = g.norm_heads(layer, g.rope(q, factors), g.rope(k, factors))
        return after_attention(g, layer, g.attend(layer, cache, q, k, v), x, ids, norm_weights=True)

    decoder(g, layer_of, n_axes=n_axes)


def hunyuan_vl(g: LlamaGraph) -> None:
    """hunyuan_vl: as the dense one, with positions on four axes where the header divides the rotation."""
    hunyuan(g, g.position_axes)


def minimax_m2(g: LlamaGraph, *, norm_weights: bool = True) -> None:
    """minimax-m2, olmoe: Q and K normed over all heads at once, before they are split into heads."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = normed_before_heads(g, layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
        y = g.attend(layer, cache, g.rope(q), g.rope(k), v)
        return after_attention(g, layer, y, x, ids, norm_weights=norm_weights)

    decoder(g, layer_of)


def normed_before_heads(g: LlamaGraph, layer: int, y: Node) -> tuple[Node, Node, Node]:
    """Return Q, K and V; Q and K are normed over all heads at once."""
    q, k, v = (g.product(layer, f"attn_{part}", y) for part in "qkv")
    q, k = g.norm_heads(layer, q, k)
    sizes = zip((q, k, v), g.head_sizes(layer), strict=True)
    q, k, v = (g.reshape(part, *size, g.n_tokens) for part, size in sizes)
    return q, k, v


def smollm3(g: LlamaGraph) -> None:
    """smollm3: every fourth layer without rope."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
        if (layer + 1) % 4:
            q, k = g.rope(q), g.rope(k)
        return after_attention(g, layer, g.attend(layer, cache, q, k, v), x, ids, norm_weights=True)

    decoder(g, layer_of)


def glm4(g: LlamaGraph) -> None:
    """glm4 (dense): norms behind attention and feed-forward as well as before, gate and up in one weight."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
        y = g.attend(layer, cache, g.rope(q), g.rope(k), v)
        y, x = g.last_rows(ids, y, x)
        h = g.add(g.norm(y, g.weight(layer, "post_attention_norm.weight"), layer), x)
        y = g.feed_forward(layer, g.norm(h, g.weight(layer, "ffn_norm.weight"), layer))
        return g.add(g.norm(y, g.weight(layer, "post_ffw_norm.weight"), layer), h)

    decoder(g, layer_of, n_axes=g.position_axes)


def phi3(g: LlamaGraph) -> None:
    """phi3 (Phi-3, Phi-4): Q, K and V in one weight, gate and up in one, scaled queries."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
        factors = g.rope_factors(layer)
        q, k = g.apply("SCALE", g.rope(q, factors)), g.rope(k, factors)
        y, x = g.last_rows(ids, g.attend(layer, cache, q, k, v), x)
        h = g.add(y, x)
        y = g.norm(h, g.weight(layer, "ffn_norm.weight"), layer)
        return g.add(h, feed_forward(g, layer, y, norm_weights=True))

    decoder(g, layer_of)


def qwen2_moe(g: LlamaGraph) -> None:
    """qwen2moe: experts whose weights are not normed, and a shared one behind a gate of its own."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
        y, x = g.last_rows(ids, g.attend(layer, cache, g.rope(q), g.rope(k), v), x)
        h = g.add(y, x)
        y = g.norm(h, g.weight(layer, "ffn_norm.weight"), layer)
        routed = g.routed_experts(layer, y, "softmax", False, g.expert_weights_scale)
        router = g.new("MUL_MAT", "f32", (1, y.ne[1]), g.weight(layer, "ffn_gate_inp_shexp.weight"), y)
        opened = g.apply("DIV", g.apply("UNARY", router), router)
        return g.add(g.add(routed, g.mul(g.feed_forward(layer, y, "_shexp"), opened)), h)

    decoder(g, layer_of)


def qwen3_vl(g: LlamaGraph) -> None:
    """qwen3vl, qwen3vlmoe: positions on four axes, and features of an image added behind the first layers."""
    n_deepstack = g.model.int_value("n_deepstack_layers")
    features = g.begin(n_deepstack)

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        x = standard_layer(g, layer, x, cache, ids)
        if layer >= n_deepstack:
            return x
        return g.add(x, g.view(features, (g.model.n_embd, g.n_tokens), features.nb[1:2]))

    decoder(g, layer_of, features, n_axes=4)


def deci(g: LlamaGraph) -> None:
    """deci (Nemotron Super and Ultra): layers may lack attention, or have a product in its place, or lack the rest."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        facts, y = g.layer(layer), x
        if facts.n_head:
            y = g.norm(x, g.weight(layer, "attn_norm.weight"), layer)
        if facts.n_head and facts.n_head_kv:
            q, k, v = g.query_key_value(layer, y)
            factors = g.rope_factors(layer)
            y = g.attend(layer, cache, g.rope(q, factors), g.rope(k, factors), v)
        elif facts.n_head:
            y = g.mul_mat(g.weight(layer, "attn_output.weight"), y)
        if g.optional(layer, "ffn_norm.weight") is None:
            return x
        y, residual = g.last_rows(ids, y, x)
        h = g.add(y, residual) if facts.n_head else y
        return g.add(g.feed_forward(layer, g.norm(h, g.weight(layer, "ffn_norm.weight"), layer)), h)

    decoder(g, layer_of)


def grok(g: LlamaGraph) -> None:
    """grok: scaled embeddings, squashed scores, norms behind attention and experts, a dense layer alongside them."""
    g.soft_cap = True

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
        y, x = g.last_rows(ids, g.attend(layer, cache, g.rope(q), g.rope(k), v), x)
        h = g.add(g.norm(y, g.weight(layer, "attn_output_norm.weight"), layer), x)
        y = g.norm(h, g.weight(layer, "ffn_norm.weight"), layer)
        out = g.routed_experts(layer, y, "softmax", True, g.expert_weights_scale)
        if g.optional(layer, "ffn_up.weight") is not None:
            out = g.apply("SCALE", g.add(g.feed_forward(layer, y), out))
        return g.add(g.norm(out, g.first_of(layer, "layer_output_norm.weight", "post_ffw_norm.weight"), layer), h)

    decoder(
        g, layer_of, g.apply("SCALE", g.begin()), scale=True, soft_cap=g.given("final_logit_softcapping")
    )  # fmt: skip


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {
    "dots1": norm_by_header,
    "mistral3": mistral3,
    "llama": standard,
    "qwen2": standard,
    "qwen3": standard,
    "qwen3moe": standard,
    "ernie4_5": standard,
    "ernie4_5-moe": standard,
    "seed_oss": standard,
    "arcee": standard,
    "glm4moe": glm4_moe,
    "bailingmoe": norm_by_header,
    "bailingmoe2": norm_by_header,
    "deepseek": not_normed,
    "olmoe": partial(minimax_m2, norm_weights=False),
    "chatglm": without_factors,
    "exaone": standard,
    "internlm2": without_factors,
    "maincoder": hunyuan,
    "nanbeige": standard,
    "pangu-embedded": without_factors,
    "qwen": without_factors,
    "xverse": without_factors,
    "qwen2vl": partial(without_factors, n_axes=4),
    "paddleocr": partial(without_factors, n_axes=4),
    "hy_v3": partial(norm_by_header, hidden="normed"),
    "minimax-m2": minimax_m2,
    "hunyuan-moe": hunyuan,
    "hunyuan-dense": hunyuan,
    "hunyuan_vl": hunyuan_vl,
    "smollm3": smollm3,
    "glm4": glm4,
    "phi3": phi3,
    "phimoe": phi3,
    "qwen2moe": qwen2_moe,
    "qwen3vl": qwen3_vl,
    "qwen3tts": qwen3_vl,
    "qwen3vlmoe": qwen3_vl,
    "deci": deci,
    "grok": grok,
}


def generic(g: LlamaGraph) -> None:
    """Norm, attention (windowed or full, with sinks if there are), residual, then experts or a dense layer.

    For attention models that have no description of their own: led by the tensors they have.
    """

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
        y = g.attend(layer, cache, g.rope(q), g.rope(k), v, sinks=g.optional(layer, "attn_sinks.weight"))
        post_attention = g.optional(layer, "post_attention_norm.weight")
        if post_attention is not None and g.optional(layer, "ffn_norm.weight") is not None:
            y = g.norm(y, post_attention, layer)
        return after_attention(g, layer, y, x, ids, norm_weights=g.expert_weights_norm)

    decoder(g, layer_of)
