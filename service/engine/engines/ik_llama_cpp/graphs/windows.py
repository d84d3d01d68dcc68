"""ik_llama.cpp: models with sliding windows. Every windowed layer has a cache and a mask of full size.

Sources: ik src/graphs/build_{openai,llama,step35,laguna,mimo2,command_r,cohere2,cohere2_moe,
gemma2,gemma3,gemma4}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.ik_llama_cpp.graphs.blocks import IkGraph
from service.engine.engines.ik_llama_cpp.graphs.gqa import decoder, decoders
from service.engine.memory.cache import cache_owner
from service.engine.memory.graph import Node


def gpt_oss(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """gpt-oss: every other layer windowed, attention sinks, biased experts chosen by their logits."""
    x = g.standard_attention(layer, x, mask, sinks=g.weight(layer, "attn_sinks.weight"))
    return g.expert_layer(layer, x, "weight", norm_weights=False)


def llama4(g: IkGraph) -> None:
    """Three windowed layers with rope, then a full one without, whose queries are scaled by position."""
    scale = g.input("f32", 1, 1, g.n_tokens)

    def layer_of(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
        windowed = g.layer(layer).n_swa > 0
        factors = g.rope_factors(layer) if windowed else None
        x = g.standard_attention(layer, x, mask, factors, rope=windowed, q_scale=None if windowed else scale)
        norm = g.weight(layer, "ffn_norm.weight")
        if not g.layer(layer).moe:
            return g.feed_forward(layer, x, norm, add_input=True)
        y = g.norm(x, norm)
        routed = g.add(g.routed_experts(layer, y, "sigmoid", norm_weights=False, weight_before=True), y)
        return g.add(routed, g.shared_expert(layer, y))

    decoder(g, layer_of)


def step35(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """step35 (Step 3.5): heads by layer, a gate for each head, dense layers first, then experts and a shared one."""
    masked = g.model.int_value("rope.scaling.apply_mask", 1)
    factors = g.rope_factors(layer) if masked & (2 if g.layer(layer).n_swa else 1) else None
    return g.experts_or_dense(layer, g.standard_attention(layer, x, mask, factors))


def laguna(g: IkGraph) -> None:
    """laguna: heads by layer, softplus gates, dense layers first, then experts and a shared one."""

    def layer_of(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
        factors = None if g.layer(layer).n_swa else g.rope_factors(layer)
        return g.experts_or_dense(layer, g.standard_attention(layer, x, mask, factors))

    g.soft_plus_gates = True
    decoder(g, layer_of)


def mimo2(g: IkGraph) -> None:
    """mimo2 (MiMo V2): KV heads by layer, sinks in the windowed layers, values scaled before they are stored."""

    def layer_of(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
        sinks = g.optional(layer, "attn_sinks.weight")
        return g.experts_or_dense(layer, g.standard_attention(layer, x, mask, sinks=sinks), "sigmoid")

    scale = g.model.value("attention.value_scale", 1.0)
    g.scaled_values = isinstance(scale, int | float) and abs(scale - 1) > 1e-4
    decoder(g, layer_of)


def command_r(g: IkGraph) -> None:
    """command-r, cohere2, cohere2_moe: attention and feed-forward side by side, each with a norm of its own."""
    windows = any(layer.n_swa for layer in g.model.layers)
    n_dense = g.model.int_value("leading_dense_block_count")

    def layer_of(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
        rope = g.layer(layer).n_swa > 0 or not windows or layer < n_dense
        out, x = g.last_rows(layer, g.standard_attention(layer, x, mask, rope=rope, crop=False), x)
        if not g.layer(layer).moe:
            return g.add(g.feed_forward(layer, x, g.weight(layer, "attn_norm.weight")), out)
        y = g.expert_layer(layer, x, g.gating, norm_weights=g.expert_weights_norm, add_input=False)
        x = g.add(y, out)
        g.expand(x)
        return x

    g.mean_norm = not g.given("attention.layer_norm_rms_epsilon")
    decoder(g, layer_of, scale_before=g.given("logit_scale"))


def gemma3(g: IkGraph) -> None:
    """Scaled embeddings, and norms after attention and feed-forward as well as before.

    gemma2 scales the queries too, and squashes scores and logits.
    """
    is_second = g.soft_cap = g.model.architecture == "gemma2"

    def layer_of(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
        q, k, v = g.query_key_value(layer, g.normed(layer, "attn_norm", x))
        q = g.rope(q)
        y = g.attend(layer, g.apply("SCALE", q) if is_second else q, g.rope(k), v, mask)
        h = g.with_residual(layer, g.normed(layer, "post_attention_norm", y), x)
        y = g.feed_forward(layer, h, g.weight(layer, "ffn_norm.weight"))
        return g.add(g.normed(layer, "post_ffw_norm", y), h)

    decoder(g, layer_of, g.apply("SCALE", g.begin()), soft_cap=is_second)


def gemma4(g: IkGraph) -> None:
    """gemma4: heads by kind of layer, shared caches, V from K where it is left out, experts alongside a dense layer."""
    x = g.apply("SCALE", g.begin())
    full, window = g.mask(), g.mask()
    inputs = _inputs_by_layer(g, x)
    for i in g.layers():
        y, x = _attention(g, i, x, window if g.layer(i).n_swa else full)
        h = g.add(y, x)
        x = _feed_forward(g, i, h)
        if inputs is not None:
            own = g.view(inputs, inputs.ne[:2], inputs.nb[1:2])
            (own,) = g.last_rows(i, own)
            gate = g.mul_mat(g.weight(i, "inp_gate.weight"), x)
            y = g.mul_mat(g.weight(i, "proj.weight"), g.new("FUSED_MUL_UNARY", "f32", gate.ne, gate, own))
            x = g.add(x, g.normed(i, "post_norm", y))
        scale = g.optional(i, "layer_output_scale.weight")
        x = x if scale is None else g.mul(x, scale)
    g.finish(x, soft_cap=True)


def _inputs_by_layer(g: IkGraph, x: Node) -> Node | None:
    """Each token's vectors for all layers [n_embd_per_layer, n_tokens, n_layer]: looked up, and made of `x`."""
    table = g.find("per_layer_token_embd.weight")
    if table is None:
        return None
    shape = (table.ne[0] // g.n_layer, g.n_layer, g.n_tokens)
    looked_up = g.get_rows(table, g.tokens)
    g.expand(looked_up)
    looked_up = g.apply("SCALE", g.reshape(looked_up, *shape))
    made = g.reshape(g.mul_mat(g.required("per_layer_model_proj.weight"), x), *shape)
    made = g.norm(made, g.required("per_layer_proj_norm.weight"))
    return g.cont(g.swap_heads(g.apply("SCALE", g.add(made, looked_up))))


def _attention(g: IkGraph, layer: int, x: Node, mask: Node) -> tuple[Node, Node]:
    """Return what is attended to, normed, and the residual, of the wanted rows."""
    facts, y = g.layer(layer), g.normed(layer, "attn_norm", x)
    factors = None if facts.n_swa else g.rope_factors(layer)
    k = v = None
    if cache_owner(g.model, facts) == layer and g.optional(layer, "attn_v.weight") is not None:
        q, k, v = g.query_key_value(layer, y)
        v = g.apply("RMS_NORM", g.reshape(v, facts.head_dim_v, facts.n_head_kv, g.n_tokens))
    else:
        q = g.reshape(g.mul_mat(g.weight(layer, "attn_q.weight"), y), facts.head_dim_k, facts.n_head, g.n_tokens)
        q = g.normed(layer, "attn_q_norm", q)
        if cache_owner(g.model, facts) == layer:
            joint = g.mul_mat(g.weight(layer, "attn_k.weight"), y)
            k, v = (g.reshape(joint, facts.head_dim_k, facts.n_head_kv, g.n_tokens) for _ in range(2))
            k, v = g.normed(layer, "attn_k_norm", k), g.apply("RMS_NORM", v)
    k = None if k is None else g.rope(k, factors)
    out, x = g.last_rows(layer, g.attend(layer, g.rope(q, factors), k, v, mask), x)
    return g.normed(layer, "post_attention_norm", out), x


def _feed_forward(g: IkGraph, layer: int, h: Node) -> Node:
    post = g.weight(layer, "post_ffw_norm.weight")
    dense = g.feed_forward(layer, h, g.weight(layer, "ffn_norm.weight"))
    if not g.layer(layer).moe:
        return g.add(g.norm(dense, post), h)
    y = g.normed(layer, "pre_ffw_norm_2", h)
    logits = g.mul_mat(g.weight(layer, "ffn_gate_inp.weight"), g.norm(h, g.weight(layer, "ffn_gate_inp.scale")))
    experts = g.routed_experts(layer, y, "softmax", norm_weights=True, logits=logits)
    norms = [g.weight(layer, f"post_ffw_norm_{n}.weight") for n in (1, 2)]
    both = g.new("FUSED_RMS_RMS_ADD", "f32", dense.ne, dense, norms[0], experts, norms[1])
    g.expand(both)
    return g.add(g.norm(both, post), h)


ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = decoders({"gpt-oss": gpt_oss, "step35": step35}) | {
    "llama4": llama4,
    "laguna": laguna,
    "mimo2": mimo2,
    "cohere2_moe": command_r,
    "command-r": command_r,
    "cohere2": command_r,
    "gemma2": gemma3,
    "gemma3": gemma3,
    "gemma4": gemma4,
}
