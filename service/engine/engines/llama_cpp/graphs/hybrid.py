"""llama.cpp: gated delta-net layers with a full-attention layer in between (Qwen3-Next, Qwen3.5, Qwen3.6).

Sources: llama.cpp src/models/{qwen3next,qwen35,qwen35moe,delta-net-base}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.gqa import after_attention
from service.engine.engines.llama_cpp.graphs.recurrent import (
    StateInput,
    read_state,
    recurrent_sizes,
    state_input,
    write_window,
)
from service.engine.memory.graph import Node
from service.engine.memory.graphs.base import MissingTensor


def qwen3_next(g: LlamaGraph, n_axes: int = 1) -> None:
    """qwen3next: three delta-net layers, then one of gated full attention; experts in each.

    qwen35, qwen35moe: with places for images, dense or with experts.
    """
    g.hidden = "normed"
    x = g.begin()
    (cache,) = g.cache_inputs(0)
    states = state_input(g, g.spec.n_seq)
    g.position_input(n_axes)
    for i in g.layers():
        y = g.normed(i, "attn_norm", x)
        g.expand(y)
        y = _DeltaNet(g, i, states).build(y) if g.layer(i).recurs else _gated_attention(g, i, y, cache)
        x = after_attention(g, i, y, x, norm_weights=True)
    g.finish(x)


def _gated_attention(g: LlamaGraph, layer: int, y: Node, cache: CacheInput) -> Node:
    """attn_q holds a gate next to each head's query."""
    facts, n = g.layer(layer), g.n_tokens
    both, k, v = (g.mul_mat(g.weight(layer, f"attn_{part}.weight"), y) for part in "qkv")
    if g.model.architecture == "qwen3next":
        both = g.reshape(both, 2 * facts.head_dim_k, facts.n_head, n, 1)
    strides = (8 * facts.head_dim_k, 8 * facts.head_dim_k * facts.n_head)
    q, gate = (g.view(both, (facts.head_dim_k, facts.n_head, n), strides) for _ in range(2))
    k = g.reshape(k, facts.head_dim_k, facts.n_head_kv, n)
    v = g.reshape(v, facts.head_dim_v, facts.n_head_kv, n)
    q = g.normed(layer, "attn_q_norm", q)
    k = g.normed(layer, "attn_k_norm", k)
    out = g.attend(layer, cache, g.rope(q), g.rope(k), v, project=False)
    gate = g.apply("UNARY", g.cont(gate, facts.head_dim_k * facts.n_head, n))
    return g.mul_mat(g.weight(layer, "attn_output.weight"), g.mul(out, gate))


class _DeltaNet:
    """Convolution over q, k and v, then the gated delta rule on a state per value head."""

    def __init__(self, g: LlamaGraph, layer: int, states: StateInput) -> None:
        r = recurrent_sizes(g)
        if not r.time_step_rank or not r.group_count:
            raise MissingTensor("the heads of the recurrent state")
        self.g, self.layer, self.states, self.n_seq = g, layer, states, states.n_seq
        self.n = g.n_tokens // self.n_seq
        self.n_key, self.n_value, self.dim, self.n_conv = r.group_count, r.time_step_rank, r.state_size, r.conv_kernel
        self.dim_value, self.n_mixed = r.inner_size // r.time_step_rank, r.n_mixed

    def build(self, y: Node) -> Node:
        g, n, n_seq = self.g, self.n, self.n_seq
        mixed, z = self._projected(y)
        beta, gate = self._gates(y)
        conv_cache, state_cache = g.state(self.layer)
        conv = g.reshape(read_state(g, conv_cache, self.states), self.n_conv - 1, self.n_mixed, n_seq)
        window = g.concat(conv, g.transpose(mixed), 0)
        write_window(g, window, conv_cache, self.n_conv - 1)
        dim, n_value = self.dim_value, self.n_value
        state = g.reshape(read_state(g, state_cache, self.states), dim, dim, n_value, n_seq)
        convolved = g.new(
            "SSM_CONV", "f32", (self.n_mixed, n, n_seq), window, g.weight(self.layer, "ssm_conv1d.weight")
        )
        out = self._delta_rule(g.apply("UNARY", convolved), gate, beta, state)
        heads = g.view(out, (dim, n_value, n, n_seq), (4 * dim, 4 * dim * n_value, 4 * dim * n_value * n))
        new_state = g.view(out, (dim, dim, n_value, n_seq), (4 * dim, 4 * dim * dim, 4 * dim * dim * n_value))
        g.expand(g.copy_into(new_state, g.view(state_cache, (state_cache.ne[0], n_seq), state_cache.nb[1:2])))
        z = g.reshape(z, dim, n_value, n, n_seq)
        normed = g.norm(heads, g.weight(self.layer, "ssm_norm.weight"), self.layer)
        gated = g.reshape(g.mul(normed, g.apply("UNARY", z)), dim * n_value, n, n_seq)
        return g.reshape(g.mul_mat(g.weight(self.layer, "ssm_out.weight"), gated), g.model.n_embd, n * n_seq)

    def _projected(self, y: Node) -> tuple[Node, Node]:
        """Return q, k and v side by side [n_mixed, n_tokens, n_seq], and the output gate z."""
        g, n, n_seq = self.g, self.n, self.n_seq
        joined = g.optional(self.layer, "ssm_in.weight")
        if joined is None:  # newer files: two matrices
            mixed = g.mul_mat(g.weight(self.layer, "attn_qkv.weight"), y)
            z = g.mul_mat(g.weight(self.layer, "attn_gate.weight"), y)
            return g.reshape(mixed, self.n_mixed, n, n_seq), z
        n_group = self.dim_value * self.n_value // self.n_key
        x = g.reshape(g.mul_mat(joined, y), 2 * self.dim + 2 * n_group, self.n_key, n, n_seq)
        sizes = (self.dim, self.dim, n_group, n_group)
        q, k, v, z = (g.view(x, (size, self.n_key, n, n_seq), x.nb[1:]) for size in sizes)
        z = g.cont(z)
        q, k = (g.cont(part, self.dim * self.n_key, n, n_seq) for part in (q, k))
        v = g.cont(v, self.dim_value * self.n_value, n, n_seq)
        return g.concat(g.concat(q, k, 0), v, 0), z

    def _gates(self, y: Node) -> tuple[Node, Node]:
        g, n, n_seq, n_value = self.g, self.n, self.n_seq, self.n_value
        joined = g.optional(self.layer, "ssm_ba.weight")
        if joined is not None:
            ratio = n_value // self.n_key
            x = g.reshape(g.mul_mat(joined, y), 2 * ratio, self.n_key, n, n_seq)
            beta, alpha = (g.view(x, (ratio, self.n_key, n, n_seq), x.nb[1:]) for _ in range(2))
            beta, alpha = g.cont(beta), g.cont(alpha, n_value, n, n_seq)
        else:
            beta = g.reshape(g.mul_mat(g.weight(self.layer, "ssm_beta.weight"), y), 1, n_value, n, n_seq)
            alpha = g.reshape(g.mul_mat(g.weight(self.layer, "ssm_alpha.weight"), y), n_value, n, n_seq)
        beta = g.apply("UNARY", beta)
        if joined is not None:
            beta = g.reshape(beta, 1, n_value, n, n_seq)
        alpha = g.apply("UNARY", g.add(alpha, g.first_of(self.layer, "ssm_dt.bias", "ssm_dt")))
        gate = g.mul(alpha, g.weight(self.layer, "ssm_a"))
        return beta, g.reshape(gate, 1, n_value, n, n_seq)

    def _delta_rule(self, active: Node, gate: Node, beta: Node, state: Node) -> Node:
        g, n, n_seq, row = self.g, self.n, self.n_seq, 4 * self.n_mixed
        shape, strides = (self.dim, self.n_key, n, n_seq), (4 * self.dim, row, row * n)
        q, k = g.view(active, shape, strides), g.view(active, shape, strides)
        v = g.view(active, (self.dim_value, self.n_value, n, n_seq), (4 * self.dim_value, row, row * n))
        q = g.apply("SCALE", g.apply("RMS_NORM", q))
        k = g.apply("SCALE", g.apply("RMS_NORM", k))
        if self.n_key != self.n_value and g.model.architecture == "qwen3next":
            q, k = self._repeated(q, k)
        size = (self.dim_value * self.n_value, n * n_seq + self.dim_value * n_seq)
        return g.new("GATED_DELTA_NET", "f32", size, q, k, v, gate, beta, state)

    def _repeated(self, q: Node, k: Node) -> tuple[Node, Node]:
        g, tokens, ratio = self.g, self.n * self.n_seq, self.n_value // self.n_key
        flat = [g.reshape(part, self.dim, 1, self.n_key, tokens) for part in (q, k)]
        wide = [g.new("REPEAT", "f32", (self.dim, ratio, self.n_key, tokens), part) for part in flat]
        q, k = (g.reshape(part, self.dim, self.n_value, self.n, self.n_seq) for part in wide)
        return q, k


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {
    "qwen3next": qwen3_next,
    "qwen35": partial(qwen3_next, n_axes=4),
    "qwen35moe": partial(qwen3_next, n_axes=4),
}
