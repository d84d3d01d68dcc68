"""llama.cpp: Granite, whose embeddings, residuals and logits are scaled; Granite 4 H with Mamba layers; MiniCPM.

Sources: llama.cpp src/models/{granite,granite-moe,granite-hybrid,granite-swa,minicpm}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.gqa import feed_forward
from service.engine.engines.llama_cpp.graphs.mamba import mamba2_layer
from service.engine.engines.llama_cpp.graphs.recurrent import state_input
from service.engine.memory.graph import Node
from service.engine.memory.graphs.base import by_name

_WITH_SWITCH = ("granite", "granitehybrid")  # read rope.scaling.finetuned


def granite(g: LlamaGraph) -> None:
    """granite, granitemoe, granite_swa, granitehybrid, minicpm: scaled, with a shared expert where there is one."""
    x = g.begin()
    if _given(g, "embedding_scale"):
        x = g.apply("SCALE", x)
        g.expand(x)
    g.position_input()
    caches = g.cache_inputs(0, g.window) if g.window else g.cache_inputs(0)
    states = state_input(g, g.spec.n_seq)
    for i in g.layers():
        y = g.normed(i, "attn_norm", x)
        y = (
            mamba2_layer(g, i, y, states)
            if g.layer(i).recurs
            else _attention(g, i, y, caches[1 if g.layer(i).n_swa else 0])
        )
        y, x = g.last_rows(i, y, x)
        h = g.add(_scaled(g, y), x)
        y = g.normed(i, "ffn_norm", h)
        x = g.add(_scaled(g, feed_forward(g, i, y, norm_weights=True)), h)
    g.finish(x, scale=g.given("logit_scale") or g.model.architecture != "granitehybrid")


def _attention(g: LlamaGraph, layer: int, y: Node, cache: CacheInput) -> Node:
    q, k, v = g.query_key_value(layer, y, norm=False)
    if _turns(g, layer):
        factors = g.rope_factors(layer)
        q, k = g.rope(q, factors), g.rope(k, factors)
    return g.attend(layer, cache, q, k, v, sinks=g.optional(layer, "attn_sinks.weight"))


def _turns(g: LlamaGraph, layer: int) -> bool:
    """Whether the layer has rope: by a switch of the header, or a pattern of the layers."""
    if g.model.architecture in _WITH_SWITCH:
        return bool(g.model.value("rope.scaling.finetuned", True))
    pattern = g.model.value("attention.rope_pattern")
    return not isinstance(pattern, list) or layer >= len(pattern) or bool(pattern[layer])


def _scaled(g: LlamaGraph, x: Node) -> Node:
    return g.apply("SCALE", x) if _given(g, "residual_scale") else x


def _given(g: LlamaGraph, key: str) -> bool:
    """Whether the header has a factor; MiniCPM has one of its own where it does not (src/models/minicpm.cpp)."""
    return g.given(key, 1.0 if g.model.architecture == "minicpm" else 0.0)


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = by_name(
    {
        "granite granitemoe granitehybrid minicpm granite_swa": granite,
    }
)
