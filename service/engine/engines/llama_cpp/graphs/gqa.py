"""llama.cpp: full attention with grouped heads, dense or with experts.

Sources: llama.cpp src/models/{llama,dots1,qwen2,qwen2moe,qwen3,qwen3moe,qwen3vl,glm4,glm4-moe,minimax-m2,
ernie4-5,ernie4-5-moe,hunyuan-moe,hunyuan-vl,hy-v3,mistral3,seed-oss,smollm3,arcee,phi3,deci,grok}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.memory.graph import Node
from service.engine.memory.graphs.base import Gating, Hidden, by_name

LayerOf: TypeAlias = Callable[[LlamaGraph, int, Node, CacheInput], Node]
"""What a layer makes of the residual stream."""


def decoder(
    g: LlamaGraph, layer_of: LayerOf, x: Node | None = None, *, scale: bool = False, soft_cap: bool = False,
    n_axes: int = 1, learned: bool = False,
) -> None:  # fmt: skip
    """All layers, each with the cache for its window, from the embeddings (or `x`, made of them) to the logits.

    `learned`: embeddings of the positions are added.
    """
    x = g.begin() if x is None else x
    g.position_input(n_axes)
    caches = g.cache_inputs(0, g.window) if g.window else g.cache_inputs(0)
    if learned:
        x = g.add(x, g.get_rows(g.required("position_embd.weight"), g.positions))
    for i in g.layers():
        x = layer_of(g, i, x, caches[1 if g.layer(i).n_swa else 0])
    g.finish(x, scale=scale, soft_cap=soft_cap)


def standard_layer(
    g: LlamaGraph, layer: int, x: Node, cache: CacheInput, *, norm_weights: bool = True, gating: Gating | None = None,
    rope: bool = True, with_factors: bool = True, q_scale: Node | None = None, scaled: bool = False,
    sinks: bool = False, gated: bool = False,
) -> Node:  # fmt: skip
    """Return the residual stream after a layer as Llama's: norm, attention, residual, norm, feed-forward, residual.

    The other options are those of `attended`.
    """
    y = attended(
        g, layer, g.normed(layer, "attn_norm", x), cache, rope=rope, with_factors=with_factors, q_scale=q_scale,
        scaled=scaled, sinks=sinks, gated=gated,
    )  # fmt: skip
    return after_attention(g, layer, y, x, norm_weights=norm_weights, gating=gating)


def attended(
    g: LlamaGraph, layer: int, y: Node, cache: CacheInput, *, rope: bool = True, with_factors: bool = False,
    q_scale: Node | None = None, scaled: bool = False, sinks: bool = False, gated: bool = False,
) -> Node:  # fmt: skip
    """Return what attention makes of the normed `y`; `with_factors`: those of the rope where the file has them.

    `q_scale`: what queries are multiplied with; `scaled`: by a constant. `gated`: by gates, one a head or an element.
    """
    q, k, v = g.query_key_value(layer, y)
    if rope:
        factors = g.rope_factors(layer) if with_factors else None
        q, k = g.rope(q, factors), g.rope(k, factors)
    q = g.apply("SCALE", q) if scaled else q if q_scale is None else g.mul(q, q_scale)
    stored = g.optional(layer, "attn_sinks.weight") if sinks else None
    out = g.attend(layer, cache, q, k, v, sinks=stored, project=not gated)
    return g.product(layer, "attn_output", gated_heads(g, layer, out, y)) if gated else out


def gated_heads(g: LlamaGraph, layer: int, x: Node, y: Node) -> Node:
    """Return what was attended to, times gates made of `y` where the layer has them: one a head or an element."""
    weight, n_head = g.optional(layer, "attn_gate.weight"), g.layer(layer).n_head
    if weight is None:
        return x
    gate = g.apply("UNARY", g.mul_mat(weight, y))
    if gate.ne[0] == x.ne[0]:
        return g.mul(x, gate)
    heads = g.reshape(x, x.ne[0] // n_head, n_head, g.n_tokens)
    return g.reshape(g.mul(heads, g.reshape(gate, 1, n_head, g.n_tokens)), *x.ne[:2])


def mistral3(g: LlamaGraph) -> None:
    """mistral3 (Ministral 3): as standard; queries are scaled by position where the header has a temperature."""
    scale = g.input("f32", 1, 1, g.n_tokens) if g.given("attention.temperature_scale") else None
    decoder(g, partial(standard_layer, q_scale=scale))


def after_attention(
    g: LlamaGraph, layer: int, y: Node, x: Node, *, norm_weights: bool, gating: Gating | None = None
) -> Node:  # fmt: skip
    """Add the residual (in the last layer of the wanted rows only), then norm, feed-forward and residual."""
    h = g.with_residual(layer, y, x)
    y = g.norm(h, g.first_of(layer, "ffn_norm.weight", "post_attention_norm.weight"), layer)
    return g.add(feed_forward(g, layer, y, norm_weights=norm_weights, gating=gating), h)


def feed_forward(g: LlamaGraph, layer: int, y: Node, *, norm_weights: bool, gating: Gating | None = None) -> Node:
    """Return what the layer's experts, or its dense part, make of `y`. `gating`: as the header says if None."""
    if not g.layer(layer).moe:
        return g.feed_forward(layer, y)
    return g.expert_layer(layer, y, gating or g.gating, norm_weights=norm_weights, scale=g.expert_weights_scale)


def latent_experts(g: LlamaGraph, layer: int, y: Node, space: str, gating: Gating) -> Node:
    """Return what experts make of a narrower stream where the file has matrices for it, called after the `space`.

    The router and the shared expert read the stream as it is.
    """
    narrow, widen, norm = (g.optional(layer, f"ffn_{space}_{part}.weight") for part in ("down", "up", "norm"))
    x = y if narrow is None else g.mul_mat(narrow, y)
    logits = g.mul_mat(g.weight(layer, "ffn_gate_inp.weight"), y)
    out = g.routed_experts(layer, x, gating, g.expert_weights_norm, g.expert_weights_scale, logits=logits)
    out = out if norm is None else g.norm(out, norm, layer)
    out = out if widen is None else g.mul_mat(widen, out)
    if g.optional(layer, "ffn_up_shexp.weight") is None:
        return out
    return g.add(out, g.feed_forward(layer, y, "_shexp"))


def norm_by_header(g: LlamaGraph, *, hidden: Hidden = "") -> None:
    """hy_v3, dots1, …: as standard, with the weights of the experts normed as the header says."""
    g.hidden = hidden
    decoder(g, partial(standard_layer, norm_weights=g.expert_weights_norm))


def glm4_moe(g: LlamaGraph) -> None:
    """glm4moe: as standard; positions on four axes where the header divides the rotation."""
    decoder(g, partial(standard_layer, norm_weights=g.expert_weights_norm), n_axes=g.model.position_axes)


def hunyuan(g: LlamaGraph, n_axes: int = 1) -> None:
    """hunyuan-moe, hunyuan-dense, hunyuan_vl, maincoder: Q and K normed after the rotation."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        y = g.normed(layer, "attn_norm", x)
        q, k, v = g.query_key_value(layer, y, norm=False)
        factors = g.rope_factors(layer)
        q, k = g.norm_heads(layer, g.rope(q, factors), g.rope(k, factors))
        return after_attention(g, layer, g.attend(layer, cache, q, k, v), x, norm_weights=True)

    decoder(g, layer_of, n_axes=n_axes)


def hunyuan_vl(g: LlamaGraph) -> None:
    """hunyuan_vl: as the dense one, with positions on four axes where the header divides the rotation."""
    hunyuan(g, g.model.position_axes)


def minimax_m2(g: LlamaGraph, *, norm_weights: bool = True) -> None:
    """minimax-m2, olmoe: Q and K normed over all heads at once, before they are split into heads."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        q, k, v = normed_before_heads(g, layer, g.normed(layer, "attn_norm", x))
        y = g.attend(layer, cache, g.rope(q), g.rope(k), v)
        return after_attention(g, layer, y, x, norm_weights=norm_weights)

    decoder(g, layer_of)


def normed_before_heads(g: LlamaGraph, layer: int, y: Node) -> tuple[Node, Node, Node]:
    """Return Q, K and V; Q and K are normed over all heads at once."""
    q, k, v = (g.product(layer, f"attn_{part}", y) for part in "qkv")
    q, k = g.norm_heads(layer, q, k)
    sizes = zip((q, k, v), g.head_sizes(layer), strict=True)
    q, k, v = (g.reshape(part, *size, g.n_tokens) for part, size in sizes)
    return q, k, v


def smollm3(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    """smollm3: every fourth layer without rope."""
    return standard_layer(g, layer, x, cache, rope=(layer + 1) % 4 > 0, with_factors=False)


def glm4(g: LlamaGraph) -> None:
    """glm4 (dense): norms after attention and feed-forward as well as before, gate and up in one weight."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        y, x = g.last_rows(layer, attended(g, layer, g.normed(layer, "attn_norm", x), cache), x)
        h = g.add(g.normed(layer, "post_attention_norm", y), x)
        y = g.feed_forward(layer, g.normed(layer, "ffn_norm", h))
        return g.add(g.normed(layer, "post_ffw_norm", y), h)

    decoder(g, layer_of, n_axes=g.model.position_axes)


def phi3(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    """phi3 (Phi-3, Phi-4): Q, K and V in one weight, gate and up in one, scaled queries."""
    y = attended(g, layer, g.normed(layer, "attn_norm", x), cache, with_factors=True, scaled=True)
    h = g.with_residual(layer, y, x)
    return g.add(h, feed_forward(g, layer, g.normed(layer, "ffn_norm", h), norm_weights=True))


def qwen2_moe(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    """qwen2moe: experts whose weights are not normed, and a shared one behind a gate of its own."""
    h = g.with_residual(layer, attended(g, layer, g.normed(layer, "attn_norm", x), cache), x)
    y = g.normed(layer, "ffn_norm", h)
    routed = g.routed_experts(layer, y, "softmax", False, g.expert_weights_scale)
    router = g.new("MUL_MAT", "f32", (1, y.ne[1]), g.weight(layer, "ffn_gate_inp_shexp.weight"), y)
    opened = g.apply("DIV", g.apply("UNARY", router), router)
    return g.add(g.add(routed, g.mul(g.feed_forward(layer, y, "_shexp"), opened)), h)


def qwen3_vl(g: LlamaGraph) -> None:
    """qwen3vl, qwen3vlmoe: positions on four axes, and features of an image added after the first layers."""
    n_deepstack = g.model.int_value("n_deepstack_layers")
    features = g.begin(n_deepstack)

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        x = standard_layer(g, layer, x, cache)
        if layer >= n_deepstack:
            return x
        return g.add(x, g.view(features, (g.model.n_embd, g.n_tokens), features.nb[1:2]))

    decoder(g, layer_of, features, n_axes=4)


def deci(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    """deci (Nemotron Super and Ultra): layers may lack attention, or have a product in its place, or lack the rest."""
    facts, y = g.layer(layer), x
    if facts.n_head:
        y = g.normed(layer, "attn_norm", x)
    if facts.n_head and facts.n_head_kv:
        y = attended(g, layer, y, cache, with_factors=True)
    elif facts.n_head:
        y = g.mul_mat(g.weight(layer, "attn_output.weight"), y)
    if g.optional(layer, "ffn_norm.weight") is None:
        return x
    y, residual = g.last_rows(layer, y, x)
    h = g.add(y, residual) if facts.n_head else y
    return g.add(g.feed_forward(layer, g.normed(layer, "ffn_norm", h)), h)


def grok(g: LlamaGraph) -> None:
    """grok: scaled embeddings, squashed scores, norms after attention and experts, a dense layer alongside them."""
    g.soft_cap = True

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        y, x = g.last_rows(layer, attended(g, layer, g.normed(layer, "attn_norm", x), cache), x)
        h = g.add(g.normed(layer, "attn_output_norm", y), x)
        y = g.normed(layer, "ffn_norm", h)
        out = g.routed_experts(layer, y, "softmax", True, g.expert_weights_scale)
        if g.optional(layer, "ffn_up.weight") is not None:
            out = g.apply("SCALE", g.add(g.feed_forward(layer, y), out))
        return g.add(g.norm(out, g.first_of(layer, "layer_output_norm.weight", "post_ffw_norm.weight"), layer), h)

    decoder(g, layer_of, g.apply("SCALE", g.begin()), scale=True, soft_cap=g.given("final_logit_softcapping"))


standard = partial(decoder, layer_of=standard_layer)
_without_factors = partial(decoder, layer_of=partial(standard_layer, with_factors=False))  # whatever the file has
ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = by_name(
    {
        "dots1 bailingmoe bailingmoe2": norm_by_header,
        "mistral3": mistral3,
        "llama qwen2 qwen3 qwen3moe ernie4_5 ernie4_5-moe seed_oss arcee exaone nanbeige": standard,
        "glm4moe": glm4_moe,
        "deepseek": partial(decoder, layer_of=partial(standard_layer, norm_weights=False)),
        "olmoe": partial(minimax_m2, norm_weights=False),
        "chatglm internlm2 pangu-embedded qwen xverse": _without_factors,
        "maincoder hunyuan-moe hunyuan-dense": hunyuan,
        "qwen2vl paddleocr": partial(_without_factors, n_axes=4),
        "hy_v3": partial(norm_by_header, hidden="normed"),
        "minimax-m2": minimax_m2,
        "hunyuan_vl": hunyuan_vl,
        "smollm3": partial(decoder, layer_of=smollm3),
        "glm4": glm4,
        "phi3 phimoe": partial(decoder, layer_of=phi3),
        "qwen2moe": partial(decoder, layer_of=qwen2_moe),
        "qwen3vl qwen3tts qwen3vlmoe": qwen3_vl,
        "deci": partial(decoder, layer_of=deci),
        "grok": grok,
    }
)


def generic(g: LlamaGraph) -> None:
    """Norm, attention (windowed or full, with sinks if there are), residual, then experts or a dense layer.

    For attention models that have no description of their own: led by the tensors they have.
    """

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        y = attended(g, layer, g.normed(layer, "attn_norm", x), cache, sinks=True)
        post_attention = g.optional(layer, "post_attention_norm.weight")
        if post_attention is not None and g.optional(layer, "ffn_norm.weight") is not None:
            y = g.norm(y, post_attention, layer)
        return after_attention(g, layer, y, x, norm_weights=g.expert_weights_norm)

    decoder(g, layer_of)
