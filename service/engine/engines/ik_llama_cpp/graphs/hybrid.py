"""ik_llama.cpp: gated delta-net layers with a full-attention layer in between (Qwen3-Next, Qwen3.5, Qwen3.6, Ling 3).

Source: ik src/llama-delta-net.cpp, llama-kda.cpp, src/graphs/build_qwen3next.cpp, build_qwen35.cpp,
build_bailingmoe3.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from service.engine.engines.ik_llama_cpp.graphs.blocks import IkGraph
from service.engine.engines.ik_llama_cpp.graphs.latent import LatentAttention
from service.engine.memory.graph import Node, row_size
from service.engine.memory.graphs.base import Gating, MissingTensor


def qwen3_next(g: IkGraph, *, images: bool = False) -> None:
    """qwen3next: three delta-net layers, then one of gated full attention; experts in each.

    qwen35, qwen35moe: with places for `images`, dense or with experts.
    """
    x = g.begin()
    if images:
        g.positions = g.input("i32", 4 * g.n_tokens)
    _hybrid(g, x, _DeltaNet, _gated_attention, "softmax")


def bailing3(g: IkGraph) -> None:
    """bailingmoe3 (Ling 3.0): Kimi's delta attention, with latent attention in between; dense layers first."""
    _hybrid(g, g.begin(), _KimiDelta, lambda g, i, x, mask: LatentAttention(g, i).build(x, mask))


def _hybrid(
    g: IkGraph, x: Node, delta: type[_DeltaNet], attention: Callable[[IkGraph, int, Node, Node], Node],
    gating: Gating | None = None,
) -> None:  # fmt: skip
    """All layers: of delta attention or another, then experts or a dense part."""
    mask = g.mask()
    sequence = g.input("i32", 1, g.n_tokens)
    for i in g.layers():
        if g.layer(i).kind == "recurrent":
            y = delta(g, i).build(g.normed(i, "attn_norm", x), sequence, x.ne[0])
        else:
            y = attention(g, i, x, mask)
        x = g.experts_or_dense(i, g.with_residual(i, y, x), gating)
    g.finish(x)


def _gated_attention(g: IkGraph, layer: int, x: Node, mask: Node) -> Node:
    """attn_q holds a gate next to each head's query."""
    facts, n = g.layer(layer), g.n_tokens
    y = g.normed(layer, "attn_norm", x)
    both, k, v = (g.mul_mat(g.weight(layer, f"attn_{part}.weight"), y) for part in "qkv")
    g.expand(both, k, v)
    strides = (2 * row_size("f32", facts.head_dim_k), both.nb[1])
    q = g.cont(g.view(both, (facts.head_dim_k, facts.n_head, n), strides))
    gate = g.view(both, (facts.head_dim_k, facts.n_head, n), strides)
    gate = g.cont(gate, facts.head_dim_k * facts.n_head, n)
    k = g.reshape(k, facts.head_dim_k, facts.n_head_kv, n)
    q = g.normed(layer, "attn_q_norm", q)
    g.expand(q)
    k = g.normed(layer, "attn_k_norm", k)
    g.expand(k)
    out = g.attend(layer, g.rope(q), g.rope(k), v, mask, project=False, transpose_v=False)
    out = g.mul(out, g.apply("UNARY", gate))
    return g.mul_mat(g.weight(layer, "attn_output.weight"), out)


class _DeltaNet:
    """Convolution over q, k and v, then the gated delta rule on a state per value head."""

    gate_axes = (2, 0, 3, 1)  # of one gate a head

    def __init__(self, g: IkGraph, layer: int) -> None:
        r = g.model.recurrent
        if r is None or not r.time_step_rank or not r.group_count:
            raise MissingTensor("the sizes of the recurrent state")
        self.g, self.layer, self.n = g, layer, g.n_tokens
        self.n_key, self.n_value, self.dim, self.n_conv = r.group_count, r.time_step_rank, r.state_size, r.conv_kernel
        self.dim_value = r.inner_size // r.time_step_rank
        self.n_mixed = 2 * self.dim * self.n_key + self.dim_value * self.n_value

    def build(self, y: Node, sequence: Node, n_embd: int) -> Node:
        g, n, dim_value, n_value = self.g, self.n, self.dim_value, self.n_value
        mixed, z = self._projected(y)
        beta, gate = self._gates(y)
        (stored,) = g.state(self.layer)
        rows = g.view(g.view(stored, stored.ne[:2], stored.nb[1:2]), (stored.ne[0], 1), stored.nb[1:2])
        n_conv, n_state = (self.n_conv - 1) * self.n_mixed, dim_value * dim_value * n_value
        conv = g.reshape(g.view(rows, (n_conv, 1), stored.nb[1:2]), self.n_conv - 1, self.n_mixed, 1)
        state = g.reshape(g.view(rows, (n_state, 1), stored.nb[1:2]), dim_value, dim_value, n_value, 1)
        g.expand(state)
        size = self.n_mixed * n + self.n_conv * self.n_mixed
        convolved = g.new("SSM_CONV", "f32", (size,), conv, mixed, self._kernel(), sequence)
        out = self._delta_rule(convolved, beta, gate, state)
        new_state = g.reshape(g.view(out, (n_state,)), dim_value, dim_value, n_value, 1)
        heads = g.view(
            out, (dim_value, n_value, n, 1), (4 * dim_value, 4 * dim_value * n_value, 4 * dim_value * n_value * n)
        )
        last = g.cont(g.view(convolved, (self.n_conv - 1, self.n_mixed), (self.n_conv * 4,)))
        g.expand(g.copy_into(g.reshape(new_state, n_state, 1), g.view(rows, (n_state, 1), stored.nb[1:2])))
        g.expand(g.copy_into(g.reshape(last, n_conv, 1), g.view(rows, (n_conv, 1), stored.nb[1:2])))
        normed = g.normed(self.layer, "ssm_norm", g.reshape(heads, dim_value, n_value * n))
        gated = g.reshape(self._opened(g.reshape(z, dim_value, n_value * n), normed), dim_value * n_value, n)
        return g.reshape(g.mul_mat(g.first_of(self.layer, "ssm_out.weight", "attn_output.weight"), gated), n_embd, n)

    def _kernel(self) -> Node:
        return self.g.weight(self.layer, "ssm_conv1d.weight")

    def _opened(self, z: Node, out: Node) -> Node:
        return self.g.new("FUSED_MUL_UNARY", z.kind, z.ne, z, out)

    def _projected(self, y: Node) -> tuple[Node, Node]:
        """Return q, k and v side by side [n_mixed, n_tokens], and the output gate z."""
        g, n = self.g, self.n
        joined = g.optional(self.layer, "ssm_in.weight")
        if joined is None:  # newer files: two matrices
            mixed = g.mul_mat(g.weight(self.layer, "attn_qkv.weight"), y)
            z = g.mul_mat(g.weight(self.layer, "attn_gate.weight"), y)
            g.expand(mixed, z)
            return g.reshape(mixed, self.n_mixed, n, 1), z
        n_group = self.dim_value * self.n_value // self.n_key
        x = g.reshape(g.mul_mat(joined, y), 2 * self.dim + 2 * n_group, self.n_key, n)
        q, k, v, z = (g.view(x, (size, self.n_key, n, 1), x.nb[1:]) for size in (self.dim, self.dim, n_group, n_group))
        z = g.cont(z)
        q, k = (g.cont(part, self.dim * self.n_key, n, 1) for part in (q, k))
        v = g.cont(v, self.dim_value * self.n_value, n, 1)
        return g.concat(g.concat(q, k, 0), v, 0), z

    def _gates(self, y: Node) -> tuple[Node, Node]:
        g, n, n_value = self.g, self.n, self.n_value
        joined = g.optional(self.layer, "ssm_ba.weight")
        if joined is not None:
            ratio = n_value // self.n_key
            x = g.reshape(g.mul_mat(joined, y), 2 * ratio, self.n_key, n)
            beta, alpha = (g.view(x, (ratio, self.n_key, n), x.nb[1:3]) for _ in range(2))
            beta, alpha = g.cont(beta, n_value, 1, n, 1), g.cont(alpha, n_value, n, 1)
        else:
            beta = g.reshape(g.mul_mat(g.weight(self.layer, "ssm_beta.weight"), y), n_value, 1, n, 1)
            alpha = g.reshape(g.mul_mat(g.weight(self.layer, "ssm_alpha.weight"), y), n_value, n, 1)
        g.expand(beta, alpha)
        alpha = g.apply("UNARY", g.add(alpha, g.first_of(self.layer, "ssm_dt.bias", "ssm_dt")))
        return beta, g.mul(alpha, g.weight(self.layer, "ssm_a"))

    def _delta_rule(self, convolved: Node, beta: Node, gate: Node, state: Node) -> Node:
        g, n, row = self.g, self.n, 4 * self.n_mixed
        active = g.apply("UNARY", g.view(convolved, (self.n_mixed, n)))
        g.expand(active)
        q, k = (g.view(active, (self.dim, self.n_key, n, 1), (4 * self.dim, row, row * n)) for _ in range(2))
        v = g.view(active, (self.dim_value, self.n_value, n, 1), (4 * self.dim_value, row, row * n))
        q, k = (g.apply("L2_NORM", g.swap_heads(part)) for part in (q, k))
        size = self.dim_value * self.n_value * n + self.dim_value * self.dim_value * self.n_value
        return g.new(
            "DELTA_NET", "f32", (size,), q, k, g.swap_heads(v), g.permute(gate, *self.gate_axes),
            g.permute(beta, 2, 0, 1, 3), g.reshape(state, self.dim_value, self.dim_value * self.n_value, 1, 1),
        )  # fmt: skip


class _KimiDelta(_DeltaNet):
    """A decay for every channel; q, k and v of matrices and convolutions of their own (llama-kda.cpp)."""

    gate_axes = (1, 2, 0, 3)

    def _projected(self, y: Node) -> tuple[Node, Node]:
        g = self.g
        q, k, v = (g.mul_mat(g.weight(self.layer, f"attn_{part}.weight"), y) for part in "qkv")
        z = g.mul_mat(g.first_of(self.layer, "ssm_g_a.weight", "ssm_g.weight"), y)
        mixed = g.concat(g.concat(q, k, 0), v, 0)
        g.expand(mixed, z)
        return mixed, z

    def _gates(self, y: Node) -> tuple[Node, Node]:
        g, n = self.g, self.n
        beta = g.reshape(g.mul_mat(g.weight(self.layer, "ssm_beta.weight"), y), self.n_value, 1, n, 1)
        decay = g.mul_mat(g.first_of(self.layer, "ssm_f_a.weight", "ssm_f.weight"), y)
        decay = g.reshape(decay, self.dim, self.n_value, n, 1)
        decay = g.add(decay, g.reshape(g.weight(self.layer, "ssm_dt.bias"), self.dim, self.n_value, 1, 1))
        decay = g.mul(decay, g.reshape(g.weight(self.layer, "ssm_a"), 1, self.n_value, 1, 1))
        decay = g.apply("SCALE", g.apply("UNARY", decay))
        g.expand(beta, decay)
        return beta, decay

    def _kernel(self) -> Node:
        g, kernels = self.g, [self.g.weight(self.layer, f"ssm_conv1d_{part}.weight") for part in "qkv"]
        q, k, v = (g.reshape(one, one.ne[0], one.ne[1] * one.ne[2] * one.ne[3]) for one in kernels)
        return g.concat(g.concat(q, k, 1), v, 1)

    def _opened(self, z: Node, out: Node) -> Node:
        return self.g.mul(self.g.apply("UNARY", z), out)


ARCHITECTURES: dict[str, Callable[[IkGraph], None]] = {
    "bailingmoe3": bailing3,
    "qwen3next": qwen3_next,
    "qwen35": partial(qwen3_next, images=True),
    "qwen35moe": partial(qwen3_next, images=True),
}
