"""ik_llama.cpp: models with sliding windows. Every windowed layer has a cache and a mask of full size.

Sources: ik src/graphs/build_{openai,llama,step35,laguna,mimo2,command_r,cohere2,cohere2_moe}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.ik_llama_cpp.graphs.blocks import IkGraph
from service.engine.engines.ik_llama_cpp.graphs.gqa import decoder, decoders
from service.engine.memory.graph import Node


def gpt_oss(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """gpt-oss: every other layer windowed, attention sinks, biased experts chosen by their logits."""
    x = g.standard_attention(layer, x, mask, sinks=g.weight(layer, "attn_sinks.weight"))
    return g.expert_layer(layer, x, "weight", norm_weights=False)


def llama4(g: IkGraph) -> None:
    """Three windowed layers with rope, then a full one without, whose queries are scaled by position."""
    scale = g.input("f32", 1, 1, g.n_tokens)

    def layer_of(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
        if g.layer(layer).n_swa:
            x = g.standard_attention(layer, x, mask, g.rope_factors(layer))
        else:
            q, k, v = g.query_key_value(layer, g.normed(layer, "attn_norm", x))
            x = g.with_residual(layer, g.attend(layer, g.mul(q, scale), k, v, mask), x)
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


ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = decoders({"gpt-oss": gpt_oss, "step35": step35}) | {
    "llama4": llama4,
    "laguna": laguna,
    "mimo2": mimo2,
    "cohere2_moe": command_r,
    "command-r": command_r,
    "cohere2": command_r,
}
