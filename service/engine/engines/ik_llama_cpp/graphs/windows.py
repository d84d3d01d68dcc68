"""ik_llama.cpp: models with sliding windows. Every windowed layer has a cache and a mask of full size.

Sources: ik src/graphs/build_{openai,llama,step35,laguna,mimo2,command_r,cohere2,cohere2_moe}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.ik_llama_cpp.graphs.blocks import IkGraph
from service.engine.memory.graph import Node


def gpt_oss(g: IkGraph) -> None:
    """gpt-oss: every other layer windowed, attention sinks, biased experts chosen by their logits."""
    x, full, window = g.begin(), g.mask(), g.mask()
    for i in g.layers():
        mask = window if g.layer(i).n_swa else full
        x = g.standard_attention(i, x, mask, sinks=g.weight(i, "attn_sinks.weight"))
        x = g.expert_layer(i, x, "weight", norm_weights=False)
    g.finish(x)


def llama4(g: IkGraph) -> None:
    """Three windowed layers with rope, then a full one without, whose queries are scaled by position."""
    x = g.begin()
    scale = g.input("f32", 1, 1, g.n_tokens)
    full, window = g.mask(), g.mask()
    for i in g.layers():
        if g.layer(i).n_swa:
            x = g.standard_attention(i, x, window, g.rope_factors(i))
        else:
            x = _unroped_attention(g, i, x, full, scale)
        norm = g.weight(i, "ffn_norm.weight")
        if not g.layer(i).moe:
            x = g.feed_forward(i, x, norm, add_input=True)
            continue
        y = g.norm(x, norm)
        routed = g.add(g.routed_experts(i, y, "sigmoid", norm_weights=False, weight_before=True), y)
        x = g.add(routed, g.shared_expert(i, y))
    g.finish(x)


def _unroped_attention(g: IkGraph, layer: int, x: Node, mask: Node, scale: Node) -> Node:
    q, k, v = g.query_key_value(layer, g.normed(layer, "attn_norm", x))
    out = g.attend(layer, g.mul(q, scale), k, v, mask)
    return g.with_residual(layer, out, x)


def step35(g: IkGraph) -> None:
    """step35 (Step 3.5): heads by layer, a gate for each head, dense layers first, then experts and a shared one."""
    x, full, window = g.begin(), g.mask(), g.mask()
    masked = g.model.int_value("rope.scaling.apply_mask", 1)
    for i in g.layers():
        windowed = g.layer(i).n_swa > 0
        factors = g.rope_factors(i) if masked & (2 if windowed else 1) else None
        x = g.standard_attention(i, x, window if windowed else full, factors)
        x = g.experts_or_dense(i, x)
    g.finish(x)


def laguna(g: IkGraph) -> None:
    """laguna: heads by layer, softplus gates, dense layers first, then experts and a shared one."""
    g.soft_plus_gates = True
    x, full = g.begin(), g.mask()
    window = g.mask() if any(layer.n_swa for layer in g.model.layers) else full
    for i in g.layers():
        factors = None if g.layer(i).n_swa else g.rope_factors(i)
        x = g.standard_attention(i, x, window if g.layer(i).n_swa else full, factors)
        x = g.experts_or_dense(i, x)
    g.finish(x)


def mimo2(g: IkGraph) -> None:
    """mimo2 (MiMo V2): KV heads by layer, sinks in the windowed layers, values scaled before they are stored."""
    scale = g.model.value("attention.value_scale", 1.0)
    g.scaled_values = isinstance(scale, int | float) and abs(scale - 1) > 1e-4
    x, full, window = g.begin(), g.mask(), g.mask()
    for i in g.layers():
        mask, sinks = window if g.layer(i).n_swa else full, g.optional(i, "attn_sinks.weight")
        x = g.standard_attention(i, x, mask, sinks=sinks)
        x = g.experts_or_dense(i, x, "sigmoid")
    g.finish(x)


def command_r(g: IkGraph) -> None:
    """command-r, cohere2, cohere2_moe: attention and feed-forward side by side, each with a norm of its own."""
    g.mean_norm = not g.given("attention.layer_norm_rms_epsilon")
    x, full = g.begin(), g.mask()
    windows = any(layer.n_swa for layer in g.model.layers)
    window = g.mask() if windows else full
    n_dense = g.model.int_value("leading_dense_block_count")
    for i in g.layers():
        windowed = g.layer(i).n_swa > 0
        rope = windowed or not windows or i < n_dense
        out = g.standard_attention(i, x, window if windowed else full, rope=rope, crop=False)
        out, x = g.last_rows(i, out, x)
        if g.layer(i).moe:
            y = g.expert_layer(i, x, g.gating, norm_weights=g.expert_weights_norm, add_input=False)
        else:
            y = g.feed_forward(i, x, g.weight(i, "attn_norm.weight"))
        x = g.add(y, out)
        if g.layer(i).moe:
            g.expand(x)
    g.finish(x, scale_before=g.given("logit_scale"))


ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = {
    "gpt-oss": gpt_oss,
    "llama4": llama4,
    "step35": step35,
    "laguna": laguna,
    "mimo2": mimo2,
    "cohere2_moe": command_r,
    "command-r": command_r,
    "cohere2": command_r,
}
