"""llama.cpp: hyper-connections, several residual streams that each layer reads a mixture of and adds to.

Sources: llama.cpp src/models/deepseek4.cpp (build_hc_pre, build_hc_post, build_hc_head), hy-v4.cpp (the same names).
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from service.engine.engines.llama_cpp.graphs.blocks import LlamaGraph
from service.engine.memory.graph import Node


class Gates(NamedTuple):
    """How a layer's result is added to the streams: `post` a factor a stream, `comb` how the streams mix."""

    post: Node
    comb: Node


def streams(g: LlamaGraph, x: Node) -> Node:
    """Return the embeddings as so many equal streams [n_embd, n_streams, n_tokens]."""
    n_streams = g.model.int_value("hyper_connection.count")
    x = g.reshape(x, g.model.n_embd, 1, g.n_tokens)
    return g.new("REPEAT", "f32", (g.model.n_embd, n_streams, g.n_tokens), x)


def mixes(g: LlamaGraph, x: Node, fn: Node) -> Node:
    """Return what one matrix makes of all streams of a token side by side."""
    n_embd, n_streams, n = x.ne[:3]
    return g.mul_mat(fn, g.apply("RMS_NORM", g.reshape(x, n_embd * n_streams, n)))


def read_streams(g: LlamaGraph, layer: int, part: str, x: Node) -> tuple[Node, Gates]:
    """Return the mixture that the layer's `part` (attn, ffn) reads, and how its result goes back (DeepSeek V4)."""
    n_streams, n = x.ne[1:3]
    scale, base = _scale_and_base(g, layer, part)
    mixed, pre, post = _mixed_gates(g, layer, part, x)
    comb = g.new("DSV4_HC_COMB", "f32", (n_streams, n_streams, n), mixed, scale, base)
    return g.new("DSV4_HC_PRE", "f32", (x.ne[0], n), x, pre), Gates(post, comb)


def _scale_and_base(g: LlamaGraph, layer: int, part: str) -> tuple[Node, Node]:
    return g.weight(layer, f"hc_{part}_scale.weight"), g.weight(layer, f"hc_{part}_base.weight")


def _mixed_gates(g: LlamaGraph, layer: int, part: str, x: Node) -> tuple[Node, Node, Node]:
    """The mixed streams, and the gates before and after the layer's part that are made of them."""
    n_streams, n = x.ne[1:3]
    fn, (scale, base) = g.weight(layer, f"hc_{part}_fn.weight"), _scale_and_base(g, layer, part)
    mixed = mixes(g, x, fn)
    pre, post = (
        g.apply("SCALE", g.apply("UNARY", _affine(g, g.view(mixed, (n_streams, n), mixed.nb[1:2]), scale, base)))
        for _ in range(2)
    )
    return mixed, pre, post


def _affine(g: LlamaGraph, x: Node, scale: Node, base: Node) -> Node:
    return g.add(g.mul(x, g.view(scale, (1,))), g.view(base, (x.ne[0],)))


def write_streams(g: LlamaGraph, x: Node, residual: Node, gates: Gates) -> Node:
    """Return the streams with the result `x` of a layer's part added."""
    return g.new("DSV4_HC_POST", "f32", residual.ne, x, residual, *gates)


def read_equal_streams(g: LlamaGraph, layer: int, part: str, x: Node) -> tuple[Node, Node]:
    """As `read_streams`, of streams that never mix; what a result is multiplied with for each (Hy4)."""
    _, pre, post = _mixed_gates(g, layer, part, x)
    return summed_streams(g, x, pre, cast=True), g.apply("SCALE", post)


def write_equal_streams(g: LlamaGraph, x: Node, residual: Node, post: Node) -> Node:
    """Return the streams, each with its share of `x` added."""
    n_embd, n_streams, n = residual.ne[:3]
    x, post, residual = (g.cast(part, "f32") for part in (x, post, residual))

    def stream() -> Node:
        share = g.mul(x, g.view(post, (1, n), post.nb[1:2]))
        return g.reshape(g.add(g.view(residual, (n_embd, n), residual.nb[2:3]), share), n_embd, 1, n)

    return g.cast(reduce(lambda out, one: g.concat(out, one, 1), (stream() for _ in range(n_streams))), "f32")


def last_streams(g: LlamaGraph, x: Node) -> Node:
    """Return the streams of the rows that logits are wanted for."""
    n_embd, n_streams, n = x.ne[:3]
    flat = g.get_rows(g.reshape(x, n_embd * n_streams, n), g.ids)
    return g.reshape(flat, n_embd, n_streams, flat.ne[1])


def mean_of_streams(g: LlamaGraph, x: Node) -> Node:
    """Return the mean of all streams."""
    n_embd, n_streams, n = x.ne[:3]
    total = g.view(x, (n_embd, n), x.nb[2:3])
    for _ in range(n_streams - 1):
        total = g.add(total, g.view(x, (n_embd, n), x.nb[2:3]))
    return g.apply("SCALE", total)


def joined_streams(g: LlamaGraph, x: Node, *, cast: bool = False) -> Node:
    """Return the one stream that the head reads: the sum of all, each by its share."""
    shares = mixes(g, x, g.required("output_hc_fn.weight"))
    shares = g.add(g.mul(shares, g.required("output_hc_scale.weight")), g.required("output_hc_base.weight"))
    return summed_streams(g, x, g.apply("SCALE", g.apply("UNARY", shares)), cast=cast)


def summed_streams(g: LlamaGraph, x: Node, shares: Node, *, cast: bool = False) -> Node:
    """Return the sum of the streams by their shares, one operation at a time; `cast`: from a copy and as one."""
    n_embd, n_streams, n = x.ne[:3]
    x = g.cast(x, "f32") if cast else x

    def part() -> Node:
        return g.mul(g.view(x, (n_embd, n), x.nb[2:3]), g.view(shares, (1, n), shares.nb[1:2]))

    total = reduce(g.add, (part() for _ in range(n_streams)))
    return g.cast(total, "f32") if cast else total


def unlimited(g: LlamaGraph, layer: int, y: Node) -> Node:
    """Return what the dense layer or the experts make of `y`, never cut off (glm5-next.cpp, hy-v4.cpp)."""
    if not g.layer(layer).moe:
        return g.feed_forward(layer, y)
    routed = g.routed_experts(layer, y, g.gating, g.expert_weights_norm, g.expert_weights_scale)
    return g.add(routed, g.feed_forward(layer, y, "_shexp"))
