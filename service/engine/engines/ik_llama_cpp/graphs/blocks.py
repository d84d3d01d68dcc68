"""Building blocks of ik_llama.cpp's graphs: norms, attention on the cache, feed-forward layers, routed experts.

Source: ik src/llama-build-context.cpp (llm_build_*, build_std_attention, llm_build_std_moe_ffn).
"""

from __future__ import annotations

from service.engine.ggml_types import type_named
from service.engine.memory.cache import cache_owner, heads
from service.engine.memory.graph import Node, geometry, row_size
from service.engine.memory.graphs.base import Gating, ModelGraph
from service.engine.run.weights import can_fuse
from service.engine.units import MIB, pad


class IkGraph(ModelGraph):
    """The blocks that ik's architectures are built from."""

    soft_cap = False  # whether scores are squashed on their way into the soft max
    caps_scores = False  # whether they are before it, by an operation of its own
    mean_norm = False  # whether norms take off the mean: LayerNorm, two operations

    def begin(self, n_axes: int = 1) -> Node:
        """Return the embedded tokens [n_embd, n_tokens]; `n_axes`: positions a token, 4 for M-RoPE."""
        self.tokens = self.input("i32", self.n_tokens)
        self.ids = self.input("i32", self.spec.n_outputs)
        self.positions = self.input("i32", self.n_tokens * n_axes)
        return self.get_rows(self.required("token_embd.weight"), self.tokens)

    def finish(self, x: Node, *, scale_before: bool = False, scale: bool = False, soft_cap: bool = False) -> None:
        """Add the output norm and the logits; `scale_before` the head, or behind it, and squashed."""
        x = self.norm(x, self.required("output_norm.weight"))
        x = self.mul_mat(self.output_head(), self.apply("SCALE", x) if scale_before else x)
        x = self.apply("SCALE", x) if scale else x
        self.expand(self.apply("SOFTCAP", x) if soft_cap else x)

    def mask(self) -> Node:
        """Return the input that says which tokens a token attends to: [n_kv, n_tokens], padded."""
        return self.mask_input(self.n_kv, pad(self.n_tokens, self.spec.rules.mask_padding))

    def norm(self, x: Node, weight: Node | None) -> Node:
        """FUSED_RMS_NORM is never in place."""
        if self.mean_norm and weight is not None:
            return self.mul(self.apply("NORM", x), weight)
        return self.apply("RMS_NORM", x) if weight is None else self.apply("FUSED_RMS_NORM", x, weight)

    def normed(self, layer: int, part: str, x: Node) -> Node:
        """Return x after the norm `blk.<layer>.<part>`. Raises MissingTensor."""
        return self.norm(x, self.weight(layer, f"{part}.weight"))

    def query_key_value(self, layer: int, x: Node) -> tuple[Node, Node, Node]:
        """Return Q and K split into heads and normed where the model has norms, and V, after their biases."""
        if self.optional(layer, "attn_qkv.weight") is not None or self.optional(layer, "attn_qk.weight") is not None:
            return self._merged_query_key_value(layer, x)
        q, k, v = (self.mul_mat(self.weight(layer, f"attn_{part}.weight"), x) for part in "qkv")
        self.expand(q, k, v)
        if self.optional(layer, "attn_q.bias") is not None:
            q, k, v = (
                self._with_bias(node, self.weight(layer, f"attn_{part}.bias"))
                for part, node in (("q", q), ("k", k), ("v", v))
            )
        facts = self.layer(layer)
        q, k = (self.reshape(t, facts.head_dim_k, t.ne[0] // facts.head_dim_k, self.n_tokens) for t in (q, k))
        q_norm, k_norm = (self.optional(layer, f"attn_{part}_norm.weight") for part in "qk")
        return q if q_norm is None else self.norm(q, q_norm), k if k_norm is None else self.norm(k, k_norm), v

    def products(self, layer: int, x: Node) -> tuple[Node, Node, Node]:
        """Return Q and K split into heads, and V, with their biases, expanded only where they are used."""
        la, (q, k, v) = self.layer(layer), (self.product(layer, f"attn_{part}", x) for part in "qkv")
        q = self.reshape(q, la.head_dim_k, la.n_head, self.n_tokens)
        return q, self.reshape(k, la.head_dim_k, la.n_head_kv, self.n_tokens), v

    def _merged_query_key_value(self, layer: int, x: Node) -> tuple[Node, Node, Node]:
        """Q, K and V as views of one product, of a file or by `-mqkv`, which leaves V out if its type is another."""
        facts, n = self.layer(layer), self.n_tokens
        whole = self.optional(layer, "attn_qkv.weight")
        both = self.product(layer, "attn_qk" if whole is None else "attn_qkv", x)
        if whole is None:
            v = self.product(layer, "attn_v", x)
            self.expand(both, v)
        row = 4 * facts.head_dim_k
        q = self.view(both, (facts.head_dim_k, facts.n_head, n), (row, both.nb[1]))
        k = self.view(both, (facts.head_dim_k, facts.n_head_kv, n), (row, both.nb[1]))
        if whole is not None:
            v = self.view(both, (facts.head_dim_v * facts.n_head_kv, n), (both.nb[1],))
        q_norm, k_norm = (self.optional(layer, f"attn_{part}_norm.weight") for part in "qk")
        if q_norm is not None:
            q = self.norm(q, q_norm)
            self.expand(q)
        if k_norm is not None:
            k = self.norm(k, k_norm)
            self.expand(k)
        return q, k, v

    def _with_bias(self, x: Node, bias: Node) -> Node:
        x = self.add(x, bias)
        self.expand(x)
        return x

    def attend(
        self, layer: int, q: Node, k: Node | None, v: Node | None, mask: Node, sinks: Node | None = None, *,
        project: bool = True, transpose_v: bool = True, by_head: bool = False,
    ) -> Node:  # fmt: skip
        """Store K and V, attend over the whole cache, and project; `transpose_v` is for caches without FA.

        `by_head`: leave what flash attention returns as it is, not expanded. K and V are None where another layer's
        cache is read.
        """
        self.expand(*(t for t in (q, k, v) if t is not None))
        transpose_v = transpose_v and not self.spec.flash_attn
        if k is not None and v is not None:
            self._store(layer, k, v, transpose_v)
        x = self._attention(layer, q, mask, sinks, transpose_v, by_head=by_head)
        return self.product(layer, "attn_output", x) if project else x

    def _store(self, layer: int, k: Node, v: Node, transpose_v: bool) -> None:
        keys, values = self.cache(layer)
        n_k, n_v = (t.ne[0] * t.ne[1] * t.ne[2] for t in (k, v))
        self.expand(self.copy_into(k, self.view(keys, (keys.ne[0], n_k // keys.ne[0]))))
        if not transpose_v:
            self.expand(self.copy_into(v, self.view(values, (n_v,))))
            return
        n = self.n_tokens
        rows = self.view(values, (n, n_v // n), (geometry(values.kind)[1] * self.n_kv,))
        self.expand(self.copy_into(self.transpose(v), rows))

    def _attention(
        self, layer: int, q: Node, mask: Node, sinks: Node | None, transpose_v: bool, *, by_head: bool
    ) -> Node:  # fmt: skip
        keys, values = self.cache(cache_owner(self.model, self.layer(layer)))
        n_kv = self.n_kv
        _, dim_k, dim_v = heads(self.model, self.layer(layer))
        n_head, n_head_kv = q.ne[1], keys.ne[1] // n_kv
        q = self.swap_heads(q)
        row = row_size(keys.kind, dim_k)
        k = self.view(keys, (dim_k, n_kv, n_head_kv), (row * n_head_kv, row))
        v_rows = (row_size(values.kind, dim_v * n_head_kv), row_size(values.kind, dim_v))
        if self.spec.flash_attn:
            v = self.view(values, (dim_v, n_kv, n_head_kv), v_rows)
            x = self.new("FLASH_ATTN_EXT", "f32", (dim_v, n_head, self.n_tokens), q, k, v, mask, sinks)
            x = x if by_head else self.reshape(x, dim_v * n_head, self.n_tokens)
        else:
            if transpose_v:
                size = geometry(values.kind)[1]
                v = self.view(values, (n_kv, dim_v, n_head_kv), (size * n_kv, size * n_kv * dim_v))
            else:
                v = self.cont(self.transpose(self.view(values, (dim_v, n_kv, n_head_kv), v_rows)))
            one_by_one = n_head == n_head_kv and sinks is None
            by_head = one_by_one and 0 < self.spec.attn_max_batch < self.n_kv * self.n_tokens * n_head * 4 // MIB
            x = self._by_head(k, q, v, mask) if by_head else self._at_once(k, q, v, mask, sinks)
            x = self.cont(self.swap_heads(x), dim_v * n_head, self.n_tokens)
            self.ram_pins.append(x.index)  # llama-build-context.cpp:2699
        if not by_head:
            self.expand(x)
        return x

    def _at_once(self, k: Node, q: Node, v: Node, mask: Node, sinks: Node | None) -> Node:
        return self.mul_mat(v, self._soft_max(self.mul_mat(k, q), mask, sinks))

    def _soft_max(self, scores: Node, mask: Node, sinks: Node | None = None) -> Node:
        if self.soft_cap:
            return self.apply("SOFT_CAP_MAX", scores, mask)
        scores = self.apply("SOFTCAP", scores) if self.caps_scores else scores
        return self.apply("SOFT_MAX", scores, mask, sinks)

    def _by_head(self, k: Node, q: Node, v: Node, mask: Node) -> Node:
        """`-amb` smaller than all scores: head by head."""
        joined = self._one_head(k, q, v, mask)
        for _ in range(q.ne[2] - 1):
            joined = self.concat(joined, self._one_head(k, q, v, mask), 2)
        return joined

    def _one_head(self, k: Node, q: Node, v: Node, mask: Node) -> Node:
        key = self.view(k, (k.ne[0], k.ne[1], 1), (k.nb[1], k.nb[2]))
        query = self.view(q, (q.ne[0], q.ne[1], 1), (q.nb[1], q.nb[2]))
        scores = self._soft_max(self.mul_mat(key, query), mask)
        return self.mul_mat(self.view(v, (v.ne[0], v.ne[1], 1), (v.nb[1], v.nb[2])), scores)

    def standard_attention(
        self, layer: int, x: Node, mask: Node, factors: Node | None = None, *, sinks: Node | None = None,
        rope: bool = True, crop: bool = True, q_scale: Node | None = None,
    ) -> Node:  # fmt: skip
        """Norm, attention and the residual; in the last layer only the wanted rows, unless not to be cropped yet.

        `q_scale`: what queries are multiplied with.
        """
        normed = self.normed(layer, "attn_norm", x)
        q, k, v = self.query_key_value(layer, normed)
        if self.scaled_values:
            v = self.apply("SCALE", v)
        if rope:
            q, k = self.rope(q, factors), self.rope(k, factors)
        if q_scale is not None:
            q = self.mul(q, q_scale)
        gate = self.optional(layer, "attn_gate.weight")
        out = self.attend(layer, q, k, v, mask, sinks, project=gate is None)
        if gate is not None:
            out = self._gated_heads(layer, out, self.mul_mat(gate, normed))
            out = self.mul_mat(self.weight(layer, "attn_output.weight"), out)
        return self.with_residual(layer, out, x) if crop else self.add(out, x)

    def attention_normed_at_once(self, layer: int, x: Node, mask: Node) -> Node:
        """MiniMax: Q and K are normed over all heads at once, before they are split into heads."""
        facts, y = self.layer(layer), self.normed(layer, "attn_norm", x)
        q, k, v = (self.mul_mat(self.weight(layer, f"attn_{part}.weight"), y) for part in "qkv")
        q, k = (self.norm(t, self.weight(layer, f"attn_{part}_norm.weight")) for part, t in (("q", q), ("k", k)))
        q = self.reshape(q, facts.head_dim_k, facts.n_head, self.n_tokens)
        k = self.reshape(k, facts.head_dim_k, facts.n_head_kv, self.n_tokens)
        return self.with_residual(layer, self.attend(layer, self.rope(q), self.rope(k), v, mask), x)

    scaled_values = False  # MiMo V2 scales V before it is stored
    soft_plus_gates = False  # Laguna: gates by softplus, not fused with the product

    def _gated_heads(self, layer: int, x: Node, gate: Node) -> Node:
        """Multiply what heads attended to by their gates, one a head or one an element."""
        n, dim_v = self.n_tokens, self.layer(layer).head_dim_v
        n_head = x.ne[0] * x.ne[1] * x.ne[2] // n // dim_v
        if self.soft_plus_gates:
            gate = self.apply("UNARY", gate)
        if gate.ne[0] == n_head:
            heads, each = self.reshape(x, dim_v, n_head, n), self.reshape(gate, 1, n_head, n)
            x = self.mul(heads, each) if self.soft_plus_gates else self.new(
                "FUSED_MUL_UNARY", "f32", heads.ne, each, heads
            )  # fmt: skip
        else:
            x = self.mul(x, gate if self.soft_plus_gates else self.apply("UNARY", gate))
        return self.reshape(x, dim_v * n_head, n)

    def feed_forward(self, layer: int, x: Node, norm: Node | None = None, *, add_input: bool = False) -> Node:
        """The dense layer, up and gate fused."""
        out = self._gated(layer, "", x if norm is None else self.norm(x, norm))
        return self.add(out, x) if add_input else out

    def shared_expert(self, layer: int, x: Node) -> Node:
        """The shared expert, up and gate fused."""
        return self._gated(layer, "_shexp", x)

    def _gated(self, layer: int, suffix: str, x: Node) -> Node:
        up, down = self.weight(layer, f"ffn_up{suffix}.weight"), self.weight(layer, f"ffn_down{suffix}.weight")
        gate = self.optional(layer, f"ffn_gate{suffix}.weight")
        if gate is None:  # up and gate are one weight
            joined = self.mul_mat(up, x)
            return self.mul_mat(down, self.new("SWIGLU", "f32", (up.ne[1] // 2, x.ne[1]), joined))
        if self.spec.rules.fused_dense and can_fuse(type_named(up.kind), type_named(gate.kind), dense=True):
            return self.mul_mat(down, self.new("FUSED_UP_GATE", "f32", (up.ne[1], x.ne[1]), up, gate, x))
        a, b = self.mul_mat(up, x), self.mul_mat(gate, x)
        return self.mul_mat(down, self._product_of(b, a))

    def routed_experts(
        self, layer: int, x: Node, gating: Gating, *, norm_weights: bool, scale: bool = False,
        weight_before: bool = False, logits: Node | None = None, ids: Node | None = None,
    ) -> Node:  # fmt: skip
        """Router, the chosen experts and their weighted sum. `weight_before`: inputs are weighted, not outputs.

        `logits`: the router's, where they are not made of x. `ids`: the experts, where the router does not choose them.
        """
        if logits is None:
            logits = self.mul_mat(self.weight(layer, "ffn_gate_inp.weight"), x)
        ids, weights = self._route(layer, logits, gating, norm_weights, scale, ids, from_logits=weight_before)
        n_embd, n_tokens, used = x.ne[0], x.ne[1], ids.ne[0]
        x = self.reshape(x, n_embd, 1, n_tokens)
        if weight_before:
            x = self.mul(self.new("REPEAT", "f32", (n_embd, used, n_tokens), x), weights)
        out = self.mul_mat_id(self.weight(layer, "ffn_down_exps.weight"), self._up_gate(layer, x, ids), ids)
        bias = self.optional(layer, "ffn_down_exps.bias")
        if bias is not None:
            out = self.new("ADD_ID", "f32", out.ne, out, bias, ids)
        if weight_before:
            return self._sum(out)
        if not self.spec.rules.fused_sums:
            return self._sum(self.mul(out, weights))
        scale_each = self.optional(layer, "ffn_down_exps.scale")
        more = (None, None) if scale_each is None else (scale_each, ids)
        return self.new("MUL_MULTI_ADD", "f32", (n_embd, n_tokens), out, weights, *more)

    def _sum(self, experts: Node) -> Node:
        rows = (experts.ne[0], experts.ne[2])
        return self.new("MULTI_ADD", "f32", rows, self.view(experts, rows, (experts.nb[2],)))

    def _route(
        self, layer: int, logits: Node, gating: Gating, norm_weights: bool, scale: bool, ids: Node | None, *,
        from_logits: bool,
    ) -> tuple[Node, Node]:  # fmt: skip
        """Return the chosen experts' ids [used, tokens] and weights [1, used, tokens]."""
        chances = self.chances(layer, logits, gating)
        if ids is None:
            correction = self.optional(layer, "exp_probs_b.bias")
            chosen = logits if from_logits else chances if correction is None else self.add(chances, correction)
            order = self.new("ARGSORT", "i32", chosen.ne, chosen)
            ids = self.view(order, (self.n_expert_used, chosen.ne[1]), order.nb[1:])
        return ids, self.expert_weights(chances, ids, gating, norm=norm_weights, scale=scale)

    def guarded(self, total: Node) -> Node:
        """Step, Ling and Laguna keep the sum of weights off zero (ik llama-build-context.cpp, llm_build_moe_ffn)."""
        if self.model.architecture in ("step35", "bailingmoe2", "bailingmoe3"):
            return self.apply("SCALE", total)
        if self.model.architecture == "laguna":
            return self.new("CLAMP", "f32", total.ne, total, root=total, nb=total.nb)
        return total

    def _up_gate(self, layer: int, x: Node, ids: Node) -> Node:
        """One fused operation where up and gate have one type, else two and their product."""
        used, n_tokens = ids.ne[0], x.ne[2]
        merged = self.optional(layer, "ffn_gate_up_exps.weight")
        if merged is not None:
            bias = self.optional(layer, "ffn_gate_up_exps.bias")
            shape = (merged.ne[1] // 2, used, n_tokens)
            return self.new("MOE_FUSED_UP_GATE", "f32", shape, merged, merged, x, ids, bias)
        up, gate = self.weight(layer, "ffn_up_exps.weight"), self.weight(layer, "ffn_gate_exps.weight")
        biases = [self.optional(layer, f"ffn_{part}_exps.bias") for part in ("up", "gate")]
        if self.spec.fused_moe and can_fuse(type_named(up.kind), type_named(gate.kind), dense=False):
            return self.new("MOE_FUSED_UP_GATE", "f32", (up.ne[1], used, n_tokens), up, gate, x, ids, *biases)
        a, b = self.mul_mat_id(up, x, ids), self.mul_mat_id(gate, x, ids)
        if self.spec.rules.up_before_gate:
            self.expand(a, b)
        if biases[0] is not None and biases[1] is not None:
            a = self.new("ADD_ID", "f32", a.ne, a, biases[0], ids)
            b = self.new("ADD_ID", "f32", b.ne, b, biases[1], ids)
        return self._product_of(b, a)

    def _product_of(self, gate: Node, up: Node) -> Node:
        """gpt-oss and MiniMax-M3 have an operation that may write over what it reads (ggml.c:7295, ggml_swiglu_oai)."""
        own = self.model.architecture in ("gpt-oss", "minimax-m3")
        return self.new("UNARY" if own else "FUSED_MUL_UNARY", gate.kind, gate.ne, gate, up)

    def expert_layer(
        self, layer: int, x: Node, gating: Gating, *, norm_weights: bool, scale: bool = False, add_input: bool = True
    ) -> Node:  # fmt: skip
        """Norm, routed experts, the residual, and the shared expert if there is one."""
        y = self.normed_for_experts(layer, x)
        out = self.routed_experts(layer, y, gating, norm_weights=norm_weights, scale=scale)
        out = self.add(out, x) if add_input else out
        self.expand(out)
        if self.optional(layer, "ffn_up_shexp.weight") is None:
            return out
        out = self.add(out, self.gated_shared_expert(layer, y))
        self.expand(out)
        return out

    def normed_for_experts(self, layer: int, x: Node) -> Node:
        """Return x after the norm that the experts read. Raises MissingTensor."""
        return self.norm(x, self.first_of(layer, "ffn_norm.weight", "post_attention_norm.weight", "attn_norm.weight"))

    def gated_shared_expert(self, layer: int, y: Node) -> Node:
        """The shared expert, behind its gate if it has one."""
        shared, router = self.shared_expert(layer, y), self.optional(layer, "ffn_gate_inp_shexp.weight")
        if router is None:
            return shared
        return self.mul(shared, self.apply("UNARY", self.new("MUL_MAT", "f32", (1, y.ne[1]), router, y)))

    def experts_or_dense(self, layer: int, x: Node, gating: Gating | None = None) -> Node:
        """Norm, experts or the dense layer, and the residual.

        `gating`: the router's, whose weights are normed and not scaled; None: all as the header says.
        """
        if not self.layer(layer).moe:
            norm = self.first_of(layer, "ffn_norm.weight", "post_attention_norm.weight")
            return self.feed_forward(layer, x, norm, add_input=True)
        if gating is not None:
            return self.expert_layer(layer, x, gating, norm_weights=True)
        norm_weights, scale = self.expert_weights_norm, self.expert_weights_scale
        return self.expert_layer(layer, x, self.gating, norm_weights=norm_weights, scale=scale)

    def shared_before_residual(self, layer: int, h: Node) -> Node:
        """Norm, feed-forward and the residual; the shared expert is added to the routed ones first."""
        y = self.normed(layer, "ffn_norm", h)
        if not self.layer(layer).moe:
            return self.add(self.feed_forward(layer, y), h)
        norm, scale = self.expert_weights_norm, self.expert_weights_scale
        routed = self.routed_experts(layer, y, self.gating, norm_weights=norm, scale=scale)
        return self.add(self.add(routed, self.shared_expert(layer, y)), h)
