"""ik_llama.cpp's `-sm graph`: attention and feed-forward in parts, one a card, whose results the cards add up.

The sum (REDUCE) lies where its last part does, and every card goes on with its own part of it. What is not split (the
head, experts in RAM) runs as in other modes, on norms and routers of the main card.
Sources: ik src/llama-build-context.cpp:1077 (get_input_tensor_sm_graph), 1142 (llm_build_ffn),
1702 (llm_build_std_moe_ffn), 3137 (build_std_attention), src/graphs/build_minimaxm2.cpp:40.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from service.engine.engines.ik_llama_cpp.graphs.blocks import IkGraph
from service.engine.memory.graph import NONE, Node, Slot
from service.engine.memory.graphs.base import ROPE_FACTORS, Gating
from service.engine.memory.spec import CardShares, GraphSpec
from service.engine.model import Model

_MAIN = -1  # outside of the parts: the main card, or the first that has a share
_UNREDUCED_ROWS = 32  # from more rows on, parts are added up in the reduce type


class SplitGraph(IkGraph):
    """The blocks of ik's architectures on cards that share them. `card`: whose shares are read now, or `_MAIN`."""

    def __init__(self, model: Model, spec: GraphSpec, cards: CardShares) -> None:
        super().__init__(model, spec)
        self.cuts = {name: (axis, parts) for name, axis, parts in cards.cuts}
        self.head, self.main, self.reduce_type = cards.head, cards.main, cards.reduce_type
        self.card = _MAIN
        self.spent: frozenset[str] = frozenset()  # biases that a card before the current one has added
        self._shares: dict[Slot, Node] = {}
        self._card_caches: dict[tuple[int, int], tuple[Node, ...]] = {}

    def find(self, name: str) -> Node | None:
        """Return the current card's share of the weight `name`, the whole of one that is not shared, or None."""
        if name in self.spent:
            return None
        return super().find(name) if name not in self.cuts else self._share(Slot("weight", name, -1, self.card))

    def rope_factors(self, layer: int) -> Node | None:
        name = next((name for name in ROPE_FACTORS if name in self.cuts), None)
        return super().rope_factors(layer) if name is None else self._share(Slot("rope", name, layer, self.card))

    def _share(self, slot: Slot) -> Node | None:
        axis, parts = self.cuts[slot.name]
        if slot.card == _MAIN:
            slot = slot._replace(card=self._main_of(parts))
        if not parts[slot.card]:
            return None
        node = self._shares.get(slot)
        if node is None:
            tensor = self.model.by_name[slot.name]
            dims = [parts[slot.card] if i == axis else n for i, n in enumerate(tensor.dims)]
            node = self._shares[slot] = self.stored(slot, tensor.type, *dims)
        return node

    def _main_of(self, parts: Sequence[int]) -> int:
        return self.main if parts[self.main] else next(card for card, n in enumerate(parts) if n)

    def cache(self, layer: int) -> tuple[Node, ...]:
        if not self._is_split(layer, "attn_v.weight"):
            return super().cache(layer)
        found = self._card_caches.get((layer, self.card))
        if found is None:
            facts, slot = self.layer(layer), Slot("cache", "", layer, self.card)
            n_head = self.weight(layer, "attn_v.weight").ne[1] // facts.head_dim_v
            keys = self.stored(slot, self.spec.type_k, facts.head_dim_k, n_head * self.n_kv)
            values = self.stored(slot, self.spec.type_v, facts.head_dim_v * n_head * self.n_kv)
            found = self._card_caches[layer, self.card] = (keys, values)
        return found

    def _is_split(self, layer: int, part: str) -> bool:
        return f"blk.{layer}.{part}" in self.cuts

    def _on_each(self, layer: int, part: str) -> Iterator[int]:
        """Make each card that has a share of `part` the current one, and then the first one again."""
        for card, n in enumerate(self.cuts[f"blk.{layer}.{part}"][1]):
            if n:
                self.card = card
                yield card
        self.card = _MAIN

    def _input(self, x: Node) -> Node:
        """Return what the current card reads of `x`: its own part of a sum, to be filled in where it had none."""
        cards = self.reduced.get(x.index)
        if cards is None:
            return x
        at = bisect_left(cards, self.card)
        if at == len(cards) or cards[at] != self.card:
            cards.insert(at, self.card)
            x.src.insert(at, self.new(NONE, x.kind, x.ne))
            self.filled_in[x.src[at].index] = x.index
        return x if x.src[at] is x.root else x.src[at]

    def _to_reduce(self, x: Node) -> Node:
        x = self.cast(x, self.reduce_type) if x.ne[1] > _UNREDUCED_ROWS and self.reduce_type != "f32" else x
        self.expand(x)
        return x

    def _sum_of(self, parts: dict[int, Node], residual: Node | None = None) -> Node:
        """Add up the parts, the residual with the last card's."""
        if residual is not None:
            last = max(parts)
            parts[last] = self.add(parts[last], residual)
        node = self.reduce(parts)
        self.expand(node)
        return node

    def finish(self, x: Node, *, scale_before: bool = False, scale: bool = False, soft_cap: bool = False) -> None:
        """The card of the head reads its own part of the last sum (llama-build-context.cpp:2563)."""
        cards = self.reduced.get(x.index, [])
        if self.head in cards:
            x.root = x.src[cards.index(self.head)]
        super().finish(x, scale_before=scale_before, scale=scale, soft_cap=soft_cap)

    def standard_attention(
        self, layer: int, x: Node, mask: Node, factors: Node | None = None, *, sinks: Node | None = None,
        rope: bool = True, crop: bool = True, q_scale: Node | None = None,
    ) -> Node:  # fmt: skip
        """Each card attends with its heads; the last one adds the residual."""
        if not self._is_split(layer, "attn_q.weight"):
            return super().standard_attention(
                layer, x, mask, factors, sinks=sinks, rope=rope, crop=crop, q_scale=q_scale
            )
        ids = self.ids if crop and layer == self.n_layer - 1 else None
        parts: dict[int, Node] = {}
        for card in self._on_each(layer, "attn_q.weight"):
            y = self.normed(layer, "attn_norm", self._input(x))
            own = self.rope_factors(layer) if factors is not None else None
            q, k, v = self._own_heads(layer, y, own, rope=rope, q_scale=q_scale)
            parts[card] = self._attended(layer, y, (q, k, v), mask, ids, biased=not parts)
        residual = x if ids is None else self.get_rows(x, ids)
        return self._sum_of(parts, residual)

    def _own_heads(
        self, layer: int, y: Node, factors: Node | None, *, rope: bool, q_scale: Node | None
    ) -> tuple[Node, Node, Node]:  # fmt: skip
        q, k, v = self.query_key_value(layer, y)
        if self.scaled_values:
            v = self.apply("SCALE", v)
        self.expand(q, k)
        if rope:
            q, k = self.rope(q, factors), self.rope(k, factors)
            self.expand(q, k)
        if q_scale is not None:
            q = self.mul(q, q_scale)
        return q, k, v

    def _attended(
        self, layer: int, y: Node, qkv: tuple[Node, Node, Node], mask: Node, ids: Node | None, *, biased: bool
    ) -> Node:  # fmt: skip
        gate, sinks = (self.optional(layer, f"attn_{part}.weight") for part in ("gate", "sinks"))
        out = self.attend(layer, *qkv, mask, sinks, project=False, by_head=gate is not None)
        if gate is not None:
            out = self._gated_heads(layer, out, self.mul_mat(gate, y))
        if ids is not None:
            out = self.get_rows(out, ids)
        out = self.mul_mat(self.weight(layer, "attn_output.weight"), out)
        bias = self.optional(layer, "attn_output.bias")
        return self._to_reduce(out if bias is None or not biased else self.add(out, bias))

    def attention_normed_at_once(self, layer: int, x: Node, mask: Node) -> Node:
        """MiniMax: every card has all of Q and K, which are normed at once, and takes its heads; the first adds x."""
        if not self._is_split(layer, "attn_q.weight"):
            return super().attention_normed_at_once(layer, x, mask)
        parts: dict[int, Node] = {}
        for card in self._on_each(layer, "attn_v.weight"):
            own = self._input(x)
            q, k, v = self._own_of_all_heads(layer, self.normed(layer, "attn_norm", own))
            out = self.attend(layer, self.rope(q), self.rope(k), v, mask, project=False)
            (out,) = self.last_rows(layer, out)
            out = self.mul_mat(self.weight(layer, "attn_output.weight"), out)
            if not parts:
                out = self.add(out, *self.last_rows(layer, own))
            parts[card] = self._to_reduce(out)
        return self._sum_of(parts)

    def _own_of_all_heads(self, layer: int, y: Node) -> tuple[Node, Node, Node]:
        facts = self.layer(layer)
        q, k, v = (self.mul_mat(self.weight(layer, f"attn_{part}.weight"), y) for part in "qkv")
        self.expand(q, k, v)
        q, k = (self.norm(t, self.weight(layer, f"attn_{part}_norm.weight")) for part, t in (("q", q), ("k", k)))
        n_head_kv = v.ne[0] // facts.head_dim_v
        counts = (n_head_kv * facts.n_head // facts.n_head_kv, n_head_kv)
        q, k = (self.reshape(t, facts.head_dim_k, t.ne[0] // facts.head_dim_k, self.n_tokens) for t in (q, k))
        q, k = (
            self.view(t, (facts.head_dim_k, n, self.n_tokens), t.nb[1:3]) for t, n in zip((q, k), counts, strict=True)
        )
        return q, k, v

    def feed_forward(self, layer: int, x: Node, norm: Node | None = None, *, add_input: bool = False) -> Node:
        """Each card computes with its columns."""
        if not self._is_split(layer, "ffn_down.weight"):
            return super().feed_forward(layer, x, norm, add_input=add_input)
        name = None if norm is None else self.slots[norm.slot].name
        parts: dict[int, Node] = {}
        for card in self._on_each(layer, "ffn_down.weight"):
            own = self._input(x)
            y = own if name is None else self.norm(own, self.required(name))
            y = y if y.kind == "f32" else self.cast(y, "f32")
            if x.index not in self.reduced:
                self.starts.add(y.index)
            parts[card] = self._to_reduce(self._gated(layer, "", y))
        return self._sum_of(parts, x if add_input else None)

    def expert_layer(
        self, layer: int, x: Node, gating: Gating, *, norm_weights: bool, scale: bool = False, add_input: bool = True
    ) -> Node:  # fmt: skip
        """Each card computes its columns of every expert that a token chose; the choice is made on every card."""
        if not self._is_split(layer, "ffn_down_exps.weight"):
            return self._whole_experts(layer, x, gating, norm_weights=norm_weights, scale=scale, add_input=add_input)
        parts: dict[int, Node] = {}
        for card in self._on_each(layer, "ffn_down_exps.weight"):
            y = self.normed_for_experts(layer, self._input(x))
            self.spent = frozenset({f"blk.{layer}.ffn_down_exps.bias"} if parts else ())
            self.starts.add(y.index)
            out = self.routed_experts(layer, y, gating, norm_weights=norm_weights, scale=scale)
            if self.optional(layer, "ffn_up_shexp.weight") is not None:
                out = self.add(out, self.gated_shared_expert(layer, y))
            parts[card] = self._to_reduce(out)
        return self._sum_of(parts, x if add_input else None)

    def _whole_experts(
        self, layer: int, x: Node, gating: Gating, *, norm_weights: bool, scale: bool, add_input: bool
    ) -> Node:  # fmt: skip
        """Experts in RAM, with the main card's norm and router; the shared expert may still be split."""
        if not self._is_split(layer, "ffn_down_shexp.weight"):
            return super().expert_layer(layer, x, gating, norm_weights=norm_weights, scale=scale, add_input=add_input)
        y = self.normed_for_experts(layer, x)
        routed = self.routed_experts(layer, y, gating, norm_weights=norm_weights, scale=scale)
        routed = self.add(routed, x) if add_input else routed
        self.expand(routed)
        parts: dict[int, Node] = {}
        main = self._main_of(self.cuts[f"blk.{layer}.ffn_down_shexp.weight"][1])
        for card in self._on_each(layer, "ffn_down_shexp.weight"):
            out = self.gated_shared_expert(layer, self.normed_for_experts(layer, x))
            parts[card] = self._to_reduce(self.add(out, routed) if card == main else out)
        return self._sum_of(parts)
