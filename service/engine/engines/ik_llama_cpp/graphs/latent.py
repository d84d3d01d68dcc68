"""ik_llama.cpp: multi-head latent attention (DeepSeek V2 to R1, Kimi K2, Mistral 4) in the modes of `-mla`.

Source: ik src/graphs/build_deepseek2.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.ik_llama_cpp.graphs.blocks import IkGraph
from service.engine.memory.graph import Node, Slot, geometry, joined_type, row_size
from service.engine.memory.graphs.base import MissingTensor
from service.engine.units import MIB

_PROMPT_TOKENS = 128  # from this batch on, modes 2 and 3 expand the latent cache to keys and values


def deepseek2(g: IkGraph) -> None:
    """deepseek2: latent attention, dense layers first, then experts and a shared one."""
    x, mask = g.begin(), g.mask()
    for i in g.layers():
        x = g.shared_before_residual(i, g.with_residual(i, LatentAttention(g, i).build(x, mask), x))
    g.finish(x)


def glm_dsa(g: IkGraph) -> None:
    """glm-dsa: as deepseek2, for the rows that the indexer would choose are only attended to with `--dsa`."""
    if g.spec.sparse:
        raise MissingTensor("a description of --dsa")
    g.hidden = "raw" if g.spec.next_tokens else ""
    deepseek2(g)


def _halved(n_head: int, size: int, limit: int) -> int:
    while n_head % 2 == 0 and size > limit:
        n_head, size = n_head // 2, size // 2
    return n_head


class LatentAttention:
    """One layer's attention: latent rows go to the cache, and come back expanded or absorbed into Q."""

    def __init__(self, g: IkGraph, layer: int) -> None:
        if g.model.mla is None:
            raise MissingTensor("a latent cache")
        self.g, self.layer, self.mla = g, layer, g.model.mla
        self.n_head = g.layer(layer).n_head
        self.keys = g.cache(layer)[0]
        self.row = row_size(self.keys.kind, self.mla.kv_lora_rank + self.mla.rope) if g.spec.mla else 0
        self.prompt = g.n_tokens >= _PROMPT_TOKENS and g.spec.mla > 1

    def build(self, x: Node, mask: Node) -> Node:
        """Return what the layer adds to x: projections, cache, attention over the latent, and the output."""
        g, m = self.g, self.mla
        y = g.normed(self.layer, "attn_norm", x)
        q, latent = self._projections(y)
        q_nope, q_rope, k_rope, compressed = self._parts(q, latent)
        g.expand(q_rope, k_rope)
        q_rope, k_rope = g.rope(q_rope), g.rope(k_rope)
        g.expand(q_rope, k_rope)
        compressed = g.normed(self.layer, "attn_kv_a_norm", compressed)
        if not g.spec.mla:
            return self._plain(q_nope, q_rope, k_rope, compressed, mask)
        transposed = self._store_transposed(compressed) if g.spec.mla == 1 and not g.spec.flash_attn else None
        rows = g.concat(g.swap_heads(k_rope), compressed, 0)
        g.expand(g.copy_into(rows, g.view(self.keys, (m.kv_lora_rank + m.rope, g.n_tokens), (self.row,))))
        if self.prompt and g.spec.flash_attn:
            out = self._expanded(q_nope, q_rope, mask)
        else:
            out = self._absorbed(q_nope, q_rope, mask, transposed)
        out = self._gated(out, y)
        g.expand(out)
        return g.mul_mat(g.weight(self.layer, "attn_output.weight"), out)

    def _projections(self, y: Node) -> tuple[Node, Node]:
        g, layer = self.g, self.layer
        merged = g.optional(layer, "attn_qk_a_mqa.weight")
        if merged is not None:
            return self._merged_projections(g.mul_mat(merged, y))
        low_rank = g.optional(layer, "attn_q_a.weight")
        q = g.mul_mat(low_rank if low_rank is not None else g.weight(layer, "attn_q.weight"), y)
        latent = g.mul_mat(g.weight(layer, "attn_kv_a_mqa.weight"), y)
        g.expand(q, latent)
        if low_rank is not None:
            q = g.mul_mat(g.weight(layer, "attn_q_b.weight"), g.normed(layer, "attn_q_a_norm", q))
        return q, latent

    def _merged_projections(self, both: Node) -> tuple[Node, Node]:
        """`-mqkv`: the first matrix of Q and the latent rows are one product."""
        g, m, n = self.g, self.mla, self.g.n_tokens
        n_latent = m.kv_lora_rank + m.rope
        q = g.view(both, (both.ne[0] - n_latent, n), (both.nb[1],))
        if g.optional(self.layer, "attn_q_b.weight") is not None:
            q = g.normed(self.layer, "attn_q_a_norm", q)
            q = g.mul_mat(g.weight(self.layer, "attn_q_b.weight"), q)
        return q, g.view(both, (n_latent, n), (both.nb[1],))

    def _gated(self, out: Node, y: Node) -> Node:
        """Multiply with a gate for each head, where the layer has them (build_mla_output_gate)."""
        g, m, n = self.g, self.mla, self.g.n_tokens
        gates = g.optional(self.layer, "attn_gate.weight")
        if gates is None:
            return out
        each, heads = g.reshape(g.mul_mat(gates, y), 1, self.n_head, n), g.reshape(out, m.value, self.n_head, n)
        return g.reshape(g.new("FUSED_MUL_UNARY", "f32", heads.ne, each, heads), m.value * self.n_head, n)

    def _parts(self, q: Node, latent: Node) -> tuple[Node, Node, Node, Node]:
        g, m, n = self.g, self.mla, self.g.n_tokens
        head = 4 * (m.nope + m.rope)
        return (
            g.view(q, (m.nope, self.n_head, n), (head, q.nb[1])),
            g.view(q, (m.rope, self.n_head, n), (head, q.nb[1])),
            g.view(latent, (m.rope, 1, n), (latent.nb[1], latent.nb[1])),
            g.view(latent, (m.kv_lora_rank, n), (latent.nb[1],)),
        )

    def _store_transposed(self, compressed: Node) -> Node:
        g, rank = self.g, self.mla.kv_lora_rank
        values = g.cache(self.layer)[1]
        column = geometry(values.kind)[1] * g.n_kv
        g.expand(g.copy_into(g.transpose(compressed), g.view(values, (g.n_tokens, rank), (column,))))
        return g.view(values, (g.n_kv, rank), (column,))

    def _plain(self, q_nope: Node, q_rope: Node, k_rope: Node, compressed: Node, mask: Node) -> Node:
        """`-mla 0`: keys and values of all heads go to a cache like any other model's."""
        g, m, n = self.g, self.mla, self.g.n_tokens
        both = g.mul_mat(self._kv_b(), compressed)
        head = 4 * (m.nope + m.value)
        k_nope = g.view(both, (m.nope, self.n_head, n), (head, head * self.n_head))
        v = g.cont(g.view(both, (m.value, self.n_head, n), (head, head * self.n_head)))
        v = g.view(v, (m.value * self.n_head, n))
        q = g.concat(q_nope, q_rope, 0)
        k = g.concat(k_nope, g.new("REPEAT", "f32", q_rope.ne, k_rope), 0)
        return g.attend(self.layer, q, k, v, mask)

    def _heads_at_once(self, expansion: Node) -> int:
        size, limit, n_head = expansion.ne[1] * self.g.n_kv * 4 // MIB, self.g.spec.attn_max_batch, self.n_head
        if limit <= 0 or size <= limit:
            return n_head
        if self.g.spec.rules.halved_heads:
            return _halved(n_head, size, limit)
        return next((n_head // i for i in range(2, n_head) if n_head % i == 0 and size // i <= limit), 1)

    def _expanded(self, q_nope: Node, q_rope: Node, mask: Node) -> Node:
        g, m, n_kv = self.g, self.mla, self.g.n_kv
        expansion = self._kv_b()
        heads = self._heads_at_once(expansion)
        latent = g.view(self.keys, (m.kv_lora_rank, n_kv), (self.row,))
        rope_rows = g.view(self.keys, (m.rope, n_kv, 1), self.keys.nb[1:3])
        kind = self.keys.kind if g.spec.cpu_only else "f16"
        if self.keys.kind != kind:
            rope_rows = g.cast(rope_rows, kind)
        rope_rows = g.new("REPEAT", kind, (m.rope, n_kv, heads), rope_rows)
        q = g.swap_heads(g.concat(q_rope, q_nope, 0))
        g.expand(q)
        joined = self._chunk(q, expansion, latent, rope_rows, mask, heads)
        if not g.spec.rules.chunks_at_once:
            g.expand(joined)
        for _ in range(self.n_head // heads - 1):
            joined = g.concat(joined, self._chunk(q, expansion, latent, rope_rows, mask, heads), 0)
            if not g.spec.rules.chunks_at_once:
                g.expand(joined)
        return joined

    def _chunk(self, q: Node, expansion: Node, latent: Node, rope_rows: Node, mask: Node, heads: int) -> Node:
        g, m, n_kv = self.g, self.mla, self.g.n_kv
        per_head = expansion.ne[1] // self.n_head
        part = g.view(expansion, (expansion.ne[0], per_head * heads), (expansion.nb[1],))
        both = g.mul_mat(part, latent)
        strides = (4 * heads * (m.nope + m.value), 4 * (m.nope + m.value))
        v = g.cast(g.view(both, (m.value, n_kv, heads), strides), rope_rows.kind)
        k_nope = g.cast(g.view(both, (m.nope, n_kv, heads), strides), rope_rows.kind)
        g.expand(k_nope, v)
        k = g.concat(rope_rows, k_nope, 0)
        g.expand(k)
        query = g.view(q, (q.ne[0], q.ne[1], heads), (q.nb[1], q.nb[2]))
        out = g.new("FLASH_ATTN_EXT", "f32", (m.value, heads, g.n_tokens), query, k, v, mask)
        return g.reshape(out, m.value * heads, g.n_tokens)

    def _kv_b(self) -> Node:
        """Return attn_kv_b, or the copy that the engine makes of attn_k_b and attn_v_b when it loads the model."""
        g, m = self.g, self.mla
        stored = g.optional(self.layer, "attn_kv_b.weight")
        if stored is not None:
            return stored
        k_b, v_b = (g.weight(self.layer, f"attn_{part}.weight") for part in ("k_b", "v_b"))
        slot = Slot("derived", f"blk.{self.layer}.attn_k_b.weight", self.layer)
        n_rows = self.n_head * (m.nope + m.value)
        return g.stored(slot, joined_type(k_b.kind, v_b.kind), m.kv_lora_rank, n_rows)

    def _absorbed(self, q_nope: Node, q_rope: Node, mask: Node, transposed: Node | None) -> Node:
        g, m, n_kv = self.g, self.mla, self.g.n_kv
        k_b, v_b = (g.weight(self.layer, f"attn_{part}.weight") for part in ("k_b", "v_b"))
        if k_b.ne[1] != m.kv_lora_rank:  # the older, two-dimensional layout
            k_b = g.reshape(k_b, m.nope, m.kv_lora_rank, self.n_head)
        latent_q = g.mul_mat(k_b, g.swap_heads(q_nope))
        q = g.concat(g.swap_heads(q_rope), latent_q, 0)
        rows = g.view(self.keys, (m.kv_lora_rank + m.rope, n_kv), (self.row,))
        if g.spec.flash_attn and g.spec.mla in (1, 3):
            values = g.view(self.keys, (m.kv_lora_rank, n_kv), (self.row,))
            out = g.new("FLASH_ATTN_EXT", "f32", (m.kv_lora_rank, self.n_head, g.n_tokens), q, rows, values, mask)
            out = g.swap_heads(out)
        else:
            if transposed is None:
                transposed = g.cont(g.transpose(g.view(self.keys, (m.kv_lora_rank, n_kv), (self.row,))))
            out = self._soft_max(q, rows, transposed, mask)
        if v_b.ne[1] != m.value:
            v_b = g.reshape(v_b, m.kv_lora_rank, m.value, self.n_head)
        out = g.cont(g.swap_heads(g.mul_mat(v_b, out)))
        return g.reshape(out, m.value * self.n_head, g.n_tokens)

    def _soft_max(self, q: Node, rows: Node, transposed: Node, mask: Node) -> Node:
        g, n_head = self.g, self.n_head
        size, limit = g.n_kv * g.n_tokens * n_head * 4 // MIB, g.spec.attn_max_batch
        if limit <= 0 or limit >= size:
            return self._soft_max_at_once(q, rows, transposed, mask)
        steps = min(-(-size // limit), n_head)
        per_step = -(-n_head // steps)
        joined = self._some_heads(q, rows, transposed, mask, per_step)
        g.expand(joined)
        for head in range(per_step, n_head, per_step):
            part = self._some_heads(q, rows, transposed, mask, min(per_step, n_head - head))
            joined = g.concat(joined, part, 2)
            g.expand(joined)
        return joined

    def _some_heads(self, q: Node, rows: Node, transposed: Node, mask: Node, heads: int) -> Node:
        g = self.g
        query = g.view(q, (q.ne[0], g.n_tokens, heads), (q.nb[1], q.nb[2]))
        return g.mul_mat(transposed, g.apply("SOFT_MAX", g.mul_mat(rows, query), mask))

    def _soft_max_at_once(self, q: Node, rows: Node, transposed: Node, mask: Node) -> Node:
        g = self.g
        if self.prompt:
            return g.mul_mat(transposed, g.apply("SOFT_MAX", g.mul_mat(rows, q), mask))
        scores = g.cont(g.swap_heads(g.mul_mat(rows, g.swap_heads(q))))
        scores = g.swap_heads(g.apply("SOFT_MAX", scores, mask))
        return g.swap_heads(g.mul_mat(transposed, scores))


ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = {
    "deepseek2": deepseek2,
    "mistral4": deepseek2,
    "glm-dsa": glm_dsa,
}
