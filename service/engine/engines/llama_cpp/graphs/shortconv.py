"""llama.cpp: LFM2, short convolutions with a few attention layers between.

Source: llama.cpp src/models/lfm2.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.llama_cpp.graphs.blocks import LlamaGraph
from service.engine.engines.llama_cpp.graphs.gqa import attended, feed_forward
from service.engine.engines.llama_cpp.graphs.recurrent import (
    StateInput,
    read_state,
    recurrent_sizes,
    state_input,
    write_window,
)
from service.engine.memory.graph import Node


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


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {
    "lfm2": lfm2,
    "lfm2moe": lfm2,
}
