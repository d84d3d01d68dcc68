"""llama.cpp: DeepSeek V4, a window of raw rows next to rows that each stand for 4 or 128 tokens.

Sources: llama.cpp src/models/deepseek4.cpp, src/llama-kv-cache-dsv4.cpp, src/llama-graph.cpp (build_inp_dsv4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from service.engine.engines.llama_cpp.caches import compression
from service.engine.engines.llama_cpp.graphs.blocks import LlamaGraph
from service.engine.engines.llama_cpp.graphs.hyper import (
    joined_streams,
    last_streams,
    read_streams,
    streams,
    write_streams,
)
from service.engine.engines.llama_cpp.graphs.latent import low_rank_query
from service.engine.memory.graph import NONE, Node, row_size
from service.engine.memory.graphs.base import MissingTensor

_FINE, _COARSE = 4, 128  # tokens a row, DSV4_CSA_RATIO and DSV4_HCA_RATIO
_FINE_STATE = 2 * _FINE  # rows that wait to be compressed; of coarse ones as many as a row stands for


class Compressor(NamedTuple):
    """The inputs for one kind of compressed rows; `rotation` where the cache is stored rotated."""

    ratio: int
    positions: Node
    kept_from: Node
    kept_to: Node
    read: Node
    write: Node
    write_positions: Node
    mask: Node
    rotation: Node | None


class Caches(NamedTuple):
    """A layer's cache tensors: raw rows, compressed rows, the indexer's, and the states with what waits for each."""

    raw: Node
    rows: Node | None = None
    keys: Node | None = None
    waiting: tuple[Node, Node] | None = None
    waiting_keys: tuple[Node, Node] | None = None


class Inputs(NamedTuple):
    """What all layers read besides their caches."""

    ids: Node
    mask: Node
    rotation: Node | None
    fine: Compressor
    coarse: Compressor
    keys: Compressor


def deepseek4(g: LlamaGraph) -> None:
    """deepseek4: several residual streams; windowed, finely and coarsely compressed attention by layer."""
    x = g.begin()
    g.position_input()
    n_stream, n = g.spec.n_seq, g.n_tokens
    size = compression(g.model, g.spec)
    ids = g.input("i64", n)
    mask = g.mask_input(size.raw, n // n_stream, 1, n_stream)
    head, indexer = g.layer(0).head_dim_k, g.model.int_value("attention.indexer.key_length")
    rotation = g.key_rotation(head)
    fine = _compressor(g, _FINE, size.fine, _FINE_STATE, 2)
    coarse = _compressor(g, _COARSE, size.coarse, _COARSE, 1)
    keys = _compressor(g, _FINE, size.fine, _FINE_STATE, 2, kind="f16")
    fine, coarse = (c._replace(rotation=g.key_rotation(head)) for c in (fine, coarse))
    inputs = Inputs(ids, mask, rotation, fine, coarse, keys._replace(rotation=g.input("f32", indexer, indexer)))
    g.expand(inputs.mask)
    x = streams(g, x)
    for i in g.layers():
        y, gates = read_streams(g, i, "attn", x)
        y = _attention(g, i, g.normed(i, "attn_norm", y), inputs)
        x = write_streams(g, y, x, gates)
        y, gates = read_streams(g, i, "ffn", x)
        g.expand(x, *gates)
        y = g.normed(i, "ffn_norm", y)
        x = write_streams(g, g.add(_experts(g, i, y), g.feed_forward(i, y, "_shexp")), x, gates)
    g.finish(joined_streams(g, last_streams(g, x)))


def _compressor(g: LlamaGraph, ratio: int, n_rows: int, n_state: int, n_read: int, kind: str = "") -> Compressor:
    n_stream, n = g.spec.n_seq, g.n_tokens
    n_blocks, n_kept = n // ratio + n_stream, min(n, n_state * n_stream)
    positions, kept_from, kept_to = g.input("i32", n), g.input("i32", n_kept), g.input("i32", n_kept)
    read, write = g.input("i32", n_read * ratio * n_blocks), g.input("i64", n_blocks)
    write_positions = g.input("i32", n_blocks)
    shape = (n_rows, n // n_stream, 1, n_stream)
    mask = g.input(kind, *shape) if kind else g.mask_input(*shape)
    return Compressor(ratio, positions, kept_from, kept_to, read, write, write_positions, mask, None)


def _caches(g: LlamaGraph, layer: int) -> Caches:
    tensors = g.cache(layer)
    if len(tensors) == 1:
        return Caches(*tensors)
    if len(tensors) == 4:
        raw, rows, *waiting = tensors
        return Caches(raw, rows, None, (waiting[0], waiting[1]))
    raw, rows, keys, *waiting = tensors
    return Caches(raw, rows, keys, (waiting[0], waiting[1]), (waiting[2], waiting[3]))


def _attention(g: LlamaGraph, layer: int, y: Node, inputs: Inputs) -> Node:
    facts, n, caches = g.layer(layer), g.n_tokens, _caches(g, layer)
    dim, n_head = facts.head_dim_k, facts.n_head
    low_rank = low_rank_query(g, layer, y)
    q = g.reshape(g.mul_mat(g.weight(layer, "attn_q_b.weight"), low_rank), dim, n_head, n)
    q = g.rope(g.apply("RMS_NORM", q))
    kv = g.norm(g.mul_mat(g.weight(layer, "attn_kv.weight"), y), g.weight(layer, "attn_kv_a_norm.weight"), layer)
    kv = g.rope(g.reshape(kv, dim, 1, n))
    if caches.rows is None or caches.waiting is None:
        out = _attend(g, layer, q, kv, caches, inputs, None)
    elif caches.keys is not None and caches.waiting_keys is not None:
        _compress(g, layer, "attn_compressor", y, inputs.fine, caches.rows, caches.waiting)
        _compress(g, layer, "indexer_compressor", y, inputs.keys, caches.keys, caches.waiting_keys)
        chosen = _choose(g, layer, y, low_rank, caches.keys, inputs.keys)
        out = _attend(g, layer, q, kv, caches, inputs, inputs.fine, chosen)
    else:
        _compress(g, layer, "attn_compressor", y, inputs.coarse, caches.rows, caches.waiting)
        out = _attend(g, layer, q, kv, caches, inputs, inputs.coarse)
    return _output(g, layer, g.reshape(out, dim, n_head, n))


def _output(g: LlamaGraph, layer: int, x: Node) -> Node:
    """Turn back, and project in groups of heads to a low rank, then all of it."""
    n_groups, rank = (g.model.int_value(f"attention.output_{name}") for name in ("group_count", "lora_rank"))
    dim, n_head, n = x.ne[:3]
    if n_groups < 1 or n_head % n_groups:
        raise MissingTensor("groups of heads")
    x = g.new("ROPE_BACK", "f32", x.ne, x, g.positions)
    x = g.swap_heads(g.reshape(x, dim * n_head // n_groups, n_groups, n))
    x = g.new("MUL_MAT", "f32", (rank, n, n_groups), g.weight(layer, "attn_output_a.weight"), x)
    x = g.cont(g.swap_heads(x), rank * n_groups, n)
    return g.mul_mat(g.weight(layer, "attn_output_b.weight"), x)


def _attend(
    g: LlamaGraph, layer: int, q: Node, kv: Node, caches: Caches, inputs: Inputs, rows: Compressor | None,
    chosen: Node | None = None,
) -> Node:  # fmt: skip
    """Store the raw row, and attend to the window and to the compressed rows behind it, of fine ones to the chosen."""
    if inputs.rotation is not None:
        q, kv = g.rotate(q, inputs.rotation), g.rotate(kv, inputs.rotation)
    g.expand(q, kv)
    g.store_rows(caches.raw, kv, inputs.ids)
    keys, mask = _rows(caches.raw, g), inputs.mask
    if rows is not None and caches.rows is not None:
        keys = g.concat(keys, _rows(caches.rows, g, shown=True), 2)
        shown = rows.mask if chosen is None else chosen_mask(g, rows.mask, chosen, rows.mask.kind)
        mask = g.concat(mask, shown, 0)
    out = g.attention(q, keys, keys, mask, g.weight(layer, "attn_sinks.weight"))
    return out if inputs.rotation is None else g.rotate(out, inputs.rotation)


def _rows(cache: Node, g: LlamaGraph, *, shown: bool = False) -> Node:
    """All rows of a cache as keys of one head; `shown`: as a view of that view."""
    row = row_size(cache.kind, cache.ne[0])
    rows = g.view(cache, (cache.ne[0], 1, cache.ne[1], cache.ne[2]), (row, row, row * cache.ne[1]))
    return g.view(rows, rows.ne, rows.nb[1:]) if shown else rows


def _compress(
    g: LlamaGraph, layer: int, part: str, y: Node, c: Compressor, cache: Node, waiting: tuple[Node, Node]
) -> None:
    """Make rows of what waits and of this batch, store them, and keep what is not enough for a row yet."""
    values = g.mul_mat(g.weight(layer, f"{part}_kv.weight"), y)
    scores = g.mul_mat(g.weight(layer, f"{part}_gate.weight"), y)
    scores = g.add(scores, g.get_rows(g.weight(layer, f"{part}_ape.weight"), c.positions))
    states = [g.view(s, (s.ne[0], s.ne[1] * s.ne[2]), s.nb[1:2]) for s in waiting]
    values_from, scores_from = (
        g.concat(g.view(state, state.ne[:2], state.nb[1:2]), new, 1)
        for state, new in zip(states, (values, scores), strict=True)
    )
    dim, n_blocks = cache.ne[0], c.write.ne[0]
    parts = _overlapping if c.ratio == _FINE else _apart
    values_of, scores_of = parts(g, values_from, scores_from, c, dim, n_blocks)
    weighted = g.mul(values_of, g.apply("SOFT_MAX", scores_of))
    rows = g.new("SUM_ROWS", "f32", (1, *weighted.ne[1:]), weighted)
    rows = g.cont(g.permute(rows, 1, 0, 2, 3))
    rows = g.norm(rows, g.weight(layer, f"{part}_norm.weight"), layer)
    rows = g.new("ROPE", "f32", rows.ne, rows, c.write_positions)
    if c.rotation is not None:
        rows = g.rotate(rows, c.rotation)
    g.store_rows(cache, rows, c.write)
    kept = [g.get_rows(new, c.kept_from) for new in (values, scores)]
    again = [g.view(s, (s.ne[0], s.ne[1] * s.ne[2]), s.nb[1:2]) for s in waiting]
    g.expand(*(g.set_rows(target, new, c.kept_to) for target, new in zip(again, kept, strict=True)))


def _apart(g: LlamaGraph, values: Node, scores: Node, c: Compressor, dim: int, n_blocks: int) -> tuple[Node, Node]:
    """Values and scores of each row's own tokens [tokens, dim, rows]."""
    read = (g.reshape(g.get_rows(x, c.read), dim, c.ratio, n_blocks) for x in (values, scores))
    first, second = (g.cont(g.permute(x, 1, 0, 2, 3)) for x in read)
    return first, second


def _overlapping(
    g: LlamaGraph, values: Node, scores: Node, c: Compressor, dim: int, n_blocks: int
) -> tuple[Node, Node]:
    """Values and scores of each row's own tokens and of those before [2 * tokens, dim, rows]."""
    found = []
    for x in (values, scores):
        zeros = g.view(x, x.ne[:1])
        zeros = g.reshape(g.apply("SCALE", zeros), x.ne[0], 1)
        rows = g.get_rows(g.concat(x, zeros, 1), c.read)
        halves = (g.cont(g.view(rows, (dim, c.ratio * n_blocks), rows.nb[1:2])) for _ in range(2))
        before, own = (g.reshape(half, dim, c.ratio, n_blocks) for half in halves)
        found.append(g.cont(g.permute(g.concat(before, own, 1), 1, 0, 2, 3)))
    return found[0], found[1]


def _choose(g: LlamaGraph, layer: int, y: Node, low_rank: Node, keys: Node, c: Compressor) -> Node:
    """Return the compressed rows with the highest scores [n_top_k, n_tokens, 1, n_stream]."""
    size, n_head, n = keys.ne[0], g.model.int_value("attention.indexer.head_count"), g.n_tokens
    if c.rotation is None:
        raise MissingTensor("the indexer's rotation")
    q = g.reshape(g.mul_mat(g.weight(layer, "indexer.attn_q_b.weight"), low_rank), size, n_head, n)
    q = g.rotate(g.rope(q), c.rotation)
    weights = g.apply("SCALE", g.mul_mat(g.weight(layer, "indexer.proj.weight"), y))
    stored = _rows(keys, g, shown=True)
    n_stream = stored.ne[3]
    q = g.view(q, (size, n_head, n // n_stream, n_stream), (q.nb[1], q.nb[2], q.nb[3] // n_stream))
    strides = (weights.nb[1], weights.nb[2] // n_stream, weights.nb[3] // n_stream)
    weights = g.view(weights, (n_head, n // n_stream, 1, n_stream), strides)
    scores = g.new("LIGHTNING_INDEXER", "f32", (keys.ne[1], n // n_stream, 1, n_stream), q, stored, weights, c.mask)
    n_top_k = min(keys.ne[1], g.model.int_value("attention.indexer.top_k"))
    return g.cont(g.new("TOP_K", "i32", (n_top_k, *scores.ne[1:]), scores))


def chosen_mask(g: LlamaGraph, mask: Node, chosen: Node, kind: str = "f32") -> Node:
    """Return a mask in which the chosen rows are left as `mask` has them; `kind`: of the zeros that show them."""
    hidden = g.new("FILL", mask.kind, mask.ne, mask)
    rows = g.view(hidden, (1, mask.ne[0], mask.ne[1], mask.ne[3]), hidden.nb[:3])
    n_top_k, n_tokens, _, n_stream = chosen.ne
    ids = g.view(chosen, (n_top_k, n_tokens, n_stream), (chosen.nb[1], chosen.nb[2], n_stream * chosen.nb[3]))
    zeros = g.new(NONE, kind, (1, n_top_k, n_tokens, n_stream))  # no input: it lives where it is filled
    shown = g.set_rows(rows, g.new("FILL", kind, zeros.ne, zeros), ids)
    shown = g.view(shown, mask.ne, (shown.nb[2], shown.nb[3], shown.nb[3]))
    return g.add(shown, mask)


def _experts(g: LlamaGraph, layer: int, y: Node) -> Node:
    """The first layers look up the experts of a token; the others choose."""
    table = g.optional(layer, "ffn_gate_tid2eid.weight")
    ids = None if table is None else g.new("GET_ROWS", "i32", (table.ne[0], g.n_tokens), table, g.tokens)
    return g.routed_experts(layer, y, g.gating, g.expert_weights_norm, g.expert_weights_scale, experts=ids)


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {"deepseek4": deepseek4}
