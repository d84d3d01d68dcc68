"""llama.cpp: models with sliding windows, whose windowed layers have a small cache and mask of their own.

Sources: llama.cpp src/models/{openai-moe,llama4,exaone4,exaone-moe,olmo2,mimo2,step35,afmoe,laguna,command-r,cohere2,
cohere2moe,smallthinker,mellum,maple,spark2-5,muse-glimmer,plamo3,gemma2,gemma3,gemma3n,gemma4}.cpp,
src/llama-kv-cache-iswa.cpp.
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
from service.engine.memory.cache import cache_owner
from service.engine.memory.graph import Node
from service.engine.memory.graphs.base import MissingTensor, by_name

_SPARSE_LAYERS = 10  # n_layer_sparsity, src/models/models.h


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

    decoder(g, layer_of, g.norm(g.begin(), None, None), scale=True, soft_cap=g.given("final_logit_softcapping"))


def plamo3(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    """plamo3: norms before and after attention and feed-forward, the latter without `.weight` in their names."""
    y, x = g.last_rows(layer, attended(g, layer, g.normed(layer, "attn_norm", x), cache), x)
    h = g.add(g.norm(y, g.first_of(layer, "post_attention_norm", "post_attention_norm.weight"), layer), x)
    y = g.feed_forward(layer, g.normed(layer, "ffn_norm", h))
    return g.add(g.norm(y, g.first_of(layer, "post_ffw_norm", "post_ffw_norm.weight"), layer), h)


def gemma2(g: LlamaGraph) -> None:
    """gemma2, gemma3: scaled queries, norms after attention and feed-forward as well as before."""
    squashed = g.model.architecture == "gemma2"
    g.soft_cap = squashed

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        y = attended(g, layer, g.normed(layer, "attn_norm", x), cache, scaled=True)
        y, x = g.last_rows(layer, y, x)
        h = g.add(g.normed(layer, "post_attention_norm", y), x)
        y = g.feed_forward(layer, g.normed(layer, "ffn_norm", h))
        return g.add(g.norm(y, g.weight(layer, "post_ffw_norm.weight"), None), h)

    decoder(g, layer_of, g.apply("SCALE", g.begin()), soft_cap=squashed)


def gemma4(g: LlamaGraph) -> None:
    """gemma4: heads by kind of layer, shared caches, V from K where it is left out, experts alongside a dense layer."""
    g.hidden = "normed"
    x = g.apply("SCALE", g.begin())
    g.position_input()
    full, window = g.cache_inputs(0, g.window)
    inputs = _inputs_by_layer(g, x)
    for i in g.layers():
        y = g.normed(i, "attn_norm", x)
        y = _attention(g, i, y, window if g.layer(i).n_swa else full)
        h = g.add(g.normed(i, "post_attention_norm", y), x)
        x = g.add(g.norm(_feed_forward(g, i, h), g.weight(i, "post_ffw_norm.weight"), None), h)
        if inputs is not None:
            gate = g.apply("UNARY", g.mul_mat(g.weight(i, "inp_gate.weight"), x))
            y = g.mul_mat(g.weight(i, "proj.weight"), g.mul(gate, _slice(g, inputs)))
            x = g.add(x, g.normed(i, "post_norm", y))
        scale = g.optional(i, "layer_output_scale.weight")
        x = x if scale is None else g.mul(x, scale)
    g.finish(x, soft_cap=g.given("final_logit_softcapping"))


def _inputs_by_layer(g: LlamaGraph, x: Node) -> Node | None:
    """Each token's vectors for all layers [n_embd_per_layer, n_tokens, n_layer]: looked up, and made of `x`."""
    table = g.find("per_layer_token_embd.weight")
    if table is None:
        return None
    looked_up = g.get_rows(table, g.input("i32", g.n_tokens))
    shape = (table.ne[0] // g.n_layer, g.n_layer, g.n_tokens)
    looked_up = g.apply("SCALE", g.reshape(looked_up, *shape))
    g.expand(looked_up)
    made = g.apply("SCALE", g.mul_mat(g.required("per_layer_model_proj.weight"), x))
    made = g.norm(g.reshape(made, *shape), g.required("per_layer_proj_norm.weight"), None)
    return g.cont(g.swap_heads(g.apply("SCALE", g.add(made, looked_up))))


def _slice(g: LlamaGraph, x: Node) -> Node:
    """One of the last dimension's planes."""
    return g.view(x, x.ne[:2], x.nb[1:2])


def _attention(g: LlamaGraph, layer: int, y: Node, cache: CacheInput) -> Node:
    facts = g.layer(layer)
    factors = None if facts.n_swa else g.rope_factors(layer)
    q = g.reshape(g.mul_mat(g.weight(layer, "attn_q.weight"), y), facts.head_dim_k, facts.n_head, g.n_tokens)
    q = g.rope(g.normed(layer, "attn_q_norm", q), factors)
    if cache_owner(g.model, facts) != layer:
        return g.attend(layer, cache, q, None, None)
    k = g.mul_mat(g.weight(layer, "attn_k.weight"), y)
    own = g.optional(layer, "attn_v.weight")
    v = k if own is None else g.mul_mat(own, y)
    k, v = (g.reshape(part, facts.head_dim_k, facts.n_head_kv, g.n_tokens) for part in (k, v))
    k = g.normed(layer, "attn_k_norm", k)
    return g.attend(layer, cache, q, g.rope(k, factors), g.apply("RMS_NORM", v))


def _feed_forward(g: LlamaGraph, layer: int, h: Node) -> Node:
    dense = g.feed_forward(layer, g.normed(layer, "ffn_norm", h))
    if not g.layer(layer).moe:
        return dense
    dense = g.normed(layer, "post_ffw_norm_1", dense)
    y = g.normed(layer, "pre_ffw_norm_2", h)
    routed = g.mul(g.apply("SCALE", g.apply("RMS_NORM", h)), g.weight(layer, "ffn_gate_inp.scale"))
    logits = g.mul_mat(g.weight(layer, "ffn_gate_inp.weight"), routed)
    experts = g.routed_experts(layer, y, "softmax", True, False, logits=logits)
    return g.add(dense, g.normed(layer, "post_ffw_norm_2", experts))


def _with_input_of_layer(g: LlamaGraph, layer: int, active: Node, inputs: Node) -> Node:
    y = g.mul_mat(g.weight(layer, "inp_gate.weight"), g.mul(active, g.weight(layer, "altup_correct_scale.weight")))
    y = g.mul_mat(g.weight(layer, "proj.weight"), g.mul(g.apply("UNARY", y), _slice(g, inputs)))
    return g.normed(layer, "post_norm", y)


def gemma3n(g: LlamaGraph) -> None:
    """gemma3n: four streams, of which layers run one and predict and correct the others; shared caches."""
    x = g.apply("SCALE", g.begin())
    g.position_input()
    full, window = g.cache_inputs(0, g.window)
    inputs = _inputs_by_layer(g, x)
    if inputs is None:
        raise MissingTensor("inputs by layer")
    n_others = g.required("altup_proj.weight").ne[2]
    others = g.new("REPEAT", "f32", (*x.ne[:2], n_others), x)
    x = g.concat(x, _as_long_as(g, g.mul_mat(g.required("altup_proj.weight"), others), x), 2)
    for i in g.layers():
        predicted = _predicted(g, i, x)
        active = _slice(g, predicted)
        y = g.normed(i, "attn_norm", active)
        low_rank = g.mul_mat(g.weight(i, "laurel_r.weight"), g.mul_mat(g.weight(i, "laurel_l.weight"), y))
        low_rank = g.add(g.normed(i, "laurel_post_norm", low_rank), y)
        y = _attention(g, i, y, window if g.layer(i).n_swa else full)
        y = g.add(g.normed(i, "post_attention_norm", y), active)
        h = g.apply("SCALE", g.add(y, low_rank))
        y = _sparse_feed_forward(g, i, g.normed(i, "ffn_norm", h))
        h = g.add(g.norm(y, g.weight(i, "post_ffw_norm.weight"), None), h)
        x = _corrected(g, i, predicted, h)
        first = _with_input_of_layer(g, i, _slice(g, x), inputs)
        x = g.concat(_slice(g, x), g.add(_others(g, x), first), 2)
    others = _as_long_as(g, g.mul_mat(g.required("altup_unembd_proj.weight"), _others(g, x)), _slice(g, x))
    x = _slice(g, x)
    for _ in range(n_others):
        x = g.add(x, _slice(g, others))
    g.finish(g.get_rows(g.apply("SCALE", x), g.ids), soft_cap=True)


def _others(g: LlamaGraph, x: Node) -> Node:
    return g.view(x, (*x.ne[:2], x.ne[2] - 1), x.nb[1:3])


def _as_long_as(g: LlamaGraph, x: Node, target: Node) -> Node:
    """Return x scaled to the length of `target`'s vectors."""

    def length(rows: Node) -> Node:
        squares = g.apply("SQR", rows)
        return g.apply("SQRT", g.new("SUM_ROWS", "f32", (1, *rows.ne[1:]), squares))

    return g.apply("DIV", g.mul(x, length(target)), length(x))


def _modalities(g: LlamaGraph, layer: int, x: Node) -> Node:
    """Return what the router makes of a stream, one number for each."""
    y = g.apply("SCALE", g.normed(layer, "altup_router_norm", x))
    return g.apply("UNARY", g.mul_mat(g.weight(layer, "altup_router.weight"), y))


def _predicted(g: LlamaGraph, layer: int, x: Node) -> Node:
    n_streams = x.ne[2]
    found = g.mul_mat(g.weight(layer, "altup_predict_coef.weight"), _modalities(g, layer, _slice(g, x)))
    found = g.reshape(found, n_streams, n_streams, g.n_tokens)
    mixed = g.mul_mat(g.cont(g.permute(x, 1, 2, 0, 3)), found)
    return g.add(g.cont(g.swap_heads(mixed)), x)


def _corrected(g: LlamaGraph, layer: int, predicted: Node, active: Node) -> Node:
    n_streams = predicted.ne[2]
    routed = _modalities(g, layer, active)
    difference = g.apply("SUB", active, _slice(g, predicted))
    factors = g.apply("SCALE", g.mul_mat(g.weight(layer, "altup_correct_coef.weight"), routed))
    factors = g.cont(g.transpose(factors), 1, g.n_tokens, n_streams)
    difference = g.new("REPEAT", "f32", (*difference.ne[:2], n_streams), difference)
    return g.add(g.mul(difference, factors), predicted)


def _sparse_feed_forward(g: LlamaGraph, layer: int, y: Node) -> Node:
    """In the first layers only what is far above the mean of the gate goes on."""
    up = g.mul_mat(g.weight(layer, "ffn_up.weight"), y)
    gate = g.mul_mat(g.weight(layer, "ffn_gate.weight"), y)
    if layer < _SPARSE_LAYERS:
        mean = g.new("MEAN", "f32", (1, *gate.ne[1:]), gate)
        squares = g.apply("SQR", g.apply("SUB", gate, mean))
        deviation = g.apply("SQRT", g.apply("SCALE", g.new("SUM_ROWS", "f32", (1, *gate.ne[1:]), squares)))
        gate = g.apply("UNARY", g.apply("SUB", gate, g.add(mean, g.apply("SCALE", deviation))))
    return g.mul_mat(g.weight(layer, "ffn_down.weight"), g.mul(up, g.apply("UNARY", gate)))


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
        "gemma2": gemma2,
        "gemma3": gemma2,
        "gemma3n": gemma3n,
        "gemma4": gemma4,
    }
)
