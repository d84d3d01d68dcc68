"""llama.cpp: the Gemma family. Scaled embeddings, windows, norms on both sides, and inputs of every layer's own.

Sources: llama.cpp src/models/{gemma2,gemma3,gemma3n,gemma4}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.gqa import attended, decoder
from service.engine.memory.cache import cache_owner
from service.engine.memory.graph import Node
from service.engine.memory.graphs.base import MissingTensor

_SPARSE_LAYERS = 10  # n_layer_sparsity, src/models/models.h


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


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {
    "gemma2": gemma2,
    "gemma3": gemma2,
    "gemma3n": gemma3n,
    "gemma4": gemma4,
}
