"""llama.cpp: models with sliding windows, whose windowed layers have a small cache and mask of their own.

Sources: llama.cpp src/models/{openai-moe,llama4,exaone4,exaone-moe,olmo2,mimo2,step35,afmoe,laguna,command-r,cohere2,
cohere2moe,smallthinker,mellum,maple,spark2-5,muse-glimmer,plamo3}.cpp, src/llama-kv-cache-iswa.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.gqa import (
    after_attention,
    attended,
    decoder,
    feed_forward,
    normed_before_heads,
    standard_layer,
)
from service.engine.memory.graph import Node
from service.engine.memory.graphs.base import by_name


def gpt_oss(g: LlamaGraph) -> None:
    """gpt-oss: every other layer with a windowed cache, attention sinks, biased experts."""
    g.hidden = "raw"
    decoder(g, partial(standard_layer, norm_weights=False, gating="weight", with_factors=False, sinks=True))


def llama4(g: LlamaGraph) -> None:
    """Three windowed layers with rope, then a full one without, whose queries are scaled by position."""
    x = g.begin()
    g.position_input()
    scale = g.input("f32", 1, 1, g.n_tokens)
    full, window = g.cache_inputs(0, g.window)
    for i in g.layers():
        y = _llama4_attention(g, i, x, window if g.layer(i).n_swa else full, scale)
        h = g.with_residual(i, y, x)
        y = g.normed(i, "ffn_norm", h)
        if g.layer(i).moe:
            y = g.expert_layer(i, y, "sigmoid", norm_weights=False, scale=False, weight_before=True)
        else:
            y = g.feed_forward(i, y)
        x = g.add(y, h)
    g.finish(x)


def _llama4_attention(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, scale: Node) -> Node:
    y = g.normed(layer, "attn_norm", x)
    if not g.layer(layer).n_swa:
        return attended(g, layer, y, cache, rope=False, q_scale=scale)
    (q, k, v), factors = g.query_key_value(layer, y), g.rope_factors(layer)
    q, k = g.rope(q, factors), g.rope(k, factors)
    if g.model.n_expert != 128:  # Maverick has no norm on Q and K
        q, k = g.apply("RMS_NORM", q), g.apply("RMS_NORM", k)
    return g.attend(layer, cache, q, k, v)


def exaone4(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    """exaone4: norms only after attention and feed-forward; where there are windows, full layers have no rope."""
    y = attended(g, layer, x, cache, rope=_is_windowed(g, layer), with_factors=True)
    return _normed_after(g, layer, y, x)


def _is_windowed(g: LlamaGraph, layer: int) -> bool:
    """Whether the layer has a window, or no layer has."""
    return g.layer(layer).n_swa > 0 or not g.window


def olmo2(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    """olmo2 (and 3): norms only after attention and feed-forward, Q and K normed over all heads at once."""
    q, k, v = normed_before_heads(g, layer, x)
    return _normed_after(g, layer, g.attend(layer, cache, g.rope(q), g.rope(k), v), x)


def _normed_after(g: LlamaGraph, layer: int, y: Node, x: Node) -> Node:
    y, x = g.last_rows(layer, y, x)
    h = g.add(g.normed(layer, "post_attention_norm", y), x)
    return g.add(g.norm(g.feed_forward(layer, h), g.weight(layer, "post_ffw_norm.weight"), None), h)


def exaone_moe(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    """exaone-moe: rope in the windowed layers only, the first dense, then experts and a shared one."""
    return standard_layer(g, layer, x, cache, norm_weights=g.expert_weights_norm, rope=g.layer(layer).n_swa > 0)


def mimo2(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    """mimo2 (MiMo V2): heads by layer, sinks in the windowed layers, attention's result scaled."""
    y = attended(g, layer, g.normed(layer, "attn_norm", x), cache, sinks=True)
    scaled = g.given("attention.value_scale") and g.model.value("attention.value_scale") != 1
    y = g.apply("SCALE", y) if scaled else y
    return after_attention(g, layer, y, x, norm_weights=True, gating="sigmoid")


def step35(g: LlamaGraph) -> None:
    """step35 (Step 3.5): heads by layer, a gate for each head, limited experts, rope factors in full layers."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        norm, factors = g.expert_weights_norm, not g.layer(layer).n_swa
        return standard_layer(g, layer, x, cache, norm_weights=norm, with_factors=factors, gated=True)

    g.hidden = "raw"
    decoder(g, layer_of)


def laguna(g: LlamaGraph) -> None:
    """laguna: heads by layer, softplus gates, the first layers dense, then experts and a shared one."""
    decoder(g, partial(standard_layer, norm_weights=g.expert_weights_norm, with_factors=False, gated=True))


def afmoe(g: LlamaGraph) -> None:
    """afmoe (Trinity): scaled embeddings, gated attention, rope but in every fourth layer, norms on both sides."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        y = attended(g, layer, g.normed(layer, "attn_norm", x), cache, rope=(layer + 1) % 4 > 0, gated=True)
        h = g.with_residual(layer, g.normed(layer, "post_attention_norm", y), x)
        y = feed_forward(g, layer, g.normed(layer, "ffn_norm", h), norm_weights=g.expert_weights_norm)
        return g.add(g.normed(layer, "post_ffw_norm", y), h)

    decoder(g, layer_of, g.apply("SCALE", g.begin()))


def cohere(g: LlamaGraph) -> None:
    """command-r, cohere2, cohere2moe: attention and feed-forward side by side on one norm with a mean.

    cohere2 turns only what the windowed layers see; cohere2moe also the leading dense layers.
    """
    g.norm_op = "RMS_NORM" if g.given("attention.layer_norm_rms_epsilon") else "NORM"
    n_dense = g.model.int_value("leading_dense_block_count")

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        normed = g.normed(layer, "attn_norm", x)
        rope = _is_windowed(g, layer) or layer < n_dense
        out = attended(g, layer, normed, cache, rope=rope, with_factors=True)
        out, x, normed = g.last_rows(layer, out, x, normed)
        y = feed_forward(g, layer, normed, norm_weights=g.expert_weights_norm)
        if g.optional(layer, "ffn_up_shexp.weight") is not None:
            y = g.apply("SCALE", y)
        return g.add(g.add(y, x), out)

    g.hidden = "normed" if g.model.n_expert else ""
    decoder(g, layer_of, scale=g.given("logit_scale"))


def smallthinker(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    """smallthinker: the router reads what goes into the layer; the full layers have no rope where there are windows."""
    logits = g.mul_mat(g.weight(layer, "ffn_gate_inp.weight"), x)
    y = attended(g, layer, g.normed(layer, "attn_norm", x), cache, rope=_is_windowed(g, layer))
    y, x, logits = g.last_rows(layer, y, x, logits)
    h = g.add(y, x)
    y = g.normed(layer, "ffn_norm", h)
    return g.add(g.routed_experts(layer, y, g.gating, True, g.expert_weights_scale, logits=logits), h)


def mellum(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    """mellum, maple: experts in every layer; Maple's full layers have no rope."""
    everywhere = g.model.architecture == "mellum"
    rope = everywhere or g.layer(layer).n_swa > 0
    h = g.with_residual(layer, attended(g, layer, g.normed(layer, "attn_norm", x), cache, rope=rope), x)
    y = g.normed(layer, "ffn_norm", h)
    return g.add(g.routed_experts(layer, y, "softmax", True, everywhere and g.expert_weights_scale), h)


def muse_glimmer(g: LlamaGraph) -> None:
    """muse-glimmer: embeddings are normed, gated attention, norms after it and after the feed-forward."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        y = attended(g, layer, g.normed(layer, "attn_norm", x), cache, rope=g.layer(layer).n_swa > 0, gated=True)
        h = g.with_residual(layer, g.norm(y, g.weight(layer, "post_attention_norm.weight"), None), x)
        y = g.feed_forward(layer, g.normed(layer, "ffn_norm", h))
        return g.add(g.norm(y, g.weight(layer, "post_ffw_norm.weight"), None), h)

    decoder(
        g, layer_of, g.norm(g.begin(), None, None), scale=True, soft_cap=g.given("final_logit_softcapping")
    )  # fmt: skip


def plamo3(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    """plamo3: norms before and after attention and feed-forward, the latter without `.weight` in their names."""
    y, x = g.last_rows(layer, attended(g, layer, g.normed(layer, "attn_norm", x), cache), x)
    h = g.add(g.norm(y, g.first_of(layer, "post_attention_norm", "post_attention_norm.weight"), layer), x)
    y = g.feed_forward(layer, g.normed(layer, "ffn_norm", h))
    return g.add(g.norm(y, g.first_of(layer, "post_ffw_norm", "post_ffw_norm.weight"), layer), h)


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = by_name(
    {
        "gpt-oss": gpt_oss,
        "llama4": llama4,
        "exaone4": partial(decoder, layer_of=exaone4),
        "exaone-moe": partial(decoder, layer_of=exaone_moe),
        "olmo2": partial(decoder, layer_of=olmo2),
        "mimo2": partial(decoder, layer_of=mimo2),
        "step35": step35,
        "afmoe": afmoe,
        "laguna": laguna,
        "command-r cohere2 cohere2moe": cohere,
        "smallthinker": partial(decoder, layer_of=smallthinker),
        "mellum maple": partial(decoder, layer_of=mellum),
        "spark2_5": partial(decoder, layer_of=partial(standard_layer, with_factors=False, gated=True)),
        "muse-glimmer": muse_glimmer,
        "plamo3": partial(decoder, layer_of=plamo3),
    }
)
