"""llama.cpp: Kimi delta attention with latent attention in between: Kimi-Linear, Kimi-K3, Ling 3.

Sources: llama.cpp src/models/{kimi-linear,kimi-k3,bailingmoe3,delta-net-base}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.gqa import after_attention, latent_experts
from service.engine.engines.llama_cpp.graphs.latent import attend_latent, latent_rows, query
from service.engine.engines.llama_cpp.graphs.recurrent import StateInput, read_state, recurrent_sizes, state_input
from service.engine.memory.graph import Node


def kimi_linear(g: LlamaGraph) -> None:
    """kimi-linear: latent attention without rope; the first layer dense, then experts and a shared one."""
    x = g.begin()
    (cache,) = g.cache_inputs(0, latent=True)
    states = state_input(g, 1)  # the batch that is reserved last has one sequence
    for i in g.layers():
        y = _mixed(g, i, x, cache, states)
        x = after_attention(g, i, y, x, norm_weights=True)
    g.finish(x)


def bailing3(g: LlamaGraph) -> None:
    """bailingmoe3 (Ling 3): as kimi-linear, with rope, and a gate for each head of latent attention."""
    g.hidden = "normed"
    x = g.begin()
    (cache,) = g.cache_inputs(0, latent=True)
    states = state_input(g, g.spec.n_seq)
    g.position_input(g.model.position_axes)
    for i in g.layers():
        y = _mixed(g, i, x, cache, states, early=False)
        x = after_attention(g, i, y, x, norm_weights=g.expert_weights_norm)
    g.finish(x)


def kimi_k3(g: LlamaGraph) -> None:
    """kimi-k3: what layers read is mixed from the inputs of every block of layers; experts work in a latent space."""
    g.situ = True
    x = g.begin()
    (cache,) = g.cache_inputs(0, latent=True)
    states = state_input(g, g.spec.n_seq)
    block = g.model.int_value("attn_res.block_size")
    bank: Node | None = None
    for i in g.layers():
        y = x if bank is None else _from_bank(g, bank, x, g.weight(i, "attn_res_score.weight"))
        starts = block > 0 and i % block == 0
        if starts:
            row = g.reshape(x, g.model.n_embd, 1, g.n_tokens)
            bank = row if bank is None else g.concat(bank, row, 1)
        y = _mixed(g, i, y, cache, states)
        x = y if starts else g.add(x, y)
        y = x if bank is None else _from_bank(g, bank, x, g.weight(i, "ffn_res_score.weight"))
        y = g.normed(i, "ffn_norm", y)
        x = g.add(x, latent_experts(g, i, y, "routed", g.gating) if g.layer(i).moe else g.feed_forward(i, y))
    if bank is not None:
        x = _from_bank(g, bank, x, g.required("output_res_score.weight"))
    g.finish(g.get_rows(x, g.ids))


def _from_bank(g: LlamaGraph, bank: Node, x: Node, weight: Node) -> Node:
    """Return the sum of the banked rows [n_embd, n_banked, n_tokens] and of x, each by its score."""
    n_banked, n = bank.ne[1], g.n_tokens

    def score(rows: Node) -> Node:
        weighted = g.mul(g.apply("RMS_NORM", rows), weight)
        return g.new("SUM_ROWS", "f32", (1, *weighted.ne[1:]), weighted)

    shares = g.apply("SOFT_MAX", g.concat(g.reshape(score(bank), n_banked, n), score(x), 0))
    of_bank = g.cont(g.view(shares, (n_banked, n), shares.nb[1:2]))
    of_x = g.cont(g.view(shares, (1, n), shares.nb[1:2]))
    summed = g.new("DSV4_HC_PRE", "f32", (x.ne[0], n), bank, of_bank)
    return g.add(summed, g.mul(x, of_x))


def _mixed(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, states: StateInput, *, early: bool = True) -> Node:
    """Return what the layer makes of the tokens together. `early`: the norm is computed before the states are read."""
    y = g.normed(layer, "attn_norm", x)
    if early:
        g.expand(y)
    if g.layer(layer).recurs:
        return delta_attention(g, layer, y, states)
    return _latent_attention(g, layer, y, cache)


def delta_attention(g: LlamaGraph, layer: int, y: Node, states: StateInput) -> Node:
    """Convolve q, k and v, and run the delta rule with a decay for each element; gated, and projected."""
    r, n_seq, n = recurrent_sizes(g), states.n_seq, g.n_tokens // states.n_seq
    dim, n_head, inner = r.state_size, r.time_step_rank, r.inner_size
    conv_cache, state_cache = g.state(layer)
    windows = read_state(g, conv_cache, states)
    q, k, v = (
        g.reshape(_convolved(g, layer, part, y, windows, conv_cache, n_seq), dim, n_head, n, n_seq) for part in "qkv"
    )
    decay = g.reshape(_decay(g, layer, y), dim, n_head, n, n_seq)
    beta = g.reshape(g.mul_mat(g.weight(layer, "ssm_beta.weight"), y), 1, n_head, n, n_seq)
    beta = g.apply("UNARY", beta)
    state = g.reshape(read_state(g, state_cache, states), dim, dim, n_head, n_seq)
    q, k = (g.apply("SCALE", g.apply("RMS_NORM", part)) for part in (q, k))
    out = g.new("GATED_DELTA_NET", "f32", (inner, n * n_seq + dim * n_seq), q, k, v, decay, beta, state)
    heads = g.view(out, (dim, n_head, n, n_seq), (4 * dim, 4 * inner, 4 * inner * n))
    new_state = g.view(out, (dim, dim, n_head, n_seq), (4 * dim, 4 * dim * dim, 4 * dim * inner))
    heads = g.cont(heads)
    g.expand(g.copy_into(new_state, g.view(state_cache, (dim * inner * n_seq,))))
    gate = g.reshape(_output_gate(g, layer, y, n, n_seq), dim, n_head, n * n_seq)
    normed = g.normed(layer, "ssm_norm", g.reshape(heads, dim, n_head, n * n_seq))
    gated = g.cont(g.mul(normed, g.apply("UNARY", gate)), inner, n * n_seq)
    return g.mul_mat(g.weight(layer, "attn_output.weight"), gated)


def _decay(g: LlamaGraph, layer: int, y: Node) -> Node:
    """Return how much of the state each token leaves, by one matrix or two; K3 and Ling 3 bound it from below."""
    r = recurrent_sizes(g)
    second = g.optional(layer, "ssm_f_b.weight")
    decay = g.mul_mat(g.weight(layer, "ssm_f_a.weight"), y)
    decay = g.add(decay if second is None else g.mul_mat(second, decay), g.weight(layer, "ssm_dt.bias"))
    bounded = second is None or g.given("kda.gate_lower_bound")
    if not bounded:
        decay = g.apply("UNARY", decay)
    decay = g.reshape(decay, r.state_size, r.time_step_rank, g.n_tokens)
    decay = g.mul(decay, g.reshape(g.weight(layer, "ssm_a"), 1, r.time_step_rank, 1))
    if not bounded:
        return decay
    return g.apply("SCALE", g.apply("UNARY", decay if second is None else g.apply("SCALE", decay)))


def _output_gate(g: LlamaGraph, layer: int, y: Node, n: int, n_seq: int) -> Node:
    """Return what the result is multiplied with: Ling 3 and K3 have one matrix for it, Kimi-Linear two."""
    first, second = g.first_of(layer, "ssm_g.weight", "ssm_g_a.weight"), g.optional(layer, "ssm_g_b.weight")
    if g.model.architecture.startswith("kimi"):
        y = g.reshape(g.reshape(y, y.ne[0], n, n_seq), y.ne[0], n * n_seq)
    gate = g.mul_mat(first, y)
    return gate if second is None else g.mul_mat(second, gate)


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
    """Attend to the latent rows; only Ling 3 turns them, and only it and K3 have a gate behind."""
    turned = g.model.architecture == "bailingmoe3"
    q, compressed, k = latent_rows(g, layer, query(g, layer, y), y, rope=turned)
    out = attend_latent(g, layer, q, compressed, k, cache, project=False)
    gate = g.optional(layer, "attn_gate.weight")
    if gate is not None:
        n_head = g.layer(layer).n_head
        out = _gated(g, out, g.mul_mat(gate, y), out.ne[0] // n_head, n_head)
    return g.mul_mat(g.weight(layer, "attn_output.weight"), out)


def _gated(g: LlamaGraph, x: Node, gate: Node, dim: int, n_head: int) -> Node:
    """Multiply by one gate an element, or one a head."""
    if gate.ne[0] == x.ne[0]:
        return g.mul(x, g.apply("UNARY", gate))
    opened = g.apply("UNARY", g.reshape(gate, 1, n_head, g.n_tokens))
    return g.cont(g.mul(g.reshape(x, dim, n_head, g.n_tokens), opened), dim * n_head, g.n_tokens)


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {
    "kimi-linear": kimi_linear,
    "kimi-k3": kimi_k3,
    "bailingmoe3": bailing3,
}
