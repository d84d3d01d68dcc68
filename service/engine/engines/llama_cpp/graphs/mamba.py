"""llama.cpp: Mamba layers, alone, alongside attention (Nemotron-H, Falcon-H1, Jamba) or as part of Granite 4; LFM2.

Granite and MiniCPM without them too, whose embeddings, residuals and logits are scaled.

Sources: llama.cpp src/models/{mamba-base,mamba,mamba2,nemotron-h,falcon-h1,jamba,lfm2,granite,granite-moe,
granite-hybrid,granite-swa,minicpm}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.gqa import attended, feed_forward, latent_experts
from service.engine.engines.llama_cpp.graphs.recurrent import (
    StateInput,
    read_state,
    recurrent_sizes,
    state_input,
    write_window,
)
from service.engine.memory.graph import Node
from service.engine.memory.graphs.base import MissingTensor, by_name

_WITH_SWITCH = ("granite", "granitehybrid")  # read rope.scaling.finetuned


def mamba2_layer(g: LlamaGraph, layer: int, y: Node, states: StateInput) -> Node:
    """Convolution over x, B and C, then the scan with one decay a head."""
    r, n_seq, n = recurrent_sizes(g), states.n_seq, g.n_tokens // states.n_seq
    n_head, n_group, n_state, n_mixed = r.time_step_rank, r.group_count, r.state_size, r.n_mixed
    if not n_head or not n_group:
        raise MissingTensor("the heads and groups of the recurrent state")
    dim, (conv_cache, state_cache) = r.inner_size // n_head, g.state(layer)
    conv = g.reshape(read_state(g, conv_cache, states), r.conv_kernel - 1, n_mixed, n_seq)
    joined = g.mul_mat(g.weight(layer, "ssm_in.weight"), y)
    joined = g.reshape(joined, joined.ne[0], n, n_seq)
    z = g.view(joined, (dim, n_head, n, n_seq), (4 * dim, *joined.nb[1:3]))
    mixed = g.view(joined, (n_mixed, n, n_seq), joined.nb[1:3])
    step = g.view(joined, (n_head, n, n_seq), joined.nb[1:3])
    window = g.concat(conv, g.transpose(mixed), 0)
    write_window(g, window, conv_cache, r.conv_kernel - 1)
    mixed = _convolved(g, layer, window, (n_mixed, n, n_seq))
    x = g.view(mixed, (dim, n_head, n, n_seq), (4 * dim, *mixed.nb[1:3]))
    b, c = (g.view(mixed, (n_state, n_group, n, n_seq), (4 * n_state, *mixed.nb[1:3])) for _ in range(2))
    step = g.add(g.cont(step), g.weight(layer, "ssm_dt.bias"))
    shape = (n_state, dim, n_head, state_cache.ne[1])
    out = _scan(g, layer, state_cache, states, shape, (x, step, b, c))
    strides = (x.nb[1], n_head * x.nb[1], n * n_head * x.nb[1])
    out = g.add(g.view(out, (dim, n_head, n, n_seq), strides), g.mul(x, g.weight(layer, "ssm_d")))
    out = g.new("GLU", "f32", out.ne, g.cont(z), out)
    norm = g.optional(layer, "ssm_norm.weight")
    if norm is not None:
        out = g.norm(g.reshape(out, r.inner_size // n_group, n_group, n, n_seq), norm, layer)
    return g.mul_mat(g.weight(layer, "ssm_out.weight"), g.reshape(out, r.inner_size, n * n_seq))


def _mamba1_layer(g: LlamaGraph, layer: int, y: Node, states: StateInput) -> Node:
    """Convolution over x, then the scan with one decay a channel and state."""
    r, n_seq, n = recurrent_sizes(g), states.n_seq, g.n_tokens // states.n_seq
    n_state, rank, inner, (conv_cache, state_cache) = r.state_size, r.time_step_rank, r.inner_size, g.state(layer)
    conv = g.reshape(read_state(g, conv_cache, states), r.conv_kernel - 1, inner, n_seq)
    joined = g.mul_mat(g.weight(layer, "ssm_in.weight"), g.reshape(y, y.ne[0], n, n_seq))
    x, z = (g.view(joined, (inner, n, n_seq), joined.nb[1:3]) for _ in range(2))
    window = g.concat(conv, g.transpose(x), 0)
    last = g.view(window, (r.conv_kernel - 1, inner, n_seq), window.nb[1:3])
    g.expand(g.copy_into(last, g.view(conv_cache, (conv.ne[0] * inner * n_seq,))))
    x = _convolved(g, layer, window, (inner, n, n_seq))
    product = g.mul_mat(g.weight(layer, "ssm_x.weight"), x)
    step = g.view(product, (rank, n, n_seq), product.nb[1:3])
    b, c = (g.view(product, (n_state, 1, n, n_seq), (4 * n_state, *product.nb[1:3])) for _ in range(2))
    if g.optional(layer, "ssm_dt_norm.weight") is not None:
        parts = zip(("dt", "b", "c"), (step, b, c), strict=True)
        step, b, c = (g.norm(part, g.weight(layer, f"ssm_{name}_norm.weight"), layer) for name, part in parts)
    else:
        step = g.cont(step)
    step = g.add(g.mul_mat(g.weight(layer, "ssm_dt.weight"), step), g.weight(layer, "ssm_dt.bias"))
    heads, shape = g.reshape(x, 1, inner, n, n_seq), (n_state, 1, inner, state_cache.ne[1])
    out = _scan(g, layer, state_cache, states, shape, (heads, step, b, c), flat=True)
    out = g.add(g.view(out, (inner, n, n_seq), heads.nb[2:4]), g.mul(x, g.weight(layer, "ssm_d")))
    out = g.mul_mat(g.weight(layer, "ssm_out.weight"), g.new("GLU", "f32", out.ne, g.cont(z), out))
    return g.reshape(out, out.ne[0], n * n_seq)


def _convolved(g: LlamaGraph, layer: int, window: Node, shape: tuple[int, ...]) -> Node:
    x = g.new("SSM_CONV", "f32", shape, window, g.weight(layer, "ssm_conv1d.weight"))
    return g.apply("UNARY", g.add(x, g.weight(layer, "ssm_conv1d.bias")))


def _scan(
    g: LlamaGraph, layer: int, cache: Node, states: StateInput, shape: tuple[int, ...], parts: tuple[Node, ...],
    flat: bool = False,
) -> Node:  # fmt: skip
    """Run the scan and keep the new state, with Mamba 2 once for every way back; `flat`: as one row (Mamba 1)."""
    x, step, b, c = parts
    n_out, n_kept = x.ne[0] * x.ne[1] * x.ne[2] * x.ne[3], 1 if flat else 1 + g.spec.n_snapshots
    size, n_seq = shape[0] * shape[1] * shape[2], states.n_seq

    def read(rows: Node, ids: Node) -> Node:
        decay = g.weight(layer, "ssm_a")
        total = n_out + n_kept * size * n_seq
        return g.new("SSM_SCAN", "f32", (total,), g.reshape(rows, *shape), x, step, decay, b, c, ids)

    out = read_state(g, cache, states, read)
    if flat:
        g.expand(g.copy_into(g.view(out, (size * n_seq,)), g.view(cache, (size * n_seq,))))
    else:
        kept = g.view(out, (size, n_seq, n_kept), (4 * size, 4 * size * n_seq))
        slot = 4 * size * (cache.ne[1] // n_kept)
        g.expand(g.copy_into(kept, g.view(cache, (size, n_seq, n_kept), (cache.nb[1], slot))))
    return out


def nemotron_h(g: LlamaGraph) -> None:
    """nemotron_h, nemotron_h_moe: each block a Mamba layer, attention without rope, or feed-forward, on one norm."""
    g.hidden = "normed"
    x = g.begin()
    (cache,) = g.cache_inputs(0)
    states = state_input(g, g.spec.n_seq)
    for i in g.layers():
        y = g.normed(i, "attn_norm", x)
        if g.layer(i).recurs:
            y = mamba2_layer(g, i, y, states)
        elif g.layer(i).attends:
            y = attended(g, i, y, cache, rope=False)
        else:
            y = latent_experts(g, i, y, "latent", "sigmoid") if g.layer(i).moe else g.feed_forward(i, y)
        x = g.add(y, x)
    g.finish(x)


def falcon_h1(g: LlamaGraph) -> None:
    """falcon-h1: attention and a Mamba layer side by side on the same norm (made twice)."""
    x = g.begin()
    g.position_input()
    (cache,) = g.cache_inputs(0)
    states = state_input(g, g.spec.n_seq)
    for i in g.layers():
        q, k, v = g.query_key_value(i, g.normed(i, "attn_norm", x), norm=False)
        attended = g.attend(i, cache, g.rope(q), g.rope(k), v)
        y = mamba2_layer(g, i, g.normed(i, "attn_norm", x), states)
        x = g.add(g.add(attended, y), x)
        (x,) = g.last_rows(i, x)
        x = g.add(g.feed_forward(i, g.norm(x, g.weight(i, "ffn_norm"), i)), x)
    g.finish(x)


def jamba(g: LlamaGraph) -> None:
    """jamba: Mamba 1 layers, a few of attention without rope between, experts in some."""
    x = g.begin()
    (cache,) = g.cache_inputs(0)
    states = state_input(g, g.spec.n_seq)
    for i in g.layers():
        y = g.normed(i, "attn_norm", x)
        y = _mamba1_layer(g, i, y, states) if g.layer(i).recurs else attended(g, i, y, cache, rope=False)
        y, x = g.last_rows(i, y, x)
        h = g.add(x, y)
        y = g.normed(i, "ffn_norm", h)
        x = g.add(h, feed_forward(g, i, y, norm_weights=False))
    g.finish(x)


def mamba2(g: LlamaGraph) -> None:
    """mamba2, mamba: nothing but recurrent layers."""
    layer_of = _mamba1_layer if g.model.architecture == "mamba" else mamba2_layer
    x = g.begin()
    states = state_input(g, g.spec.n_seq)
    for i in g.layers():
        y = layer_of(g, i, g.normed(i, "attn_norm", x), states)
        y, x = g.last_rows(i, y, x)
        x = g.add(y, x)
    g.finish(x)


def lfm2(g: LlamaGraph) -> None:
    """lfm2, lfm2moe: gated short convolution or attention, then a dense layer or experts."""
    x = g.begin()
    (cache,) = g.cache_inputs(0)
    states = state_input(g, g.spec.n_seq)
    g.position_input()
    for i in g.layers():
        y = g.normed(i, "attn_norm", x)
        y = _convolution(g, i, y, states) if g.layer(i).recurs else attended(g, i, y, cache)
        y, x = g.last_rows(i, y, x)
        x = g.add(x, y)
        y = g.normed(i, "ffn_norm", x)
        x = g.add(x, feed_forward(g, i, y, norm_weights=True))
    g.logits(g.output(g.norm(x, g.required("token_embd_norm.weight"), None)))


def _convolution(g: LlamaGraph, layer: int, y: Node, states: StateInput) -> Node:
    r, n_seq, n = recurrent_sizes(g), states.n_seq, g.n_tokens // states.n_seq
    width, n_last = r.inner_size, r.conv_kernel - 1
    cache = g.state(layer)[0]
    joined = g.mul_mat(g.weight(layer, "shortconv.in_proj.weight"), g.reshape(y, y.ne[0], n, n_seq))
    b, c, x = (g.view(joined, (width, n, n_seq), joined.nb[1:3]) for _ in range(3))
    product = g.transpose(g.mul(b, x))
    window = g.concat(g.reshape(read_state(g, cache, states), n_last, width, n_seq), product, 0)
    write_window(g, window, cache, n_last)
    kernel = g.weight(layer, "shortconv.conv.weight")
    gated = g.mul(c, g.new("SSM_CONV", "f32", (width, n, n_seq), window, kernel))
    out = g.mul_mat(g.weight(layer, "shortconv.out_proj.weight"), gated)
    return g.reshape(out, out.ne[0], n * n_seq)


def granite(g: LlamaGraph) -> None:
    """granite, granitemoe, granite_swa, granitehybrid, minicpm: scaled, with a shared expert where there is one."""
    x = g.begin()
    if _given(g, "embedding_scale"):
        x = g.apply("SCALE", x)
        g.expand(x)
    g.position_input()
    caches = g.cache_inputs(0, g.window) if g.window else g.cache_inputs(0)
    states = state_input(g, g.spec.n_seq)
    for i in g.layers():
        y = g.normed(i, "attn_norm", x)
        y = (
            mamba2_layer(g, i, y, states)
            if g.layer(i).recurs
            else _granite_attention(g, i, y, caches[1 if g.layer(i).n_swa else 0])
        )
        y, x = g.last_rows(i, y, x)
        h = g.add(_scaled(g, y), x)
        y = g.normed(i, "ffn_norm", h)
        x = g.add(_scaled(g, feed_forward(g, i, y, norm_weights=True)), h)
    g.finish(x, scale=g.given("logit_scale") or g.model.architecture != "granitehybrid")


def _granite_attention(g: LlamaGraph, layer: int, y: Node, cache: CacheInput) -> Node:
    q, k, v = g.query_key_value(layer, y, norm=False)
    if _turns(g, layer):
        factors = g.rope_factors(layer)
        q, k = g.rope(q, factors), g.rope(k, factors)
    return g.attend(layer, cache, q, k, v, sinks=g.optional(layer, "attn_sinks.weight"))


def _turns(g: LlamaGraph, layer: int) -> bool:
    """Whether the layer has rope: by a switch of the header, or a pattern of the layers."""
    if g.model.architecture in _WITH_SWITCH:
        return bool(g.model.value("rope.scaling.finetuned", True))
    pattern = g.model.value("attention.rope_pattern")
    return not isinstance(pattern, list) or layer >= len(pattern) or bool(pattern[layer])


def _scaled(g: LlamaGraph, x: Node) -> Node:
    return g.apply("SCALE", x) if _given(g, "residual_scale") else x


def _given(g: LlamaGraph, key: str) -> bool:
    """Whether the header has a factor; MiniCPM has one of its own where it does not (src/models/minicpm.cpp)."""
    return g.given(key, 1.0 if g.model.architecture == "minicpm" else 0.0)


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = by_name(
    {
        "granite granitemoe granitehybrid minicpm granite_swa": granite,
        "nemotron_h nemotron_h_moe": nemotron_h,
        "falcon-h1": falcon_h1,
        "jamba": jamba,
        "mamba mamba2": mamba2,
        "lfm2 lfm2moe": lfm2,
    }
)
