"""llama.cpp: latent attention to the rows that an indexer chooses (DSA): GLM-5, DeepSeek V3.2.

Sources: llama.cpp src/models/glm-dsa.cpp, deepseek32.cpp, src/llama-graph.cpp:3039 (build_attn).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.gqa import after_attention
from service.engine.engines.llama_cpp.graphs.latent import attend_latent, latent_rows
from service.engine.memory.cache import full_indexer
from service.engine.memory.graph import Node, row_size
from service.engine.memory.graphs.base import MissingTensor
from service.engine.memory.ops import NONE


class Indexer(NamedTuple):
    """What choosing rows reads besides its cache."""

    ids: Node
    mask: Node
    rotation: Node


def sparse_latent(g: LlamaGraph) -> None:
    """glm-dsa, deepseek32: as deepseek2, with a mask made of the rows that the layer's indexer, or the last, chose."""
    x = g.begin()
    g.position_input()
    (cache,) = g.cache_inputs(0, latent=True)
    indexer = _inputs(g)
    ids = g.output_ids()
    chosen: Node | None = None
    for i in g.layers():
        y = g.norm(x, g.weight(i, "attn_norm.weight"), i)
        low_rank = g.mul_mat(g.weight(i, "attn_q_a.weight"), y)
        low_rank = g.norm(low_rank, g.weight(i, "attn_q_a_norm.weight"), i)
        if full_indexer(g.model, g.spec, i):
            chosen = _choose(g, i, y, low_rank, indexer)
        if chosen is None:
            raise MissingTensor("an indexer in the first layer")
        q, compressed, k = latent_rows(g, i, g.mul_mat(g.weight(i, "attn_q_b.weight"), low_rank), y)
        seen = cache._replace(mask=_sparse_mask(g, cache, chosen))
        y = attend_latent(g, i, q, compressed, k, seen)
        x = after_attention(g, i, y, x, ids if i == g.n_layer - 1 else None, norm_weights=g.expert_weights_norm)
    g.finish(x)


def _inputs(g: LlamaGraph) -> Indexer:
    """The mask is f16 with flash attention and without, for the indexer is one operation in any case."""
    ids, size = g.input("i64", g.n_tokens), g.model.int_value("attention.indexer.key_length")
    n_stream = g.spec.n_stream
    mask = g.input("f16", g.n_kv, max(1, g.n_tokens // n_stream), 1, n_stream)
    return Indexer(ids, mask, g.input("f32", size, size))


def _choose(g: LlamaGraph, layer: int, y: Node, low_rank: Node, indexer: Indexer) -> Node:
    """Store the indexer's keys and return the rows with the highest scores [n_top_k, n_tokens, 1, n_stream]."""
    size, n_head = indexer.rotation.ne[0], g.model.int_value("attention.indexer.head_count")
    n, n_stream = g.n_tokens, g.spec.n_stream
    q = g.reshape(g.mul_mat(g.weight(layer, "indexer.attn_q_b.weight"), low_rank), size, n_head, n)
    q = g.rope(q)
    k = g.apply("NORM", g.mul_mat(g.weight(layer, "indexer.attn_k.weight"), y))
    g.pin(k, layer)
    k = g.mul(k, g.weight(layer, "indexer.k_norm.weight"))
    k = g.add(k, g.weight(layer, "indexer.k_norm.bias"))
    k = g.rope(g.reshape(k, size, 1, n))
    q, k = g.mul_mat(indexer.rotation, q), g.mul_mat(indexer.rotation, k)
    keys = g.indexer_keys(layer)
    target = keys if keys.ne[2] == 1 else g.reshape(keys, size, keys.ne[1] * keys.ne[2])
    g.expand(g.set_rows(target, g.view(k, (size, n), (k.nb[2],)), indexer.ids))
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


def _sparse_mask(g: LlamaGraph, cache: CacheInput, chosen: Node) -> Node:
    """Return a mask in which the chosen rows are left as the mask of the cache has them."""
    mask = cache.mask
    hidden = g.new("FILL", mask.kind, mask.ne, mask)
    rows = g.view(hidden, (1, mask.ne[0], mask.ne[1], mask.ne[3]), hidden.nb[:3])
    n_top_k, n_tokens, _, n_stream = chosen.ne
    ids = g.view(chosen, (n_top_k, n_tokens, n_stream), (chosen.nb[1], chosen.nb[2], n_stream * chosen.nb[3]))
    zeros = g.new(NONE, "f32", (1, n_top_k, n_tokens, n_stream))  # no input: it lives where it is filled
    shown = g.set_rows(rows, g.new("FILL", "f32", zeros.ne, zeros), ids)
    shown = g.view(shown, mask.ne, (shown.nb[2], shown.nb[3], shown.nb[3]))
    return g.add(shown, mask)


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {
    "glm-dsa": sparse_latent,
    "deepseek32": sparse_latent,
}
