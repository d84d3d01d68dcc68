"""The feed-forward layers of llama.cpp's graphs: dense, routed experts, shared experts.

Source: llama.cpp src/llama-graph.cpp (build_ffn, build_moe_ffn).
"""

from __future__ import annotations

from service.engine.memory.graph import Node
from service.engine.memory.graphs.base import Gating, MissingTensor, ModelGraph


class FeedForward(ModelGraph):
    """What follows attention in a layer."""

    situ = False  # whether gate and up are squashed before they meet
    squared = True  # whether what has no gate goes through ReLU squared, or through GELU

    def feed_forward(self, layer: int, x: Node, suffix: str = "", *, limit: bool = False) -> Node:
        """The dense layer, or the shared expert with the suffix `_shexp`: gated, gate and up in one, or without a gate.

        `limit`: up and gate are cut off at a largest value before they meet.
        """
        up = self.product(layer, f"ffn_up{suffix}", x)
        down = self.weight(layer, f"ffn_down{suffix}.weight")
        if self.optional(layer, f"ffn_gate{suffix}.weight") is not None:
            y = self._gated(self.product(layer, f"ffn_gate{suffix}", x), up, limit=limit)
        elif up.ne[0] == 2 * down.ne[0]:
            y = self.new("GLU", up.kind, (down.ne[0], up.ne[1]), up)
        else:
            y = self.apply("UNARY", up)
            y = self.apply("SQR", y) if self.squared else y
        return self.product(layer, f"ffn_down{suffix}", y)

    def _gated(self, gate: Node, up: Node, *, limit: bool = False) -> Node:
        if self.situ:
            opened = self.apply("UNARY", gate)
            return self.mul(self.mul(self.squash(gate), opened), self.squash(up))
        if not limit:
            return self.new("GLU", gate.kind, gate.ne, gate, up)
        up = self.apply("CLAMP", up)
        return self.mul(self.apply("CLAMP", self.apply("UNARY", gate)), up)

    def squash(self, x: Node) -> Node:
        """Scale, tanh, scale back."""
        return self.apply("SCALE", self.apply("UNARY", self.apply("SCALE", x)))

    def expert_layer(
        self, layer: int, x: Node, gating: Gating, *, norm_weights: bool, scale: bool, weight_before: bool = False
    ) -> Node:
        """Routed experts, and the shared expert if there is one. Both may be limited, by keys that list all layers."""
        limit = self.limited("swiglu_clamp_exp", layer)
        out = self.routed_experts(layer, x, gating, norm_weights, scale, weight_before, limit=limit)
        if self.optional(layer, "ffn_up_shexp.weight") is None:
            return out
        shared = self.feed_forward(layer, x, "_shexp", limit=self.limited("swiglu_clamp_shexp", layer))
        router = self.optional(layer, "ffn_gate_inp_shexp.weight")
        if router is not None:
            opened = self.apply("UNARY", self.new("MUL_MAT", "f32", (1, x.ne[1]), router, x))
            shared = self.mul(shared, opened)
        return self.add(out, shared)

    def routed_experts(
        self, layer: int, x: Node, gating: Gating, norm_weights: bool, scale: bool, weight_before: bool = False, *,
        limit: bool = False, logits: Node | None = None, experts: Node | None = None,
    ) -> Node:  # fmt: skip
        """Router, the chosen experts and their weighted sum. `weight_before`: inputs are weighted, not outputs.

        `logits`: the router's, where they are not made of x. `experts`: those of each token, where none are chosen.
        """
        if logits is None:
            logits = self.mul_mat(self.weight(layer, "ffn_gate_inp.weight"), x)
        ids, weights = self._route(layer, logits, gating, norm_weights, scale, from_logits=weight_before, ids=experts)
        n_embd, n_tokens, used = x.ne[0], x.ne[1], ids.ne[0]
        x = self.reshape(x, n_embd, 1, n_tokens)
        if weight_before:
            x = self.mul(self.new("REPEAT", "f32", (n_embd, used, n_tokens), x), weights)
        out = self._expert_product(layer, "down", self._up_gate(layer, x, ids, limit=limit), ids)
        if not weight_before:
            out = self.mul(out, weights)
        self.expand(out)
        return self._sum_of_experts(out, used)

    def _sum_of_experts(self, x: Node, used: int) -> Node:
        parts = []
        for _ in range(used):
            parts.append(self.view(x, (x.ne[0], x.ne[2]), (x.nb[2],)))
            self.expand(parts[-1])
        total = parts[0]
        for part in parts[1:]:
            total = self.add(total, part)
            self.expand(total)
        return self.cont(total) if used == 1 else total

    def _expert_product(self, layer: int, part: str, x: Node, ids: Node) -> Node:
        product = self.mul_mat_id(self.weight(layer, f"ffn_{part}_exps.weight"), x, ids)
        scale = self.optional(layer, f"ffn_{part}_exps.scale")
        if scale is not None:
            n_expert = scale.ne[0]
            spread = self.new("REPEAT", "f32", (1, n_expert, x.ne[2]), self.reshape(scale, 1, n_expert, 1))
            product = self.mul(product, self.new("GET_ROWS", "f32", (1, ids.ne[0], x.ne[2]), spread, ids))
        bias = self.optional(layer, f"ffn_{part}_exps.bias")
        return product if bias is None else self.new("ADD_ID", "f32", product.ne, product, bias, ids)

    def _up_gate(self, layer: int, x: Node, ids: Node, *, limit: bool) -> Node:
        if self.optional(layer, "ffn_gate_up_exps.weight") is not None:
            both = self._expert_product(layer, "gate_up", x, ids)
            half = (both.ne[0] // 2, both.ne[1], both.ne[2])
            gate, up = self.view(both, half, both.nb[1:3]), self.view(both, half, both.nb[1:3])
            return self.new("GLU", "f32", half, gate, up)
        up = self._expert_product(layer, "up", x, ids)
        if self.optional(layer, "ffn_gate_exps.weight") is None:
            return self.apply("SQR", self.apply("UNARY", up))
        return self._gated(self._expert_product(layer, "gate", x, ids), up, limit=limit)

    def _largest(self, x: Node, n: int) -> Node:
        """Return where the `n` largest of each row are."""
        order = self.new("ARGSORT", "i32", x.ne, x)
        return self.view(order, (n, *x.ne[1:]), order.nb[1:])

    def _of_best_groups(self, chances: Node) -> Node:
        """Return the experts' chances, hidden but in the groups whose best two together have the best."""
        (n_expert, n_tokens), n_groups = chances.ne[:2], self.model.int_value("expert_group_count")
        n_used, size = self.model.int_value("expert_group_used_count"), n_expert // n_groups
        if not 0 < n_used < n_groups or n_expert % n_groups or size < 2:
            raise MissingTensor("groups of experts")
        groups = self.reshape(chances, size, n_groups, n_tokens)
        best = self._largest(groups, 2)
        scores = self.get_rows(self.reshape(groups, 1, size, n_groups, n_tokens), best)
        scores = self.new("SUM_ROWS", "f32", (1, n_groups, n_tokens), self.reshape(scores, 2, n_groups, n_tokens))
        used = self._largest(self.reshape(scores, n_groups, n_tokens), n_used)
        shown = self.get_rows(groups, used)
        hidden = self.new("FILL", "f32", groups.ne, groups)
        return self.reshape(self.set_rows(hidden, shown, used), n_expert, n_tokens)

    def _route(
        self, layer: int, logits: Node, gating: Gating, norm_weights: bool, scale: bool, *, from_logits: bool,
        ids: Node | None = None,
    ) -> tuple[Node, Node]:  # fmt: skip
        """Return the chosen experts' ids [used, tokens] and weights [1, used, tokens]."""
        chances = self.chances(layer, logits, gating)
        if gating == "softplus":
            chances = self.apply("SQRT", chances)
        correction = self.optional(layer, "exp_probs_b.bias") or self.optional(layer, "exp_probs_b")  # Hy3
        chosen = logits if from_logits else chances if correction is None else self.add(chances, correction)
        if self.model.int_value("expert_group_count") > 1:
            chosen = self._of_best_groups(chosen)
        ids = self._largest(chosen, self.n_expert_used) if ids is None else ids
        return ids, self.expert_weights(chances, ids, gating, norm=norm_weights, scale=scale)
