"""llama.cpp: GLM-5.3-Flash (glm5-next): Kimi delta attention, and latent attention to pools of rows that are chosen.

Sources: llama.cpp src/models/glm5-next.cpp, src/llama-memory-hybrid-idx.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.hyper import (
    last_streams,
    mean_of_streams,
    read_streams,
    streams,
    unlimited,
    write_streams,
)
from service.engine.engines.llama_cpp.graphs.kimi import delta_attention
from service.engine.engines.llama_cpp.graphs.latent import attend_latent, indexer_key, low_rank_query
from service.engine.engines.llama_cpp.graphs.recurrent import state_input
from service.engine.memory.cache import full_indexer
from service.engine.memory.graph import NONE, Node
from service.engine.memory.graphs.base import MissingTensor
from service.engine.units import pad

_POOLS = 64  # kpool_pad: pools are padded to a multiple of so many, the last always empty
_GATHERED_BATCH = 16  # tokens up to which chosen rows are gathered


class Pools(NamedTuple):
    """The inputs of the indexer: where keys go, the pools and their members, and which of what is chosen counts."""

    ids: Node
    cells: Node
    members: Node
    mask: Node
    tail: Node
    live: Node
    new_members: Node
    new_cells: Node
    size: int
    n_top: int
    gathers: bool


def glm5_next(g: LlamaGraph) -> None:
    """glm5-next: several residual streams, three layers of delta attention to one of latent attention without rope."""
    x = g.begin()
    (cache,) = g.cache_inputs(0, latent=True)
    states = state_input(g, g.spec.n_seq)
    pools = _inputs(g)
    x = streams(g, x)
    chosen: Node | None = None
    for i in g.layers():
        y, gates = read_streams(g, i, "attn", x)
        y = g.normed(i, "attn_norm", y)
        g.expand(y)
        if g.layer(i).recurs:
            y = delta_attention(g, i, y, states)
        else:
            y, chosen = _attention(g, i, y, cache, pools, chosen)
        x = write_streams(g, y, x, gates)
        y, gates = read_streams(g, i, "ffn", x)
        y = g.normed(i, "ffn_norm", y)
        x = write_streams(g, unlimited(g, i, y), x, gates)
    g.finish(mean_of_streams(g, last_streams(g, x)))


def _inputs(g: LlamaGraph) -> Pools:
    n, size = g.n_tokens, g.model.int_value("attention.indexer.kpool")
    if size < 1:
        raise MissingTensor("the size of pools")
    n_new = g.n_kv // size * g.spec.n_seq
    n_pool = pad(n_new + 1, _POOLS)
    n_top = min(n_pool, g.model.int_value("attention.indexer.top_k") // size)
    n_tail = size - 1 if g.model.value("attention.indexer.kpool_select_tail") else 0
    n_chosen = size * n_top + n_tail
    ids, cells = g.input("i64", n), g.input("i32", n_pool)
    members, mask = g.input("i32", size, n_pool), g.input("f16", n_pool, n)
    tail = g.input("i32", size - 1, n)
    g.expand(cells, members, mask, tail)
    live = g.input("f32", n_chosen, 1, 1, n)
    g.expand(live)
    new_members, new_cells = g.input("i32", size, n_new), g.input("i64", n_new)
    gathers = n <= _GATHERED_BATCH and g.n_kv > n_chosen
    return Pools(ids, cells, members, mask, tail, live, new_members, new_cells, size, n_top, gathers)


def _attention(
    g: LlamaGraph, layer: int, y: Node, cache: CacheInput, pools: Pools, chosen: Node | None
) -> tuple[Node, Node]:
    m, n, n_head = g.model.mla, g.n_tokens, g.layer(layer).n_head
    if m is None or not g.spec.mla:
        raise MissingTensor("a latent cache")
    low_rank = low_rank_query(g, layer, y)
    q = g.reshape(g.mul_mat(g.weight(layer, "attn_q_b.weight"), low_rank), m.nope, n_head, n)
    rows = g.mul_mat(g.weight(layer, "attn_kv_a_mqa.weight"), y)
    rows = g.reshape(g.normed(layer, "attn_kv_a_norm", rows), m.kv_lora_rank, 1, n)
    absorbed = g.swap_heads(g.mul_mat(g.weight(layer, "attn_k_b.weight"), g.swap_heads(q)))
    if full_indexer(g.model, g.spec, layer):
        chosen = _choose(g, layer, y, low_rank, cache.mask, pools)
    if chosen is None:
        raise MissingTensor("an indexer in the first latent layer")
    if pools.gathers:
        return _gathered(g, layer, absorbed, rows, cache, chosen, pools), chosen
    masked = cache._replace(mask=g.reshape(chosen, *cache.mask.ne))
    return attend_latent(g, layer, absorbed, rows, rows, masked), chosen


def _choose(g: LlamaGraph, layer: int, y: Node, low_rank: Node, mask: Node, pools: Pools) -> Node:
    """Store the indexer's keys and gates, sum up pools that are complete, and return the rows of the best.

    As the cells to gather, or as a mask of all rows.
    """
    size, n_head = (g.model.int_value(f"attention.indexer.{part}") for part in ("key_length", "head_count"))
    n, n_pool, n_new = g.n_tokens, pools.cells.ne[0], pools.new_cells.ne[0]
    q = g.reshape(g.mul_mat(g.weight(layer, "indexer.attn_q_b.weight"), low_rank), size, n_head, n)
    k = indexer_key(g, layer, y)
    gate = g.mul_mat(g.weight(layer, "indexer_compressor_gate.weight"), y)
    packed = g.concat(g.concat(k, gate, 0), _filled(g, size, n), 0)
    packed = g.reshape(packed, 3 * size, 1, n)
    stored = g.indexer_keys(layer)
    g.store_rows(stored, packed, pools.ids)
    n_cells = stored.ne[1] * stored.ne[2]
    both, sums = (g.view(stored, (width, n_cells), stored.nb[1:2]) for width in (2 * size, size))
    rows = g.get_rows(both, g.reshape(pools.new_members, pools.size * n_new))
    rows = g.reshape(rows, 2 * size, pools.size, n_new)
    keys, gates = (g.view(rows, (size, pools.size, n_new), rows.nb[1:3]) for _ in range(2))
    gates = g.add(gates, g.weight(layer, "indexer_compressor_ape.weight"))
    gates = g.reshape(g.cont(g.permute(gates, 1, 0, 2, 3)), pools.size, size * n_new)
    gates = g.reshape(g.apply("SOFT_MAX", gates), pools.size, size, n_new)
    keys = g.mul(gates, g.cont(g.permute(keys, 1, 0, 2, 3)))
    summed = g.reshape(g.new("SUM_ROWS", "f32", (1, size, n_new), keys), size, n_new)
    g.expand(g.set_rows(sums, summed, pools.new_cells))
    pooled = g.reshape(g.get_rows(sums, pools.cells), size, 1, n_pool)
    weights = g.apply("SCALE", g.mul_mat(g.weight(layer, "indexer.proj.weight"), y))
    scores = g.new("LIGHTNING_INDEXER", "f32", (n_pool, n), q, pooled, weights, pools.mask)
    cells = _cells_of_best(g, scores, pools)
    return cells if pools.gathers else _mask_of(g, cells, mask, pools)


def _filled(g: LlamaGraph, *ne: int) -> Node:
    return g.new("FILL", "f32", ne, g.new(NONE, "f32", ne))


def _cells_of_best(g: LlamaGraph, scores: Node, pools: Pools) -> Node:
    """Return the cells in the best pools, in the order of their scores, and the tail that is in no pool yet."""
    (n_pool, n), n_top = scores.ne[:2], pools.n_top
    best = g.new("TOP_K", "i32", (n_top, n), scores)
    found = g.get_rows(g.reshape(scores, 1, n_pool, n), best)
    order = g.new("ARGSORT", "i32", (n_top, n), g.reshape(found, n_top, n))
    best = g.get_rows(g.reshape(g.cast(best, "f32"), 1, n_top, n), order)
    best = g.cast(g.cont(g.reshape(best, n_top, n)), "i32")
    cells = g.new("GET_ROWS", "i32", (pools.size, n_top * n), pools.members, g.reshape(best, n_top * n))
    cells = g.reshape(cells, pools.size * n_top, n)
    return g.concat(cells, pools.tail, 0) if pools.live.ne[0] > cells.ne[0] else cells


def _mask_of(g: LlamaGraph, cells: Node, mask: Node, pools: Pools) -> Node:
    """Return a mask that shows the chosen cells; what does not count is written behind the rows."""
    n_chosen, n = cells.ne[:2]
    n_rows = g.n_kv + n_chosen
    seed = g.cast(g.view(cells, (1,)), "f32")
    hidden = seed if mask.kind == "f32" else g.cast(seed, mask.kind)
    hidden = g.new("FILL", mask.kind, (1,), hidden)
    hidden = g.reshape(g.new("REPEAT", mask.kind, (1, n_rows, n), hidden), 1, n_rows, n)
    zeros = g.new("REPEAT", "f32", (1, n_chosen, n), g.new("FILL", "f32", (1,), seed))
    zeros = g.reshape(zeros, 1, n_chosen, n)
    live = g.apply("UNARY", g.reshape(pools.live, n_chosen, n))
    behind = g.new("ARANGE", "f32", (n_chosen,))
    numbers = g.apply("SUB", g.cast(cells, "f32"), behind)
    numbers = g.cast(g.add(g.mul(numbers, live), behind), "i32")
    shown = g.set_rows(hidden, zeros, g.reshape(numbers, n_chosen, n, 1))
    shown = g.view(shown, (g.n_kv, n), shown.nb[2:3])
    return g.add(shown, g.reshape(mask, g.n_kv, n))


def _gathered(g: LlamaGraph, layer: int, q: Node, rows: Node, cache: CacheInput, cells: Node, pools: Pools) -> Node:
    """Attend to the gathered rows of each token."""
    (n_chosen, n), rank = cells.ne[:2], rows.ne[0]
    keys = g.cache(layer)[0]
    g.expand(q, rows)
    g.store_rows(keys, rows, cache.k_ids)
    g.expand(cache.mask)
    all_rows = g.view(keys, (rank, keys.ne[1] * keys.ne[2]), keys.nb[1:2])
    k = g.reshape(g.get_rows(all_rows, g.reshape(cells, n_chosen * n)), rank, n_chosen, 1, n)
    scores = g.mul_mat(k, g.permute(q, 0, 2, 3, 1))
    scores = g.apply("SOFT_MAX", scores, pools.live)
    out = g.mul_mat(g.cont(g.transpose(k)), scores)
    out = g.mul_mat(g.weight(layer, "attn_v_b.weight"), out)
    out = g.reshape(g.cont(g.swap_heads(out)), out.ne[0] * out.ne[2], n)
    return g.mul_mat(g.weight(layer, "attn_output.weight"), out)


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {"glm5-next": glm5_next}
