"""llama.cpp: models with sliding windows, whose windowed layers have a small cache and mask of their own.

Sources: llama.cpp src/models/{openai-moe,llama4,exaone4,exaone-moe,olmo2,mimo2,step35,afmoe,laguna,command-r,cohere2,
cohere2moe,smallthinker,mellum,maple,spark2-5,muse-glimmer,plamo3}.cpp, src/llama-kv-cache-iswa.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.gqa import after_attention, decoder, feed_forward, normed_before_heads
from service.engine.memory.graph import Node


def gpt_oss(g: LlamaGraph) -> None:
    """gpt-oss: every other layer with a windowed cache, attention sinks, biased experts."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
        sinks = g.optional(layer, "attn_sinks.weight")
        h = g.add(g.attend(layer, cache, g.rope(q), g.rope(k), v, sinks=sinks), x)
        y = g.norm(h, g.weight(layer, "post_attention_norm.weight"), layer)
        return g.add(g.expert_layer(layer, y, "weight", norm_weights=False, scale=g.expert_weights_scale), h)

    decoder(g, layer_of, hidden="raw")


def llama4(g: LlamaGraph) -> None:
    """Three windowed layers with rope, then a full one without, whose queries are scaled by position."""
    x = g.begin()
    g.position_input()
    scale = g.input("f32", 1, 1, g.n_tokens)
    full, window = g.cache_inputs(0, g.window)
    ids = g.output_ids()
    for i in g.layers():
        y = _llama4_attention(g, i, x, window if g.layer(i).n_swa else full, scale)
        y, x = g.last_rows(ids if i == g.n_layer - 1 else None, y, x)
        h = g.add(y, x)
        y = g.norm(h, g.weight(i, "ffn_norm.weight"), i)
        if g.layer(i).moe:
            y = g.expert_layer(i, y, "sigmoid", norm_weights=False, scale=False, weight_before=True)
        else:
            y = g.feed_forward(i, y)
        x = g.add(y, h)
    g.finish(x)


def _llama4_attention(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, scale: Node) -> Node:
    q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
    if g.layer(layer).n_swa:
        factors = g.rope_factors(layer)
        q, k = g.rope(q, factors), g.rope(k, factors)
        if g.model.n_expert != 128:  # Maverick has no norm on Q and K
            q, k = g.apply("RMS_NORM", q), g.apply("RMS_NORM", k)
    else:
        q = g.mul(q, scale)
    return g.attend(layer, cache, q, k, v)


def exaone4(g: LlamaGraph) -> None:
    """exaone4: norms only behind attention and feed-forward; where there are windows, full layers have no rope."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = g.query_key_value(layer, x)
        if g.layer(layer).n_swa or not g.window:
            factors = g.rope_factors(layer)
            q, k = g.rope(q, factors), g.rope(k, factors)
        return _normed_after(g, layer, g.attend(layer, cache, q, k, v), x, ids)

    decoder(g, layer_of)


def olmo2(g: LlamaGraph) -> None:
    """olmo2 (and 3): norms only behind attention and feed-forward, Q and K normed over all heads at once."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = normed_before_heads(g, layer, x)
        return _normed_after(g, layer, g.attend(layer, cache, g.rope(q), g.rope(k), v), x, ids)

    decoder(g, layer_of)


def _normed_after(g: LlamaGraph, layer: int, y: Node, x: Node, ids: Node | None) -> Node:
    y, x = g.last_rows(ids, y, x)
    h = g.add(g.norm(y, g.weight(layer, "post_attention_norm.weight"), layer), x)
    return g.add(g.norm(g.feed_forward(layer, h), g.weight(layer, "post_ffw_norm.weight"), None), h)


def exaone_moe(g: LlamaGraph) -> None:
    """exaone-moe: rope in the windowed layers only, the first dense, then experts and a shared one."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
        if g.layer(layer).n_swa:
            factors = g.rope_factors(layer)
            q, k = g.rope(q, factors), g.rope(k, factors)
        y = g.attend(layer, cache, q, k, v)
        return after_attention(g, layer, y, x, ids, norm_weights=g.expert_weights_norm)

    decoder(g, layer_of)


def mimo2(g: LlamaGraph) -> None:
    """mimo2 (MiMo V2): heads by layer, sinks in the windowed layers, attention's result scaled."""
    scaled = g.given("attention.value_scale") and g.model.value("attention.value_scale") != 1

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
        sinks = g.optional(layer, "attn_sinks.weight")
        y = g.attend(layer, cache, g.rope(q), g.rope(k), v, sinks=sinks)
        y, x = g.last_rows(ids, g.apply("SCALE", y) if scaled else y, x)
        h = g.add(y, x)
        y = g.norm(h, g.weight(layer, "ffn_norm.weight"), layer)
        if not g.layer(layer).moe:
            return g.add(g.feed_forward(layer, y), h)
        return g.add(g.expert_layer(layer, y, "sigmoid", norm_weights=True, scale=g.expert_weights_scale), h)

    decoder(g, layer_of)


def step35(g: LlamaGraph) -> None:
    """step35 (Step 3.5): heads by layer, a gate for each head, limited experts, rope factors in full layers."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        normed = g.norm(x, g.weight(layer, "attn_norm.weight"), layer)
        q, k, v = g.query_key_value(layer, normed)
        factors = None if g.layer(layer).n_swa else g.rope_factors(layer)
        y = g.attend(layer, cache, g.rope(q, factors), g.rope(k, factors), v, project=False)
        if g.optional(layer, "attn_gate.weight") is not None:
            y = _gated_heads(g, layer, y, g.apply("UNARY", g.mul_mat(g.weight(layer, "attn_gate.weight"), normed)))
        y = g.mul_mat(g.weight(layer, "attn_output.weight"), y)
        return after_attention(g, layer, y, x, ids, norm_weights=g.expert_weights_norm)

    decoder(g, layer_of, hidden="raw")


def _gated_heads(g: LlamaGraph, layer: int, x: Node, gate: Node) -> Node:
    """Multiply by one gate a head, or one an element."""
    facts = g.layer(layer)
    if gate.ne[0] == x.ne[0]:
        return g.mul(x, gate)
    heads = g.reshape(x, facts.head_dim_v, facts.n_head, g.n_tokens)
    return g.reshape(g.mul(heads, g.reshape(gate, 1, facts.n_head, g.n_tokens)), *x.ne[:2])


def laguna(g: LlamaGraph) -> None:
    """laguna: heads by layer, softplus gates, the first layers dense, then experts and a shared one."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        normed = g.norm(x, g.weight(layer, "attn_norm.weight"), layer)
        q, k, v = g.query_key_value(layer, normed)
        y = g.attend(layer, cache, g.rope(q), g.rope(k), v, project=False)
        gate = g.apply("UNARY", g.mul_mat(g.weight(layer, "attn_gate.weight"), normed))
        y = g.mul_mat(g.weight(layer, "attn_output.weight"), _gated_heads(g, layer, y, gate))
        return after_attention(g, layer, y, x, ids, norm_weights=g.expert_weights_norm)

    decoder(g, layer_of)


def afmoe(g: LlamaGraph) -> None:
    """afmoe (Trinity): scaled embeddings, gated attention, rope but in every fourth layer, norms on both sides."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        normed = g.norm(x, g.weight(layer, "attn_norm.weight"), layer)
        q, k, v = g.query_key_value(layer, normed)
        if (layer + 1) % 4:
            q, k = g.rope(q), g.rope(k)
        y = g.attend(layer, cache, q, k, v, project=False)
        y = g.mul(y, g.apply("UNARY", g.mul_mat(g.weight(layer, "attn_gate.weight"), normed)))
        y = g.mul_mat(g.weight(layer, "attn_output.weight"), y)
        y, x = g.last_rows(ids, g.norm(y, g.weight(layer, "post_attention_norm.weight"), layer), x)
        h = g.add(y, x)
        y = g.norm(h, g.weight(layer, "ffn_norm.weight"), layer)
        y = feed_forward(g, layer, y, norm_weights=g.expert_weights_norm)
        return g.add(g.norm(y, g.weight(layer, "post_ffw_norm.weight"), layer), h)

    decoder(g, layer_of, g.apply("SCALE", g.begin()))


def cohere(g: LlamaGraph) -> None:
    """command-r, cohere2, cohere2moe: attention and feed-forward side by side on one norm with a mean.

    cohere2 turns only what the windowed layers see; cohere2moe also the leading dense layers.
    """
    g.norm_op = "RMS_NORM" if g.given("attention.layer_norm_rms_epsilon") else "NORM"
    n_dense = g.model.int_value("leading_dense_block_count")

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        normed = g.norm(x, g.weight(layer, "attn_norm.weight"), layer)
        q, k, v = g.query_key_value(layer, normed)
        if g.layer(layer).n_swa or not g.window or layer < n_dense:
            factors = g.rope_factors(layer)
            q, k = g.rope(q, factors), g.rope(k, factors)
        attended = g.attend(layer, cache, q, k, v)
        attended, x, normed = g.last_rows(ids, attended, x, normed)
        y = feed_forward(g, layer, normed, norm_weights=g.expert_weights_norm)
        if g.optional(layer, "ffn_up_shexp.weight") is not None:
            y = g.apply("SCALE", y)
        return g.add(g.add(y, x), attended)

    decoder(g, layer_of, hidden="normed" if g.model.n_expert else "", scale=g.given("logit_scale"))


def smallthinker(g: LlamaGraph) -> None:
    """smallthinker: the router reads what goes into the layer; the full layers have no rope where there are windows."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        logits = g.mul_mat(g.weight(layer, "ffn_gate_inp.weight"), x)
        q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
        if g.layer(layer).n_swa or not g.window:
            q, k = g.rope(q), g.rope(k)
        y, x, logits = g.last_rows(ids, g.attend(layer, cache, q, k, v), x, logits)
        h = g.add(y, x)
        y = g.norm(h, g.weight(layer, "ffn_norm.weight"), layer)
        return g.add(g.routed_experts(layer, y, g.gating, True, g.expert_weights_scale, logits=logits), h)

    decoder(g, layer_of)


def mellum(g: LlamaGraph) -> None:
    """mellum, maple: experts in every layer; Maple's full layers have no rope."""
    everywhere = g.model.architecture == "mellum"

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
        if everywhere or g.layer(layer).n_swa:
            q, k = g.rope(q), g.rope(k)
        y, x = g.last_rows(ids, g.attend(layer, cache, q, k, v), x)
        h = g.add(y, x)
        y = g.norm(h, g.weight(layer, "ffn_norm.weight"), layer)
        return g.add(g.routed_experts(layer, y, "softmax", True, everywhere and g.expert_weights_scale), h)

    decoder(g, layer_of)


def spark(g: LlamaGraph) -> None:
    """spark2_5: what each head attended to goes through a gate of its own."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        read = g.norm(x, g.weight(layer, "attn_norm.weight"), layer)
        q, k, v = g.query_key_value(layer, read)
        y = g.attend(layer, cache, g.rope(q), g.rope(k), v, project=False)
        gate, (dim, n_head) = g.apply("UNARY", g.mul_mat(g.weight(layer, "attn_gate.weight"), read)), q.ne[:2]
        y = g.reshape(y, dim, n_head, g.n_tokens)
        y = g.reshape(g.mul(y, g.reshape(gate, 1, n_head, g.n_tokens)), dim * n_head, g.n_tokens)
        return after_attention(g, layer, g.product(layer, "attn_output", y), x, ids, norm_weights=True)

    decoder(g, layer_of)


def muse_glimmer(g: LlamaGraph) -> None:
    """muse-glimmer: embeddings are normed, gated attention, norms behind it and behind the feed-forward."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        read = g.norm(x, g.weight(layer, "attn_norm.weight"), layer)
        q, k, v = g.query_key_value(layer, read)
        if g.layer(layer).n_swa:
            q, k = g.rope(q), g.rope(k)
        y = g.attend(layer, cache, q, k, v, project=False)
        y = g.mul(y, g.apply("UNARY", g.mul_mat(g.weight(layer, "attn_gate.weight"), read)))
        y = g.norm(g.product(layer, "attn_output", y), g.weight(layer, "post_attention_norm.weight"), None)
        y, x = g.last_rows(ids, y, x)
        h = g.add(y, x)
        y = g.feed_forward(layer, g.norm(h, g.weight(layer, "ffn_norm.weight"), layer))
        return g.add(g.norm(y, g.weight(layer, "post_ffw_norm.weight"), None), h)

    decoder(
        g, layer_of, g.norm(g.begin(), None, None), scale=True, soft_cap=g.given("final_logit_softcapping")
    )  # fmt: skip


def plamo3(g: LlamaGraph) -> None:
    """plamo3: norms before and behind attention and feed-forward, the latter without `.weight` in their names."""

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, ids: Node | None) -> Node:
        q, k, v = g.query_key_value(layer, g.norm(x, g.weight(layer, "attn_norm.weight"), layer))
        y, x = g.last_rows(ids, g.attend(layer, cache, g.rope(q), g.rope(k), v), x)
        h = g.add(g.norm(y, g.first_of(layer, "post_attention_norm", "post_attention_norm.weight"), layer), x)
        y = g.feed_forward(layer, g.norm(h, g.weight(layer, "ffn_norm.weight"), layer))
        return g.add(g.norm(y, g.first_of(layer, "post_ffw_norm", "post_ffw_norm.weight"), layer), h)

    decoder(g, layer_of)


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {
    "gpt-oss": gpt_oss,
    "llama4": llama4,
    "exaone4": exaone4,
    "exaone-moe": exaone_moe,
    "olmo2": olmo2,
    "mimo2": mimo2,
    "step35": step35,
    "afmoe": afmoe,
    "laguna": laguna,
    "command-r": cohere,
    "cohere2": cohere,
    "cohere2moe": cohere,
    "smallthinker": smallthinker,
    "mellum": mellum,
    "maple": mellum,
    "spark2_5": spark,
    "muse-glimmer": muse_glimmer,
    "plamo3": plamo3,
}
