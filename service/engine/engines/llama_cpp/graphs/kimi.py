"""llama.cpp: Kimi-Linear, Kimi delta attention with a latent-attention layer without rope in between.

Source: llama.cpp src/models/kimi-linear.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.gqa import after_attention
from service.engine.engines.llama_cpp.graphs.latent import attend_latent
from service.engine.engines.llama_cpp.graphs.recurrent import StateInput, read_state, recurrent_sizes, state_input
from service.engine.memory.graph import Node
from service.engine.memory.graphs.base import MissingTensor


def kimi_linear(g: LlamaGraph) -> None:
    """kimi-linear: the first layer dense, then experts and a shared one."""
    x = g.begin()
    (cache,) = g.cache_inputs(0, latent=True)
    states, ids = state_input(g, 1), g.output_ids()  # the batch that is reserved last has one sequence
    for i in g.layers():
        y = g.norm(x, g.weight(i, "attn_norm.weight"), i)
        g.expand(y)
        y = _delta_attention(g, i, y, states) if g.layer(i).recurs else _latent_attention(g, i, y, cache)
        x = after_attention(g, i, y, x, ids if i == g.n_layer - 1 else None, norm_weights=True)
    g.finish(x)


def _delta_attention(g: LlamaGraph, layer: int, y: Node, states: StateInput) -> Node:
    r, n_seq, n = recurrent_sizes(g), states.n_seq, g.n_tokens // states.n_seq
    dim, n_head, inner = r.state_size, r.time_step_rank, r.inner_size
    conv_cache, state_cache = g.state(layer)
    windows = read_state(g, conv_cache, states)
    q, k, v = (
        g.reshape(_convolved(g, layer, part, y, windows, conv_cache, n_seq), dim, n_head, n, n_seq) for part in "qkv"
    )
    decay = g.mul_mat(g.weight(layer, "ssm_f_b.weight"), g.mul_mat(g.weight(layer, "ssm_f_a.weight"), y))
    decay = g.reshape(g.apply("UNARY", g.add(decay, g.weight(layer, "ssm_dt.bias"))), dim, n_head, n * n_seq)
    decay = g.mul(decay, g.reshape(g.weight(layer, "ssm_a"), 1, n_head, 1))
    decay = g.reshape(decay, dim, n_head, n, n_seq)
    beta = g.reshape(g.mul_mat(g.weight(layer, "ssm_beta.weight"), y), 1, n_head, n, n_seq)
    beta = g.apply("UNARY", beta)
    state = g.reshape(read_state(g, state_cache, states), dim, dim, n_head, n_seq)
    q, k = (g.apply("SCALE", g.apply("RMS_NORM", part)) for part in (q, k))
    out = g.new("GATED_DELTA_NET", "f32", (inner, n * n_seq + dim * n_seq), q, k, v, decay, beta, state)
    heads = g.view(out, (dim, n_head, n, n_seq), (4 * dim, 4 * inner, 4 * inner * n))
    new_state = g.view(out, (dim, dim, n_head, n_seq), (4 * dim, 4 * dim * dim, 4 * dim * inner))
    heads = g.cont(heads)
    g.expand(g.copy_into(new_state, g.view(state_cache, (dim * inner * n_seq,))))
    y = g.reshape(g.reshape(y, y.ne[0], n, n_seq), y.ne[0], n * n_seq)
    gate = g.mul_mat(g.weight(layer, "ssm_g_b.weight"), g.mul_mat(g.weight(layer, "ssm_g_a.weight"), y))
    gate = g.reshape(gate, dim, n_head, n * n_seq)
    normed = g.norm(g.reshape(heads, dim, n_head, n * n_seq), g.weight(layer, "ssm_norm.weight"), layer)
    gated = g.cont(g.mul(normed, g.apply("UNARY", gate)), inner, n * n_seq)
    return g.mul_mat(g.weight(layer, "attn_output.weight"), gated)


def _convolved(g: LlamaGraph, layer: int, part: str, y: Node, windows: Node, cache: Node, n_seq: int) -> Node:
    """Project q, k or v, and convolve it with its third of the window."""
    r = recurrent_sizes(g)
    inner, n_last = r.inner_size, r.conv_kernel - 1
    shape, strides = (n_last, inner, n_seq), (4 * n_last, 4 * r.n_conv)
    x = g.reshape(g.mul_mat(g.weight(layer, f"attn_{part}.weight"), y), inner, g.n_tokens // n_seq, n_seq)
    window = g.concat(g.view(windows, shape, strides), g.transpose(x), 0)
    g.expand(g.copy_into(g.view(window, shape, window.nb[1:3]), g.view(cache, shape, strides)))
    kernel = g.reshape(g.weight(layer, f"ssm_conv1d_{part}.weight"), r.conv_kernel, inner)
    x = g.new("SSM_CONV", "f32", (inner, g.n_tokens // n_seq, n_seq), window, kernel)
    return g.apply("UNARY", g.reshape(x, inner, g.n_tokens))


def _latent_attention(g: LlamaGraph, layer: int, y: Node, cache: CacheInput) -> Node:
    m, n, n_head = g.model.mla, g.n_tokens, g.layer(layer).n_head
    if m is None or not g.spec.mla:
        raise MissingTensor("a latent cache")
    q = g.mul_mat(g.weight(layer, "attn_q.weight"), y)
    latent = g.mul_mat(g.weight(layer, "attn_kv_a_mqa.weight"), y)
    compressed = g.view(latent, (m.kv_lora_rank, n), (latent.nb[1],))
    k_rope = g.view(latent, (m.rope, 1, n), (latent.nb[1], latent.nb[1]))
    compressed = g.norm(compressed, g.weight(layer, "attn_kv_a_norm.weight"), layer)
    strides = (4 * (m.nope + m.rope), 4 * (m.nope + m.rope) * n_head)
    q_nope, q_rope = (g.view(q, (size, n_head, n), strides) for size in (m.nope, m.rope))
    absorbed = g.mul_mat(g.weight(layer, "attn_k_b.weight"), g.swap_heads(q_nope))
    q = g.concat(g.swap_heads(absorbed), q_rope, 0)
    compressed = g.reshape(compressed, m.kv_lora_rank, 1, n)
    return attend_latent(g, layer, q, compressed, g.concat(compressed, k_rope, 0), cache)


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {
    "kimi-linear": kimi_linear,
}
