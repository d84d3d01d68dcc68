"""Building blocks of llama.cpp's graphs: inputs, norms, attention on the cache, the head.

Source: llama.cpp src/llama-graph.cpp (build_attn, build_attn_mha and the input classes).
"""

from __future__ import annotations

from typing import NamedTuple

from service.engine.engines.llama_cpp.caches import widest_values, window_rows
from service.engine.layers import Layer
from service.engine.memory.cache import cache_owner
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


def _rotated(dims: list[int], kind: str) -> int:
    """Return the size of the heads of a cache if it is rotated: quantised, all heads of one size, in blocks; else 0."""
    uniform = len(set(dims)) == 1 and geometry(kind)[0] > 1 and dims[0] % _ROTATION == 0
    return dims[0] if uniform else 0


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
        parts = []
        for _ in range(used):
            parts.append(self.view(out, (out.ne[0], out.ne[2]), (out.nb[2],)))
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


class LlamaGraph(FeedForward):
    """The blocks that llama.cpp's architectures are built from."""

    two_caches = False  # one for full attention and one for windows, which build_attn expands in another order
    clamps = False  # whether Q, K and V are cut off at a largest value
    soft_cap = False  # whether scores are squashed before the soft max; flash attention does it inside

    def begin(self, n_deepstack: int = 0) -> Node:
        """Return the embedded tokens; the input for embeddings is made though nobody uses it.

        `n_deepstack`: layers that an image's features are added to, which make the embeddings wider.
        """
        tokens = self.tokens = self.input("i32", self.n_tokens)
        self.ids = self.input("i32", self.spec.n_outputs)
        width = self.model.n_embd * (1 + n_deepstack)
        embeddings = self.input("f32", width, self.n_tokens)
        x = self.get_rows(self.required("token_embd.weight"), tokens)
        if n_deepstack:
            x = self.new("PAD", "f32", (width, self.n_tokens), x)
        self.expand(x, embeddings)
        if n_deepstack:
            x = self.view(x, (self.model.n_embd, self.n_tokens), x.nb[1:2])
            self.expand(x)
        return x

    def finish(self, x: Node, *, scale: bool = False, soft_cap: bool = False) -> None:
        """Add the output norm and the logits, scaled or squashed; where hidden states are an output, of its rows."""
        if self.hidden == "raw":
            x = self.get_rows(self.output(x), self.ids)
        x = self.output(self.norm(x, self.find("output_norm.weight"), None))
        if self.hidden == "normed":
            x = self.output(self.get_rows(x, self.ids))
        self.logits(x, scale=scale, soft_cap=soft_cap)

    def logits(self, x: Node, *, scale: bool = False, soft_cap: bool = False) -> None:
        """Append the head: logits of x, scaled and capped where the model does so."""
        x = self.mul_mat(self.output_head(), x)
        bias = self.find("output.bias")
        x = x if bias is None else self.add(x, bias)
        if scale:
            x = self.apply("SCALE", x)
        self.expand(self.output(self.squash(x) if soft_cap else x))

    def position_input(self, n_axes: int = 1) -> None:
        """Make the input for positions; `n_axes`: 4 where images have places of their own (M-RoPE), 0 for no input."""
        if n_axes:
            self.positions = self.input("i32", self.n_tokens * n_axes)

    @property
    def window(self) -> int:
        """The model's sliding window in tokens."""
        return max(layer.n_swa for layer in self.model.layers)

    def cache_inputs(self, *windows: int, latent: bool = False) -> list[CacheInput]:
        """Return the inputs of one cache for each window, 0 for full attention, in llama.cpp's order of creation."""
        self.two_caches = len(windows) > 1
        v_ids_per_token = widest_values(self.model) if self.spec.transposed_v else 1
        made = []
        for window in windows:
            n_rows = window_rows(window, self.spec) if window else self.n_kv
            k_ids = self.input("i64", self.n_tokens)
            v_ids = None if latent else self.input("i64", self.n_tokens * v_ids_per_token)
            tokens = self.n_tokens // self.spec.n_stream
            mask = self.mask_input(n_rows, max(1, tokens), 1, self.spec.n_stream)
            made.append(CacheInput(n_rows, k_ids, v_ids, mask, None, None))
        if latent:
            return made
        return [
            m._replace(k_rotation=self._k_rotation(window), v_rotation=self._v_rotation(window))
            for m, window in zip(made, windows, strict=True)
        ]

    def _cached_layers(self, window: int) -> list[Layer]:
        """The layers that own a part of the cache for `window`."""
        found = [
            la for la in self.model.layers
            if la.attends and (la.n_swa > 0) == (window > 0) and cache_owner(self.model, la) == la.index
        ]  # fmt: skip
        if not found:
            raise MissingTensor("an attention layer")
        return found

    def _k_rotation(self, window: int) -> Node | None:
        return self.key_rotation(*(la.head_dim_k for la in self._cached_layers(window)))

    def key_rotation(self, *dims: int) -> Node | None:
        """Return the input by which keys of heads of these sizes are stored rotated, None where they are not."""
        dim = _rotated(list(dims), self.spec.type_k)
        if not dim:
            return None
        size = _ROTATION
        while dim % (2 * size) == 0:
            size *= 2
        return self.input("f32", size, size)

    def _v_rotation(self, window: int) -> Node | None:
        dims = [la.head_dim_v for la in self._cached_layers(window)]
        return self.input("f32", _ROTATION, _ROTATION) if _rotated(dims, self.spec.type_v) else None

    norm_op = "RMS_NORM"

    def norm(self, x: Node, weight: Node | None, layer: int | None) -> Node:
        """The model's norm, a product, and the bias if there is one; pinned to the device of `layer` unless None."""
        normed = self.apply(self.norm_op, x)
        if weight is None:
            return normed
        if layer is not None:
            self.pin(normed, layer)
        normed = self.mul(normed, weight)
        bias = self.find(self.slots[weight.slot].name.removesuffix(".weight") + ".bias")
        return normed if bias is None else self.add(normed, bias)

    def normed(self, layer: int, part: str, x: Node) -> Node:
        """Return x after the norm `blk.<layer>.<part>`. Raises MissingTensor."""
        return self.norm(x, self.weight(layer, f"{part}.weight"), layer)

    def rotate(self, x: Node, rotation: Node) -> Node:
        """Return x multiplied with a rotation in blocks of its size."""
        n, total = rotation.ne[0], x.ne[0] * x.ne[1] * x.ne[2] * x.ne[3]
        flat = self.reshape(x, n, total // n) if is_contiguous(x) else self.cont(x, n, total // n)
        return self.reshape(self.mul_mat(rotation, flat), *x.ne)

    def query_key_value(self, layer: int, x: Node, *, norm: bool = True) -> tuple[Node, Node, Node]:
        """Return Q, K and V with their biases, split into heads, Q and K normed where the model has norms."""
        q, k, v = self._joined_heads(layer, x) or self._heads(layer, x)
        if norm and self.optional(layer, "attn_q_norm.weight") is not None:
            q, k = self.norm_heads(layer, q, k)
        return q, k, v

    def norm_heads(self, layer: int, q: Node, k: Node) -> tuple[Node, Node]:
        return (self.normed(layer, "attn_q_norm", q), self.normed(layer, "attn_k_norm", k))

    def head_sizes(self, layer: int) -> tuple[tuple[int, int], ...]:
        """Return (size, number) of the heads of Q, K and V."""
        la = self.layer(layer)
        return (la.head_dim_k, la.n_head), (la.head_dim_k, la.n_head_kv), (la.head_dim_v, la.n_head_kv)

    def _heads(self, layer: int, x: Node) -> tuple[Node, Node, Node]:
        products = [self._clamped(self.product(layer, f"attn_{part}", x)) for part in "qkv"]
        q, k, v = (
            self.reshape(product, *sizes, self.n_tokens)
            for product, sizes in zip(products, self.head_sizes(layer), strict=True)
        )
        return q, k, v

    def _clamped(self, x: Node) -> Node:
        return self.apply("CLAMP", x) if self.clamps else x

    def _joined_heads(self, layer: int, x: Node) -> tuple[Node, Node, Node] | None:
        """Q, K and V as views of one product, where the file has one weight for them."""
        if self.optional(layer, "attn_qkv.weight") is None:
            return None
        joined = self._clamped(self.product(layer, "attn_qkv", x))
        q, k, v = (
            self.view(joined, (dim, n_head, self.n_tokens), (4 * dim, joined.nb[1]))
            for dim, n_head in self.head_sizes(layer)
        )
        return q, k, v

    def attend(
        self, layer: int, cache: CacheInput, q: Node, k: Node | None, v: Node | None, *, sinks: Node | None = None,
        project: bool = True,
    ) -> Node:  # fmt: skip
        """Store K and V, attend over the cache, and project. K and V are None where another layer's cache is read."""
        if cache.k_rotation is not None:
            q, k = self.rotate(q, cache.k_rotation), k and self.rotate(k, cache.k_rotation)
        if cache.v_rotation is not None:
            v = v and self.rotate(v, cache.v_rotation)
        self.expand(*(t for t in ((q, k, v) if self.two_caches else (q, v, k)) if t is not None))
        if k is not None and v is not None:
            self.store(layer, cache, k, v)
        keys, values = self.cache_views(layer, cache.n_rows)
        x = self.attention(q, keys, values, cache.mask, sinks)
        if cache.v_rotation is not None:
            x = self.rotate(x, cache.v_rotation)
        return self.product(layer, "attn_output", x) if project else x

    def store(self, layer: int, cache: CacheInput, k: Node, v: Node) -> None:
        keys, values = self.cache(layer)
        n = k.ne[2]
        self.store_rows(keys, k, cache.k_ids)
        if cache.v_ids is None:
            raise MissingTensor("a cache for values")
        size = v.ne[0] * v.ne[1]
        if not self.spec.transposed_v:
            self.store_rows(values, v, cache.v_ids)
            return
        row_bytes = row_size(v.kind, size)
        rows = self.reshape(v, size, n) if row_bytes == v.nb[2] else self.cont(v, size, n)
        if size < values.ne[0]:  # rows as wide as the widest layer's
            rows = self.new("PAD", "f32", (values.ne[0], n), rows)
        elements = self.reshape(rows, 1, rows.ne[0] * n)
        target = self.reshape(values, 1, values.ne[0] * values.ne[1] * values.ne[2])
        self.expand(self.set_rows(target, elements, cache.v_ids))

    def store_rows(self, cache: Node, heads: Node, ids: Node) -> None:
        """Write what all heads of a token have as one row; several streams are written as one cache of all rows."""
        target = cache if cache.ne[2] == 1 else self.reshape(cache, cache.ne[0], cache.ne[1] * cache.ne[2])
        rows = self.view(heads, (heads.ne[0] * heads.ne[1], heads.ne[2]), heads.nb[2:3])
        self.expand(self.set_rows(target, rows, ids))

    def cache_views(self, layer: int, n_rows: int) -> tuple[Node, Node]:
        """Return the keys and values that the layer reads, by head, row and stream."""
        keys, values = self.cache(cache_owner(self.model, self.layer(layer)))
        facts, n_stream = self.layer(layer), self.spec.n_stream
        dim_k, dim_v, n_head = facts.head_dim_k, facts.head_dim_v, facts.n_head_kv
        row = row_size(keys.kind, dim_k * n_head)
        k = self.view(keys, (dim_k, n_head, n_rows, n_stream), (row_size(keys.kind, dim_k), row, row * n_rows))
        if not self.spec.transposed_v:
            row = row_size(values.kind, dim_v * n_head)
            strides = (row_size(values.kind, dim_v), row, row * n_rows)
            return k, self.view(values, (dim_v, n_head, n_rows, n_stream), strides)
        column = row_size(values.kind, n_rows)
        strides = (column * dim_v, column, column * values.ne[0])
        return k, self.view(values, (n_rows, n_head, dim_v, n_stream), strides)

    def attention(
        self, q: Node, k: Node, v: Node, mask: Node, sinks: Node | None = None, expand_v: Node | None = None
    ) -> Node:
        """Return the attended values [n_head * dim, n_tokens]; `expand_v` maps latent values to each head's."""
        transposed = v.nb[1] > v.nb[2]
        n_stream = k.ne[3]
        q = self.view(q, (q.ne[0], q.ne[1], q.ne[2] // n_stream, n_stream), (q.nb[1], q.nb[2], q.nb[3] // n_stream))
        q, k, v = self.swap_heads(q), self.swap_heads(k), self.swap_heads(v)
        if self.spec.flash_attn:
            x = self._flash(q, self.transpose(v) if transposed else v, k, mask, sinks, expand_v)
        else:
            scores = self.mul_mat(k, q)
            scores = self.apply("SOFT_MAX", self.squash(scores) if self.soft_cap else scores, mask, sinks)
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
