"""llama.cpp: Granite, whose embeddings, residuals and logits are scaled; Granite 4 H with Mamba layers.

Sources: llama.cpp src/models/{granite,granite-hybrid}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.gqa import feed_forward
from service.engine.engines.llama_cpp.graphs.mamba import mamba2_layer
from service.engine.engines.llama_cpp.graphs.recurrent import state_input
from service.engine.memory.graph import Node


def granite(g: LlamaGraph) -> None:
    """granite, granitemoe, granitehybrid: rope unless the header says otherwise; a shared expert where there is one."""
    x = g.begin()
    if g.given("embedding_scale"):
        x = g.apply("SCALE", x)
        g.expand(x)
    g.position_input()
    (cache,) = g.cache_inputs(0)
    states, ids = state_input(g, g.spec.n_seq), g.output_ids()
    for i in g.layers():
        y = g.norm(x, g.weight(i, "attn_norm.weight"), i)
        y = mamba2_layer(g, i, y, states) if g.layer(i).recurs else _attention(g, i, y, cache)
        y, x = g.last_rows(ids if i == g.n_layer - 1 else None, y, x)
        h = g.add(_scaled(g, y), x)
        y = g.norm(h, g.weight(i, "ffn_norm.weight"), i)
        x = g.add(_scaled(g, feed_forward(g, i, y, norm_weights=True)), h)
    g.finish(x, scale=g.given("logit_scale") or g.model.architecture != "granitehybrid")


def _attention(g: LlamaGraph, layer: int, y: Node, cache: CacheInput) -> Node:
    q, k, v = g.query_key_value(layer, y, norm=False)
    if g.model.value("rope.scaling.finetuned", True):
        factors = g.rope_factors(layer)
        q, k = g.rope(q, factors), g.rope(k, factors)
    return g.attend(layer, cache, q, k, v)


def _scaled(g: LlamaGraph, x: Node) -> Node:
    return g.apply("SCALE", x) if g.given("residual_scale") else x


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {
    "granite": granite,
    "granitemoe": granite,
    "granitehybrid": granite,
}
