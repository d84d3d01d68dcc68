"""Building blocks of llama.cpp's graphs: norms, attention on the cache, feed-forward layers, routed experts.

Source: llama.cpp src/llama-graph.cpp (build_attn, build_attn_mha, build_ffn, build_moe_ffn and the input classes).
"""

from __future__ import annotations

from typing import NamedTuple

from service.engine.memory.cache import window_rows
from service.engine.memory.graph import Node, geometry, is_contiguous, row_size
from service.engine.memory.graphs.base import Gating, MissingTensor, ModelGraph

_ROTATION = 64  # llama.cpp src/llama-kv-cache.cpp: a quantised cache is rotated by Hadamard matrices of 64 and up


class CacheInput(NamedTuple):
    """What attention reads besides the cache: where rows are written, the mask, and the rotations."""

    n_rows: int
    k_ids: Node
    v_ids: Node | None
    mask: Node
    k_rotation: Node | None
    v_rotation: Node | None


class LlamaGraph(ModelGraph):
    """The blocks that llama.cpp's architectures are built from."""

    def begin(self) -> Node:
        """Return the embedded tokens; the input for embeddings is made though nobody uses it."""
        tokens = self.input("i32", self.n_tokens)
        embeddings = self.input("f32", self.model.n_embd, self.n_tokens)
        x = self.get_rows(self.required("token_embd.weight"), tokens)
        self.expand(x, embeddings)
        return x

    def finish(self, x: Node) -> None:
        """Add the output norm and the logits."""
        self.logits(self.output(self.norm(x, self.required("output_norm.weight"), None)))

    def logits(self, x: Node) -> None:
        self.expand(self.output(self.mul_mat(self.output_head(), x)))

    def position_input(self) -> None:
        self.positions = self.input("i32", self.n_tokens)

    def output_ids(self) -> Node:
        return self.input("i32", self.spec.n_outputs)

    def cache_inputs(self, *windows: int, latent: bool = False) -> list[CacheInput]:
        """Return the inputs of one cache for each window, 0 for full attention, in llama.cpp's order of creation."""
        made = []
        for window in windows:
            n_rows = window_rows(window, self.spec) if window else self.n_kv
            k_ids = self.input("i64", self.n_tokens)
            v_ids = None if latent else self.input("i64", self.n_tokens * self._v_ids_per_token())
            tokens = self.n_tokens // self.spec.n_stream
            mask = self.mask_input(n_rows, max(1, tokens), 1, self.spec.n_stream)
            made.append(CacheInput(n_rows, k_ids, v_ids, mask, None, None))
        if latent:
            return made
        return [m._replace(k_rotation=self._k_rotation(), v_rotation=self._v_rotation()) for m in made]

    def _v_ids_per_token(self) -> int:
        if not self.spec.transposed_v:
            return 1
        return max(la.head_dim_v * la.n_head_kv for la in self.model.layers if la.kind == "attention")

    def _attention_layer(self) -> tuple[int, int]:
        first = next((la for la in self.model.layers if la.kind == "attention"), None)
        if first is None:
            raise MissingTensor("an attention layer")
        return first.head_dim_k, first.head_dim_v

    def _k_rotation(self) -> Node | None:
        dim = self._attention_layer()[0]
        if geometry(self.spec.type_k)[0] == 1 or dim % _ROTATION:
            return None
        size = _ROTATION
        while dim % (2 * size) == 0:
            size *= 2
        return self.input("f32", size, size)

    def _v_rotation(self) -> Node | None:
        dim = self._attention_layer()[1]
        if geometry(self.spec.type_v)[0] == 1 or dim % _ROTATION:
            return None
        return self.input("f32", _ROTATION, _ROTATION)

    # -- small parts ---------------------------------------------------------------------------------------------

    def norm(self, x: Node, weight: Node, layer: int | None) -> Node:
        """RMS_NORM and a product; the norm is pinned to the device of `layer` unless None."""
        normed = self.apply("RMS_NORM", x)
        if layer is not None:
            self.pin(normed, layer)
        return self.mul(normed, weight)

    def rope(self, x: Node, factors: Node | None = None) -> Node:
        return self.new("ROPE", x.kind, x.ne, x, self.positions, factors)

    def _rotate(self, x: Node, rotation: Node) -> Node:
        n, total = rotation.ne[0], x.ne[0] * x.ne[1] * x.ne[2] * x.ne[3]
        flat = self.reshape(x, n, total // n) if is_contiguous(x) else self.cont(x, n, total // n)
        return self.reshape(self.mul_mat(rotation, flat), *x.ne)

    # -- attention -----------------------------------------------------------------------------------------------

    def query_key_value(self, layer: int, x: Node) -> tuple[Node, Node, Node]:
        """Return Q, K and V with their biases, split into heads, Q and K normed where the model has norms."""
        facts = self.layer(layer)
        sizes = (("q", facts.n_head, facts.head_dim_k), ("k", facts.n_head_kv, facts.head_dim_k),
                 ("v", facts.n_head_kv, facts.head_dim_v))  # fmt: skip
        products = []
        for part, _, _ in sizes:
            product = self.mul_mat(self.weight(layer, f"attn_{part}.weight"), x)
            bias = self.optional(layer, f"attn_{part}.bias")
            products.append(product if bias is None else self.add(product, bias))
        q, k, v = (
            self.reshape(product, dim, n_head, self.n_tokens)
            for product, (_, n_head, dim) in zip(products, sizes, strict=True)
        )
        q_norm = self.optional(layer, "attn_q_norm.weight")
        if q_norm is not None:
            q = self.norm(q, q_norm, layer)
            k = self.norm(k, self.weight(layer, "attn_k_norm.weight"), layer)
        return q, k, v

    def attend(
        self, layer: int, cache: CacheInput, q: Node, k: Node, v: Node, *, sinks: Node | None = None,
        project: bool = True, window: bool = False,
    ) -> Node:  # fmt: skip
        """Store K and V, attend over the cache, and project. `window`: the model has two caches (order of expand)."""
        if cache.k_rotation is not None:
            q, k = self._rotate(q, cache.k_rotation), self._rotate(k, cache.k_rotation)
        if cache.v_rotation is not None:
            v = self._rotate(v, cache.v_rotation)
        self.expand(*((q, k, v) if window else (q, v, k)))
        self._store(layer, cache, k, v)
        keys, values = self._cache_views(layer, cache.n_rows)
        x = self.attention(q, keys, values, cache.mask, sinks)
        if cache.v_rotation is not None:
            x = self._rotate(x, cache.v_rotation)
        if not project:
            return x
        x = self.mul_mat(self.weight(layer, "attn_output.weight"), x)
        bias = self.optional(layer, "attn_output.bias")
        return x if bias is None else self.add(x, bias)

    def _store(self, layer: int, cache: CacheInput, k: Node, v: Node) -> None:
        keys, values = self.cache(layer)
        n = k.ne[2]
        rows = self.view(k, (k.ne[0] * k.ne[1], n), (k.nb[2],))
        self.expand(self.set_rows(self._flat(keys), rows, cache.k_ids))
        if cache.v_ids is None:
            raise MissingTensor("a cache for values")
        size = v.ne[0] * v.ne[1]
        if not self.spec.transposed_v:
            self.expand(self.set_rows(self._flat(values), self.view(v, (size, n), (v.nb[2],)), cache.v_ids))
            return
        elements = self.reshape(self.reshape(v, size, n), 1, size * n)
        target = self.reshape(values, 1, values.ne[0] * values.ne[1] * values.ne[2])
        self.expand(self.set_rows(target, elements, cache.v_ids))

    def _flat(self, cache: Node) -> Node:
        """Several streams are written as one cache of all rows."""
        return cache if cache.ne[2] == 1 else self.reshape(cache, cache.ne[0], cache.ne[1] * cache.ne[2])

    def _cache_views(self, layer: int, n_rows: int) -> tuple[Node, Node]:
        keys, values = self.cache(layer)
        facts, n_stream = self.layer(layer), self.spec.n_stream
        dim_k, dim_v, n_head = facts.head_dim_k, facts.head_dim_v, facts.n_head_kv
        row = row_size(keys.kind, dim_k * n_head)
        k = self.view(keys, (dim_k, n_head, n_rows, n_stream), (row_size(keys.kind, dim_k), row, row * n_rows))
        if not self.spec.transposed_v:
            row = row_size(values.kind, dim_v * n_head)
            strides = (row_size(values.kind, dim_v), row, row * n_rows)
            return k, self.view(values, (dim_v, n_head, n_rows, n_stream), strides)
        column = row_size(values.kind, n_rows)
        strides = (column * dim_v, column, column * dim_v * n_head)
        return k, self.view(values, (n_rows, n_head, dim_v, n_stream), strides)

    def attention(
        self, q: Node, k: Node, v: Node, mask: Node, sinks: Node | None = None, expand_v: Node | None = None
    ) -> Node:
        """Return the attended values [n_head * dim, n_tokens]; `expand_v` maps latent values to each head's."""
        transposed = v.nb[1] > v.nb[2]
        n_stream = k.ne[3]
        q = self.view(
            q, (q.ne[0], q.ne[1], q.ne[2] // n_stream, n_stream), (q.nb[1], q.nb[2], q.nb[2] * (q.ne[2] // n_stream))
        )
        q, k, v = self.swap_heads(q), self.swap_heads(k), self.swap_heads(v)
        if self.spec.flash_attn:
            x = self._flash(q, self.transpose(v) if transposed else v, k, mask, sinks, expand_v)
        else:
            scores = self.apply("SOFT_MAX", self.mul_mat(k, q), mask, sinks)
            x = self.mul_mat(v if transposed else self.cont(self.transpose(v)), scores)
            if expand_v is not None:
                x = self.mul_mat(expand_v, x)
            x = self.swap_heads(x)
            x = self.cont(x, x.ne[0] * x.ne[1], x.ne[2] * x.ne[3])
            self.ram_pins.append(x.index)  # llama-graph.cpp:2746
        self.expand(x)
        return x

    def _flash(self, q: Node, v: Node, k: Node, mask: Node, sinks: Node | None, expand_v: Node | None) -> Node:
        k, v = (self.cast(part, "f16") if part.kind == "f32" else part for part in (k, v))
        x = self.new("FLASH_ATTN_EXT", "f32", (v.ne[0], q.ne[2], q.ne[1], q.ne[3]), q, k, v, mask, sinks)
        if expand_v is not None:
            x = self.cont(self.swap_heads(self.mul_mat(expand_v, self.swap_heads(x))))
        return self.reshape(x, x.ne[0] * x.ne[1], x.ne[2] * x.ne[3])

    # -- feed-forward --------------------------------------------------------------------------------------------

    def feed_forward(self, layer: int, x: Node, suffix: str = "") -> Node:
        """The dense layer, or the shared expert with the suffix `_shexp`."""
        up = self.mul_mat(self.weight(layer, f"ffn_up{suffix}.weight"), x)
        gate = self.mul_mat(self.weight(layer, f"ffn_gate{suffix}.weight"), x)
        return self.mul_mat(
            self.weight(layer, f"ffn_down{suffix}.weight"), self.new("GLU", gate.kind, gate.ne, gate, up)
        )

    def expert_layer(
        self, layer: int, x: Node, gating: Gating, *, norm_weights: bool, scale: bool, weight_before: bool = False
    ) -> Node:
        """Routed experts, and the shared expert if there is one."""
        out = self.routed_experts(layer, x, gating, norm_weights, scale, weight_before)
        if self.optional(layer, "ffn_up_shexp.weight") is None:
            return out
        shared = self.feed_forward(layer, x, "_shexp")
        router = self.optional(layer, "ffn_gate_inp_shexp.weight")
        if router is not None:
            opened = self.apply("UNARY", self.new("MUL_MAT", "f32", (1, x.ne[1]), router, x))
            shared = self.mul(shared, opened)
        return self.add(out, shared)

    def routed_experts(
        self, layer: int, x: Node, gating: Gating, norm_weights: bool, scale: bool, weight_before: bool
    ) -> Node:
        """Router, the chosen experts and their weighted sum. `weight_before`: inputs are weighted, not outputs."""
        ids, weights = self._route(layer, x, gating, norm_weights, scale, from_logits=weight_before)
        n_embd, n_tokens, used = x.ne[0], x.ne[1], ids.ne[0]
        x = self.reshape(x, n_embd, 1, n_tokens)
        if weight_before:
            x = self.mul(self.new("REPEAT", "f32", (n_embd, used, n_tokens), x), weights)
        out = self._expert_product(layer, "down", self._up_gate(layer, x, ids), ids)
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
        bias = self.optional(layer, f"ffn_{part}_exps.bias")
        return product if bias is None else self.new("ADD_ID", "f32", product.ne, product, bias, ids)

    def _up_gate(self, layer: int, x: Node, ids: Node) -> Node:
        if self.optional(layer, "ffn_gate_up_exps.weight") is not None:
            both = self._expert_product(layer, "gate_up", x, ids)
            half = (both.ne[0] // 2, both.ne[1], both.ne[2])
            gate, up = self.view(both, half, both.nb[1:3]), self.view(both, half, both.nb[1:3])
            return self.new("GLU", "f32", half, gate, up)
        up = self._expert_product(layer, "up", x, ids)
        gate = self._expert_product(layer, "gate", x, ids)
        return self.new("GLU", gate.kind, gate.ne, gate, up)

    def _route(
        self, layer: int, x: Node, gating: Gating, norm_weights: bool, scale: bool, *, from_logits: bool
    ) -> tuple[Node, Node]:
        """Return the chosen experts' ids [used, tokens] and weights [1, used, tokens]."""
        router = self.weight(layer, "ffn_gate_inp.weight")
        n_expert, used, n_tokens = router.ne[1], self.n_expert_used, x.ne[1]
        logits = self.mul_mat(router, x)
        bias = self.optional(layer, "ffn_gate_inp.bias")
        if bias is not None:
            logits = self.add(logits, bias)
        chances = logits
        if gating != "weight":
            chances = self.apply("SOFT_MAX" if gating == "softmax" else "UNARY", logits)
        correction = self.optional(layer, "exp_probs_b.bias")
        chosen = logits if from_logits else chances if correction is None else self.add(chances, correction)
        order = self.new("ARGSORT", "i32", chosen.ne, chosen)
        ids = self.view(order, (used, n_tokens), order.nb[1:])
        weights = self.new("GET_ROWS", "f32", (1, used, n_tokens), self.reshape(chances, 1, n_expert, n_tokens), ids)
        if gating == "weight":
            weights = self.apply("SOFT_MAX", self.reshape(weights, used, n_tokens))
            weights = self.reshape(weights, 1, used, n_tokens)
        if norm_weights:
            weights = self.reshape(weights, used, n_tokens)
            total = self.apply("CLAMP", self.new("SUM_ROWS", "f32", (1, n_tokens), weights))
            weights = self.reshape(self.apply("DIV", weights, total), 1, used, n_tokens)
        if scale:
            weights = self.apply("SCALE", weights)
        self.expand(weights)
        return ids, weights
