"""ik_llama.cpp: DeepSeek V4, which attends to a window and to compressed rows, over several residual streams.

Sources: ik src/graphs/build_deepseek4.cpp, src/llama-dsv4.cpp (what a reserved graph's batch compresses: every token of
it, of one sequence), src/llama-build-context.cpp:639-745 (build_mhc_*). Rows that stand for 128 tokens are written but
not attended to in the reserved graph, for none is visible in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from service.engine.engines.ik_llama_cpp.caches import FINE
from service.engine.engines.ik_llama_cpp.graphs.blocks import IkGraph
from service.engine.memory.graph import Node
from service.engine.memory.graphs.base import MissingTensor
from service.engine.model import Model
from service.engine.units import pad

_FLASH_CHUNK = 256


class _Plan(NamedTuple):
    """Inputs of a compression: tokens' places, which rows to keep, to read and to write, and what tokens see."""

    places: Node
    keep_from: Node
    keep_at: Node
    read: Node
    write_at: Node
    positions: Node
    mask: Node | None


def deepseek4(g: IkGraph) -> None:
    """deepseek4: streams are mixed before and after each part; the first layers choose experts by token."""
    inputs = _Inputs(g)
    x = g.begin()
    inputs.mask = g.mask()
    n_embd, n, streams = x.ne[0], g.n_tokens, g.model.int_value("hyper_connection.count")
    x = g.new("REPEAT", "f32", (n_embd, streams, n), g.reshape(x, n_embd, 1, n))
    for i in g.layers():
        mixed = _Mixed(g, i, "attn", x)
        y = g.normed(i, "attn_norm", mixed.out)
        x = mixed.back(_Attention(g, i, inputs).build(y))
        mixed = _Mixed(g, i, "ffn", x)
        x = mixed.back(_experts(g, i, g.normed(i, "ffn_norm", mixed.out)))
    if g.spec.n_outputs != n:
        flat = g.get_rows(g.reshape(x, n_embd * streams, n), g.ids)
        x = g.reshape(flat, n_embd, streams, g.spec.n_outputs)
    fn, scale, base = (g.required(f"output_hc_{part}.weight") for part in ("fn", "scale", "base"))
    normed = g.norm(g.reshape(x, x.ne[0] * x.ne[1], x.ne[2]), None)
    weights = g.add(g.mul(g.mul_mat(fn, normed), scale), base)
    g.finish(_weighted_sum(g, x, g.apply("SCALE", g.apply("UNARY", weights))))


def rows_reached(model: Model, n_tokens: int) -> int:
    """Return how many of the newest rows a batch may attend to without those that are compressed."""
    window = model.int_value("attention.sliding_window")
    return pad(max(_FLASH_CHUNK, n_tokens) + window, _FLASH_CHUNK)


def _weighted_sum(g: IkGraph, x: Node, weights: Node) -> Node:
    weights = g.reshape(weights, 1, weights.ne[0], weights.ne[1], weights.ne[2])
    return g.new("MUL_MULTI_ADD", "f32", (x.ne[0], x.ne[2]), x, weights)


class _Mixed:
    """What a part of a layer reads of the streams (`out`), and how its result goes back to them."""

    def __init__(self, g: IkGraph, layer: int, part: str, x: Node) -> None:
        self.g, self.x, hc, n = g, x, x.ne[1], x.ne[2]
        fn, scale, base = (g.weight(layer, f"hc_{part}_{name}.weight") for name in ("fn", "scale", "base"))
        mixes = g.mul_mat(fn, g.norm(g.reshape(x, x.ne[0] * hc, n), None))
        every = g.new("HC_PRE", "f32", ((hc * hc + 2 * hc) * n,), mixes, scale, base)
        self.post = g.view(every, (hc, n), (4 * hc,))
        self.across = g.view(every, (hc, hc, n), (4 * hc, 4 * hc * hc))
        self.out = _weighted_sum(g, x, g.view(every, (hc, n), (4 * hc,)))

    def back(self, out: Node) -> Node:
        return self.g.new("HC_POST", "f32", self.x.ne[:3], out, self.post, self.x, self.across)


def _experts(g: IkGraph, layer: int, y: Node) -> Node:
    table = g.optional(layer, "ffn_gate_tid2eid.weight")
    ids = None if table is None else g.new("GET_ROWS", table.kind, (table.ne[0], g.n_tokens), table, g.tokens)
    routed = g.routed_experts(
        layer, y, "sigmoid", norm_weights=g.expert_weights_norm, scale=g.expert_weights_scale, ids=ids
    )  # fmt: skip
    g.expand(routed)
    out = g.add(routed, g.shared_expert(layer, y))
    g.expand(out)
    return out


class _Inputs:
    """The inputs of all layers, and the rows that are put behind a batch's: made in the first layer that compresses."""

    def __init__(self, g: IkGraph) -> None:
        self.g, n = g, g.n_tokens
        self.from_row, self.to_row = g.input("i32", 1), g.input("i32", 1)
        fine, coarse = pad(-(-g.n_kv // FINE), 256), pad(-(-g.n_kv // 128), 256)
        kind = "f16" if g.spec.flash_attn else "f32"
        self.fine = self._plan(FINE, 2, 2 * FINE, g.input(kind, fine, n))
        self.coarse = self._plan(128, 1, 128, g.input(kind, coarse, n))
        self.indexer = self._plan(FINE, 2, 2 * FINE, None)
        self.mask: Node
        self.behind: dict[str, Node] = {}

    def _plan(self, ratio: int, overlap: int, n_state: int, mask: Node | None) -> _Plan:
        g, n = self.g, self.g.n_tokens
        n_blocks, kept = -(-n // ratio), min(n, n_state * g.spec.n_seq)
        sizes = (n, kept, kept, overlap * ratio * n_blocks)
        places, keep_from, keep_at, read = (g.input("i32", size) for size in sizes)
        return _Plan(places, keep_from, keep_at, read, g.input("i64", n_blocks), g.input("i32", n_blocks), mask)

    def with_row(self, name: str, rows: Node) -> Node:
        """Return the rows with one more behind, that of the first layer that asked for it."""
        g = self.g
        if name not in self.behind:
            self.behind[name] = g.reshape(g.apply("SCALE", g.view(rows, (rows.ne[0],))), rows.ne[0], 1)
        return g.concat(rows, self.behind[name], 1)


class _Attention:
    """One layer's attention: to the window, and to the rows that stand for four tokens."""

    def __init__(self, g: IkGraph, layer: int, inputs: _Inputs) -> None:
        self.g, self.layer, self.inputs = g, layer, inputs
        self.ratio = g.model.compression_ratio(layer) or 0
        self.keys, *self.more = g.cache(layer)
        self.dim, self.n_head = g.layer(layer).head_dim_k, g.layer(layer).n_head

    def build(self, y: Node) -> Node:
        """Return what the layer adds: projections, compression, the window's rows, attention and the output."""
        g = self.g
        low = g.norm(
            g.mul_mat(g.weight(self.layer, "attn_q_a.weight"), y), g.weight(self.layer, "attn_q_a_norm.weight")
        )
        q = self._rotated(low, "attn_q_b", self.n_head, None)
        kv = self._rotated(y, "attn_kv", 1, g.weight(self.layer, "attn_kv_a_norm.weight"))
        if self.ratio == FINE:
            k, state, score = self.more[0], self.more[2], self.more[3]
            self._compress(y, self.inputs.fine, "attn_compressor", (k, state, score), "fine")
            k, state, score = self.more[1], self.more[4], self.more[5]
            self._compress(y, self.inputs.indexer, "indexer_compressor", (k, state, score), "indexer")
        elif self.ratio:
            k, state, score = self.more
            self._compress(y, self.inputs.coarse, "attn_compressor", (k, state, score), "")
        self._store(kv)
        rows, mask = self._window()
        out = self._with_compressed(q, rows, mask, low, y) if self.ratio == FINE else self._attend(q, rows, mask, 0)
        g.expand(out)
        return self._projected(out)

    def _rotated(self, x: Node, part: str, n_head: int, norm: Node | None) -> Node:
        g, n = self.g, self.g.n_tokens
        x = g.mul_mat(g.weight(self.layer, f"{part}.weight"), x)
        x = g.norm(g.reshape(x, self.dim, n_head * n), norm)
        return self._in_place(g.reshape(x, self.dim, n_head, n), g.positions)

    def _in_place(self, x: Node, positions: Node, op: str = "ROPE") -> Node:
        return self.g.new(op, x.kind, x.ne, x, positions, root=x, nb=x.nb)

    def _compress(self, y: Node, plan: _Plan, part: str, stored: tuple[Node, Node, Node], behind: str) -> None:
        """Write the rows of whole blocks, and keep what waits for the next; `behind`: whose row is put behind."""
        g, (cache, state, score) = self.g, stored
        kv, gate, ape, norm = (g.weight(self.layer, f"{part}_{name}.weight") for name in ("kv", "gate", "ape", "norm"))
        values, scores = g.mul_mat(kv, y), g.mul_mat(gate, y)
        scores = g.add(scores, g.get_rows(ape, plan.places))
        if behind:
            values, scores = (self.inputs.with_row(behind, values), self.inputs.with_row(f"{behind} scores", scores))
        every = g.concat(state, values, 1), g.concat(score, scores, 1)
        dim, n_blocks = cache.ne[0], plan.positions.ne[0]
        rows = g.norm(g.new("DS4_COMP", "f32", (dim, n_blocks), *every, plan.read), norm)
        rows = self._in_place(g.reshape(rows, dim, 1, n_blocks), plan.positions)
        if behind == "indexer":
            rows = g.apply("HADAMARD", rows)
        target = g.view(cache, (dim, cache.ne[1]))
        g.expand(g.set_rows(target, g.reshape(rows, dim, n_blocks), plan.write_at))
        g.expand(rows)
        kept = g.get_rows(values, plan.keep_from), g.get_rows(scores, plan.keep_from)
        g.expand(*(g.set_rows(to, of, plan.keep_at) for to, of in zip((state, score), kept, strict=True)))

    def _store(self, kv: Node) -> None:
        """The reserved graph stores one row."""
        g = self.g
        target = g.view(self.keys, (self.dim, self.keys.ne[1]))
        row = g.get_rows(g.view(kv, (self.dim, g.n_tokens), (kv.nb[2],)), self.inputs.from_row)
        g.expand(g.set_rows(target, row, self.inputs.to_row))

    def _window(self) -> tuple[Node, Node]:
        """Return the newest rows of the cache that a window of the batch reaches, and their mask."""
        g, n, row = self.g, self.g.n_tokens, self.keys.nb[1]
        rows = g.view(self.keys, (self.dim, 1, g.n_kv), (row, row))
        mask = self._padded(self._whole_mask())
        reached = rows_reached(g.model, n)
        if rows.ne[2] > reached:
            rows = g.view(rows, (self.dim, 1, reached, 1), rows.nb[1:])
            mask = g.view(mask, (reached, *mask.ne[1:]), mask.nb[1:])
        return rows, mask

    def _whole_mask(self) -> Node:
        g = self.g
        return g.cont(g.view(self.inputs.mask, (g.n_kv, g.n_tokens), (self.inputs.mask.nb[1],)))

    def _padded(self, mask: Node) -> Node:
        """Return the mask with rows for a multiple of what flash attention works on."""
        g = self.g
        rows = pad(mask.ne[1], g.spec.rules.mask_padding)
        if mask.ne[1] == rows:
            return mask
        more = g.new("NONE", mask.kind, (mask.ne[0], rows - mask.ne[1]))
        return g.concat(mask, g.new("FILL", mask.kind, more.ne, more), 1)

    def _with_compressed(self, q: Node, rows: Node, mask: Node, low: Node, y: Node) -> Node:
        g, plan = self.g, self.inputs.fine
        if plan.mask is None:
            raise MissingTensor("a mask of compressed rows")
        top, own = g.model.int_value("attention.indexer.top_k"), plan.mask
        if top < own.ne[0]:
            chosen = self._chosen(low, y, own, top)
            shown = g.view(own, own.ne[:2], own.nb[1:2])
            own = g.new("MASK_TOPK", own.kind, shown.ne, shown, chosen)
        cache = self.more[0]
        more = g.view(cache, (self.dim, 1, plan.mask.ne[0], 1), (cache.nb[1], cache.nb[1], cache.nb[1] * cache.ne[1]))
        own = self._padded(own) if g.spec.flash_attn else own
        if not g.spec.flash_attn:
            mask = self._whole_mask()
        every = g.concat(rows, more, 2)
        window = g.model.int_value("attention.sliding_window")
        return self._attend(q, every, g.concat(mask, own, 0), window + top)

    def _chosen(self, low: Node, y: Node, mask: Node, top: int) -> Node:
        """Return the rows that the indexer chooses, by its one operation that scores and sorts."""
        g, n, cache = self.g, self.g.n_tokens, self.more[1]
        dim = cache.ne[0]
        q = g.mul_mat(g.weight(self.layer, "indexer.attn_q_b.weight"), low)
        n_head = q.ne[0] // dim
        q = g.apply("HADAMARD", self._in_place(g.reshape(q, dim, n_head, n), g.positions))
        weights = g.apply("SCALE", g.mul_mat(g.weight(self.layer, "indexer.proj.weight"), y))
        keys = g.view(cache, (dim, 1, mask.ne[0], 1), (cache.nb[1], cache.nb[1], cache.nb[1] * cache.ne[1]))
        q = g.swap_heads(g.view(q, (*q.ne[:3], 1), q.nb[1:]))
        weights = g.view(weights, (weights.ne[0], n, 1, 1), weights.nb[1:])
        keys = g.swap_heads(keys)
        seen = g.view(mask, mask.ne[:2], mask.nb[1:2])
        k = g.view(keys, keys.ne[:2], keys.nb[1:2])
        q = g.swap_heads(g.view(q, q.ne[:3], q.nb[1:3]))
        chosen = g.new(
            "INDEXER_TOPK", "i32", (top, n), k, q, g.view(weights, weights.ne[:2], weights.nb[1:2]),
            g.view(seen, (seen.ne[0], n), seen.nb[1:2]),
        )  # fmt: skip
        chosen = g.new("CONT", "i32", chosen.ne, chosen)
        g.expand(chosen)
        return chosen

    def _attend(self, q: Node, rows: Node, mask: Node, n_shown: int) -> Node:
        g, n = self.g, self.g.n_tokens
        sinks = g.optional(self.layer, "attn_sinks.weight")
        q = g.swap_heads(g.view(q, (*q.ne[:3], 1), q.nb[1:]))
        k, v = g.swap_heads(rows), g.swap_heads(rows)
        if g.spec.flash_attn:
            selected = None
            if n_shown > 0 and pad(n_shown, 256) < mask.ne[0]:
                selected = g.new("MASK_TO_IDX", "i32", (pad(n_shown, 256), *mask.ne[1:]), mask)
                g.expand(selected)
            out = g.new("FLASH_ATTN_EXT", "f32", (self.dim, self.n_head, n), q, k, v, mask, sinks, selected)
            g.expand(out)
            return g.reshape(out, self.dim * self.n_head, n)
        scores = g.apply("SOFT_MAX", g.mul_mat(k, q), mask, sinks)
        out = g.mul_mat(g.cont(g.transpose(v)), scores)
        return g.cont(g.swap_heads(out), self.dim * self.n_head, n)

    def _projected(self, out: Node) -> Node:
        """Rotate back, and project by groups of heads, then all together."""
        g, n = self.g, self.g.n_tokens
        first, second = (g.weight(self.layer, f"attn_output_{part}.weight") for part in "ab")
        out = self._in_place(g.reshape(out, self.dim, self.n_head, n), g.positions, "ROPE_BACK")
        width = first.ne[0]
        n_groups = self.n_head * self.dim // width
        rank = second.ne[0] // n_groups
        out = g.swap_heads(g.reshape(out, width, n_groups, n))
        out = g.swap_heads(g.mul_mat(g.reshape(first, width, rank, n_groups), out))
        return g.mul_mat(second, g.cont(out, rank * n_groups, n))


ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = {"deepseek4": deepseek4}
