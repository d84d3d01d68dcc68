"""llama.cpp: latent attention to the rows that an indexer chooses (DSA): GLM-5, DeepSeek V3.2, Hy4, dots3.

Sources: llama.cpp src/models/{glm-dsa,deepseek32,hy-v4,dots3note}.cpp, src/llama-graph.cpp (build_attn).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.compressed import chosen_mask
from service.engine.engines.llama_cpp.graphs.gqa import after_attention, gated_heads
from service.engine.engines.llama_cpp.graphs.hyper import (
    joined_streams,
    last_streams,
    read_equal_streams,
    streams,
    unlimited,
    write_equal_streams,
)
from service.engine.engines.llama_cpp.graphs.latent import attend_latent, indexer_key, latent_rows, low_rank_query
from service.engine.memory.cache import full_indexer
from service.engine.memory.graph import Node, row_size
from service.engine.memory.graphs.base import MissingTensor

_ROTATED = ("deepseek32", "dots3note", "glm-dsa")  # src/llama-kv-cache.cpp: attn_rot_k


class Indexer(NamedTuple):
    """What choosing rows reads besides its cache; `rotation` where its queries and keys are rotated."""

    ids: Node
    mask: Node
    rotation: Node | None


def sparse_latent(g: LlamaGraph) -> None:
    """glm-dsa, deepseek32: as deepseek2, with a mask made of the rows that the layer's indexer, or the last, chose."""
    x = g.begin()
    g.position_input()
    (cache,) = g.cache_inputs(0, latent=True)
    indexer = _inputs(g)
    chosen: Node | None = None
    for i in g.layers():
        y = g.normed(i, "attn_norm", x)
        q, chosen = _query(g, i, y, indexer, chosen)
        y = _attend(g, i, y, q, cache, chosen)
        x = after_attention(g, i, y, x, norm_weights=g.expert_weights_norm)
    g.finish(x)


def dots3(g: LlamaGraph) -> None:
    """dots3note: windowed latent layers of other sizes between the sparse ones, a gate for each head."""
    x = g.begin()
    g.position_input()
    (full,) = g.cache_inputs(0, latent=True)
    indexer = _inputs(g)
    (window,) = g.cache_inputs(g.window, latent=True)
    for i in g.layers():
        y = g.normed(i, "attn_norm", x)
        windowed = g.layer(i).n_swa > 0
        q, chosen = _query(g, i, y, None if windowed else indexer, None)
        out = gated_heads(g, i, _attend(g, i, y, q, window if windowed else full, chosen, project=False), y)
        y = g.mul_mat(g.weight(i, "attn_output.weight"), out)
        x = after_attention(g, i, y, x, norm_weights=g.expert_weights_norm)
    g.finish(x)


def hy_v4(g: LlamaGraph) -> None:
    """hy_v4: several residual streams, sinks, gated values; some checkpoints have no indexer."""
    x = g.begin()
    g.position_input()
    (cache,) = g.cache_inputs(0, latent=True)
    indexer = _inputs(g) if g.model.int_value("attention.indexer.top_k") else None
    x = streams(g, x)
    chosen: Node | None = None
    for i in g.layers():
        y, post = read_equal_streams(g, i, "attn", x)
        y = g.normed(i, "attn_norm", y)
        q, chosen = _query(g, i, y, indexer, chosen)
        sinks = g.weight(i, "attn_sinks.weight")
        out = gated_heads(g, i, _attend(g, i, y, q, cache, chosen, project=False, sinks=sinks), y)
        x = write_equal_streams(g, g.mul_mat(g.weight(i, "attn_output.weight"), out), x, post)
        y, post = read_equal_streams(g, i, "ffn", x)
        y = g.normed(i, "ffn_norm", y)
        x = write_equal_streams(g, unlimited(g, i, y), x, post)
    x = last_streams(g, x)
    g.finish(joined_streams(g, x, cast=True))


def _query(
    g: LlamaGraph, layer: int, y: Node, indexer: Indexer | None, chosen: Node | None
) -> tuple[Node, Node | None]:
    """Return the queries, and the rows chosen for this layer; those chosen last where it does not choose itself."""
    low_rank = low_rank_query(g, layer, y)
    if indexer is not None:
        if full_indexer(g.model, g.spec, layer):
            chosen = _choose(g, layer, y, low_rank, indexer)
        if chosen is None:
            raise MissingTensor("an indexer in the first layer")
    return g.mul_mat(g.weight(layer, "attn_q_b.weight"), low_rank), chosen


def _attend(
    g: LlamaGraph, layer: int, y: Node, q: Node, cache: CacheInput, chosen: Node | None, *, project: bool = True,
    sinks: Node | None = None,
) -> Node:  # fmt: skip
    q, compressed, k = latent_rows(g, layer, q, y)
    if chosen is not None:
        cache = cache._replace(mask=chosen_mask(g, cache.mask, chosen))
    return attend_latent(g, layer, q, compressed, k, cache, project=project, sinks=sinks)


def _inputs(g: LlamaGraph) -> Indexer:
    """The mask is f16 with flash attention and without, for the indexer is one operation in any case."""
    ids, size = g.input("i64", g.n_tokens), g.model.int_value("attention.indexer.key_length")
    n_stream = g.spec.n_stream
    mask = g.input("f16", g.n_kv, max(1, g.n_tokens // n_stream), 1, n_stream)
    rotated = g.model.architecture in _ROTATED
    return Indexer(ids, mask, g.input("f32", size, size) if rotated else None)


def _choose(g: LlamaGraph, layer: int, y: Node, low_rank: Node, indexer: Indexer) -> Node:
    """Store the indexer's keys and return the rows with the highest scores [n_top_k, n_tokens, 1, n_stream]."""
    size, n_head = (g.model.int_value(f"attention.indexer.{part}") for part in ("key_length", "head_count"))
    n, n_stream = g.n_tokens, g.spec.n_stream
    q = g.reshape(g.mul_mat(g.weight(layer, "indexer.attn_q_b.weight"), low_rank), size, n_head, n)
    q = g.rope(q)
    k = g.rope(g.reshape(indexer_key(g, layer, y), size, 1, n))
    if indexer.rotation is not None:
        q, k = g.mul_mat(indexer.rotation, q), g.mul_mat(indexer.rotation, k)
    keys = g.indexer_keys(layer)
    g.store_rows(keys, k, indexer.ids)
    weights = g.mul_mat(g.weight(layer, "indexer.proj.weight"), y)
    row = row_size(keys.kind, size)
    stored = g.view(keys, (size, 1, g.n_kv, n_stream), (row, row, row * g.n_kv))
    q = g.view(q, (size, n_head, n // n_stream, n_stream), (q.nb[1], q.nb[2], q.nb[3] // n_stream))
    strides = (weights.nb[1], weights.nb[2] // n_stream, weights.nb[3] // n_stream)
    weights = g.apply("SCALE", g.view(weights, (n_head, n // n_stream, 1, n_stream), strides))
    shape = (g.n_kv, n // n_stream, 1, n_stream)
    scores = g.new("LIGHTNING_INDEXER", "f32", shape, q, stored, weights, indexer.mask)
    n_top_k = min(g.n_kv, g.model.int_value("attention.indexer.top_k"))
    return g.cont(g.new("TOP_K", "i32", (n_top_k, *shape[1:]), scores))


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {
    "glm-dsa": sparse_latent,
    "deepseek32": sparse_latent,
    "dots3note": dots3,
    "hy_v4": hy_v4,
}
