"""llama.cpp: MiniMax-M3, whose indexer chooses blocks of positions for each group of heads.

Sources: llama.cpp src/models/minimax-m3.cpp, src/llama-kv-cache-msa.cpp, src/llama-graph.cpp (build_attn_inp_kv_msa).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.gqa import after_attention
from service.engine.memory.graph import Node, geometry, row_size
from service.engine.memory.graphs.base import MissingTensor
from service.engine.units import pad

_LEAST_POSITIONS = 256  # llama_kv_cache_msa_context::get_n_pos of an empty cache: memory is reserved with one


class Blocks(NamedTuple):
    """What choosing blocks reads besides the caches; `cells` is None, and `slots` given, for one token a sequence."""

    ids: Node
    bias: Node
    seen: Node
    places: Node
    slots: Node | None
    cells: Node | None
    mask: Node | None
    size: int


class Group(NamedTuple):
    """One layer's queries, the cache as its keys and values, and the indexer's queries and keys."""

    q: Node
    k: Node
    v: Node
    index_q: Node
    index_k: Node


def minimax_m3(g: LlamaGraph) -> None:
    """minimax-m3: all rows attended to in the dense layers, without flash attention and if slots share a cache."""
    x = g.begin()
    g.position_input()
    (cache,) = g.cache_inputs(0)
    sparse = g.spec.flash_attn and (g.spec.n_seq == 1 or g.spec.n_stream > 1)
    blocks = _inputs(g, cache) if sparse else None
    n_dense = g.model.int_value("leading_dense_block_count")
    for i in g.layers():
        y = g.normed(i, "attn_norm", x)
        q, k, v = g.query_key_value(i, y)
        qkv = g.rope(q), g.rope(k), v
        y = g.attend(i, cache, *qkv) if blocks is None or i < n_dense else _sparse(g, i, y, qkv, cache, blocks)
        x = after_attention(g, i, y, x, norm_weights=g.expert_weights_norm)
    g.finish(x)


def _inputs(g: LlamaGraph, cache: CacheInput) -> Blocks:
    n, n_stream, size = g.n_tokens, g.spec.n_stream, g.model.int_value("attention.indexer.block_size")
    if size < 1:
        raise MissingTensor("the size of blocks")
    n_positions = pad(_LEAST_POSITIONS, size)
    ids = g.input("i64", n)
    bias, seen = g.input("f32", n_positions // size, n), g.input("f32", n_positions, n)
    places = g.input("i32", n_positions, n_stream)
    if n == n_stream:
        return Blocks(ids, bias, seen, places, g.input("f32", n_positions, n_stream), None, None, size)
    cells = g.input("i32", g.n_kv, n_stream)
    return Blocks(ids, bias, seen, places, None, cells, g.cast(cache.mask, "f32"), size)


def _sparse(
    g: LlamaGraph, layer: int, y: Node, heads: tuple[Node, Node, Node], cache: CacheInput, blocks: Blocks
) -> Node:
    (q, k, v), n = heads, g.n_tokens
    size, n_head = (g.model.int_value(f"attention.indexer.{part}") for part in ("key_length", "head_count"))
    index_q = g.reshape(g.mul_mat(g.weight(layer, "indexer.q_proj.weight"), y), size, n_head, n)
    index_k = g.reshape(g.mul_mat(g.weight(layer, "indexer.k_proj.weight"), y), size, 1, n)
    index_q = g.rope(g.normed(layer, "indexer.q_norm", index_q))
    index_k = g.rope(g.normed(layer, "indexer.k_norm", index_k))
    stored = g.indexer_keys(layer)
    g.store_rows(stored, index_k, blocks.ids)
    row = row_size(stored.kind, size)
    index_k = g.view(stored, (size, 1, g.n_kv, stored.ne[2]), (row, row, row * g.n_kv))
    if cache.k_rotation is not None:
        q, k = g.rotate(q, cache.k_rotation), g.rotate(k, cache.k_rotation)
    if cache.v_rotation is not None:
        v = g.rotate(v, cache.v_rotation)
    g.expand(q, k, v)
    g.store(layer, cache, k, v)
    group = Group(q, *g.cache_views(layer, g.n_kv), index_q, index_k)
    out = _one_token_each(g, group, blocks) if blocks.slots is not None else _batch(g, group, blocks)
    if cache.v_rotation is not None:
        out = g.rotate(out, cache.v_rotation)
    return g.mul_mat(g.weight(layer, "attn_output.weight"), out)


def _batch(g: LlamaGraph, group: Group, blocks: Blocks) -> Node:
    streams = (_of_stream(g, group, blocks) for _ in range(g.spec.n_stream))
    return reduce(lambda out, one: g.concat(out, one, 1), streams)


def _of_stream(g: LlamaGraph, group: Group, blocks: Blocks) -> Node:
    """Score the positions of one stream, choose blocks, and mask what is in no chosen block."""
    q, k, v, index_q, index_k = group
    if blocks.cells is None or blocks.mask is None:
        raise MissingTensor("the blocks of the cells")
    (size, n_head), n, n_kv = index_q.ne[:2], g.n_tokens // g.spec.n_stream, g.n_kv
    n_positions, n_blocks = blocks.seen.ne[0], blocks.bias.ne[0]
    seen = g.view(blocks.seen, (n_positions, 1, n), (blocks.seen.nb[1],) * 2)
    bias = g.view(blocks.bias, (n_blocks, 1, n), (blocks.bias.nb[1],) * 2)
    keys = g.get_rows(g.view(index_k, (size, n_kv), index_k.nb[2:3]), g.view(blocks.places, (n_positions,)))
    queries = g.view(index_q, (size, n_head, n), index_q.nb[1:3])
    scores = g.reshape(g.mul_mat(keys, g.reshape(queries, size, n_head * n)), n_positions, n_head, n)
    chosen = _top_blocks(g, _add_in_place(g, scores, seen), bias, blocks)
    n_chosen = chosen.ne[0]
    hidden = g.cast(g.apply("SCALE", bias), "f16")
    hidden = g.new("REPEAT", "f16", (n_blocks, n_head, n), hidden)
    zeros = g.apply("SCALE", g.cast(chosen, "f32"))
    shown = g.set_rows(
        g.reshape(hidden, 1, n_blocks, n_head * n), g.reshape(zeros, 1, n_chosen, n_head * n),
        g.reshape(chosen, n_chosen, n_head * n),
    )  # fmt: skip
    shown = g.cont(g.swap_heads(g.reshape(shown, n_blocks, n_head, n)))
    shown = g.cont(g.transpose(g.reshape(shown, n_blocks, n * n_head)))
    by_cell = g.cont(g.transpose(g.get_rows(shown, g.view(blocks.cells, (n_kv,)))))
    mask = g.view(blocks.mask, (n_kv, n, 1), (blocks.mask.nb[1], blocks.mask.nb[3]))
    mask = _add_in_place(g, g.reshape(by_cell, n_kv, n, n_head), mask)
    mask = g.cast(g.reshape(mask, n_kv, n, 1, n_head), "f16")
    own_q = g.view(q, (*q.ne[:2], n), q.nb[1:3])
    own_k, own_v = (g.permute(g.view(x, (*x.ne[:3], 1), x.nb[1:]), 0, 3, 1, 2) for x in (k, v))
    return _attend(g, own_q, own_k, own_v, mask, k.ne[1])


def _one_token_each(g: LlamaGraph, group: Group, blocks: Blocks) -> Node:
    """For single tokens the rows of the chosen blocks are gathered."""
    q, k, v, index_q, index_k = group
    if blocks.slots is None:
        raise MissingTensor("the places of positions")
    (size, n_head), n_stream, n_kv = index_q.ne[:2], g.spec.n_stream, g.n_kv
    n_positions, n_blocks = blocks.seen.ne[0], blocks.bias.ne[0]
    keys = g.get_rows(g.view(index_k, (size, n_kv, n_stream), index_k.nb[2:4]), blocks.places)
    scores = g.mul_mat(g.reshape(keys, size, n_positions, 1, n_stream), g.reshape(index_q, size, n_head, 1, n_stream))
    scores = _add_in_place(g, scores, g.reshape(blocks.seen, n_positions, 1, 1, n_stream))
    chosen = _top_blocks(g, scores, g.reshape(blocks.bias, n_blocks, 1, 1, n_stream), blocks)
    n_chosen, length = chosen.ne[0], blocks.size
    shape, flat = (length, n_chosen, n_head, n_stream), (length * n_chosen * n_head, n_stream)
    starts = g.reshape(g.apply("SCALE", g.cast(chosen, "f32")), 1, n_chosen, n_head, n_stream)
    steps = g.reshape(g.new("ARANGE", "f32", (length,)), length, 1, 1)
    positions = g.add(g.new("REPEAT", "f32", shape, starts), steps)
    positions = g.cast(g.reshape(positions, *flat), "i32")
    cells = g.get_rows(g.reshape(blocks.slots, 1, n_positions, n_stream), positions)
    groups = g.reshape(g.new("ARANGE", "f32", (k.ne[1],)), 1, 1, n_head)
    rows = g.add(g.apply("SCALE", g.reshape(cells, *shape)), groups)
    rows = g.cast(g.reshape(rows, *flat), "i32")
    picked = []
    for x in (k, v):
        all_rows = g.view(x, (x.ne[0], x.ne[1] * n_kv, n_stream), (x.nb[1], x.nb[3]))
        found = g.reshape(g.get_rows(all_rows, rows), x.ne[0], length * n_chosen, 1, n_head * n_stream)
        kind = "f16" if geometry(x.kind)[0] > 1 else x.kind
        picked.append(found if kind == "f32" else g.cast(found, kind))
    mask = g.get_rows(g.reshape(blocks.seen, 1, n_positions, n_stream), positions)
    mask = g.cast(g.reshape(mask, length * n_chosen, 1, 1, n_head * n_stream), "f16")
    return _attend(g, q, picked[0], picked[1], mask, k.ne[1])


def _top_blocks(g: LlamaGraph, scores: Node, bias: Node, blocks: Blocks) -> Node:
    n_blocks = blocks.bias.ne[0]
    best = g.add(g.new("POOL_2D", "f32", (n_blocks, *scores.ne[1:]), scores), bias)
    n_chosen = min(n_blocks, g.model.int_value("attention.indexer.top_k"))
    return g.new("TOP_K", "i32", (n_chosen, *best.ne[1:]), best)


def _add_in_place(g: LlamaGraph, a: Node, b: Node) -> Node:
    return g.new("ADD", a.kind, a.ne, a, b, root=a, nb=a.nb)


def _attend(g: LlamaGraph, q: Node, k: Node, v: Node, mask: Node, n_head_kv: int) -> Node:
    """Attend with each group of heads, and each stream, as a sequence of its own."""
    dim, n_head, n = q.ne[:3]
    in_group, n_groups = n_head // n_head_kv, k.ne[3]
    n_rows = n_head * n // (in_group * n_groups)
    q = g.permute(g.reshape(q, dim, in_group, n_groups, n_rows), 0, 2, 3, 1)
    out = g.new("FLASH_ATTN_EXT", "f32", (v.ne[0], q.ne[2], q.ne[1], q.ne[3]), q, k, v, mask)
    out = g.permute(out, 0, 1, 3, 2)
    return g.reshape(g.cont(out) if n_rows > 1 else out, dim * n_head, n)


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {"minimax-m3": minimax_m3}
