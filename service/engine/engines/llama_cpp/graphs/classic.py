"""llama.cpp: decoders of 2019 to 2024: norms with a mean and a bias, learned or no positions, parallel branches.

Sources: llama.cpp src/models/{gpt2,starcoder,starcoder2,bloom,mpt,gptneox,falcon,phi2,codeshell,jais,jais2,orion,
nemotron,stablelm,baichuan,refact,olmo,openelm,plamo,dbrx,arctic,pockettts}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.gqa import attended, decoder, feed_forward, standard_layer
from service.engine.memory.graph import Node
from service.engine.memory.graphs.base import by_name


def with_mean(g: LlamaGraph, *, rope: bool = True, squared: bool = False, n_axes: int = 1) -> None:
    """Norms with a mean, attention, residual, norm, feed-forward (GELU, or ReLU `squared`), residual."""
    g.norm_op, g.squared = "NORM", squared
    decoder(g, partial(_sequential, rope=rope), n_axes=n_axes)


def _sequential(g: LlamaGraph, layer: int, x: Node, cache: CacheInput, *, rope: bool) -> Node:
    y = attended(g, layer, g.norm(x, g.optional(layer, "attn_norm.weight"), layer), cache, rope=rope)
    h = g.with_residual(layer, y, x)
    y = g.norm(h, g.optional(layer, "ffn_norm.weight"), layer)
    return g.add(feed_forward(g, layer, y, norm_weights=True), h)


def learned_positions(g: LlamaGraph) -> None:
    """gpt2, starcoder: an embedding of each position is added to that of the token."""
    g.norm_op, g.squared = "NORM", False
    decoder(g, partial(_sequential, rope=False), learned=True)


def mpt(g: LlamaGraph) -> None:
    """mpt: distances bias the scores; embedded positions where the file has them."""
    learned = g.find("position_embd.weight") is not None
    g.norm_op, g.squared, g.clamps = "NORM", False, g.given("attention.clamp_kqv")
    decoder(g, partial(_sequential, rope=False), n_axes=int(learned), learned=learned)


def bloom(g: LlamaGraph) -> None:
    """bloom: embeddings are normed; distances bias the scores."""
    g.norm_op, g.squared = "NORM", False
    x = g.norm(g.begin(), g.required("token_embd_norm.weight"), 0)
    decoder(g, partial(_sequential, rope=False), x, n_axes=0)


def baichuan(g: LlamaGraph) -> None:
    """baichuan: only the model of 32 layers rotates Q and K."""
    decoder(g, partial(_sequential, rope=g.model.n_layer == 32))


def olmo(g: LlamaGraph) -> None:
    """olmo, dbrx: Q, K and V are cut off at a largest value; OLMo's norms have no weights."""
    g.norm_op, g.clamps = "NORM", g.given("attention.clamp_kqv")
    decoder(g, partial(_sequential, rope=True))


def dbrx(g: LlamaGraph) -> None:
    """dbrx: norms with a mean, experts, Q, K and V cut off at a largest value."""
    g.norm_op, g.clamps = "NORM", g.given("attention.clamp_kqv")

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        h = g.with_residual(layer, attended(g, layer, g.normed(layer, "attn_norm", x), cache), x)
        return g.add(feed_forward(g, layer, g.normed(layer, "attn_output_norm", h), norm_weights=True), h)

    decoder(g, layer_of)


def parallel(g: LlamaGraph, *, mean: bool = True, scaled: bool = False) -> None:
    """falcon, phi2 (queries `scaled`), plamo (norms without a mean): attention and feed-forward read the same."""
    g.norm_op, g.squared = "NORM" if mean else "RMS_NORM", False

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        normed = g.normed(layer, "attn_norm", x)
        second = g.optional(layer, "attn_norm_2.weight")
        y = normed if second is None else g.norm(x, second, layer)
        y, x, normed = g.last_rows(layer, attended(g, layer, y, cache, scaled=scaled), x, normed)
        out = g.feed_forward(layer, normed)
        return g.add(g.add(y, out) if scaled else g.add(out, y), x)

    decoder(g, layer_of)


def gptneox(g: LlamaGraph) -> None:
    """gptneox: attention and feed-forward side by side, each with its norm, if the header says so."""
    if not g.model.value("use_parallel_residual"):
        with_mean(g)
        return
    g.norm_op, g.squared = "NORM", False

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        y = attended(g, layer, g.normed(layer, "attn_norm", x), cache)
        y, x = g.last_rows(layer, y, x)
        out = g.feed_forward(layer, g.normed(layer, "ffn_norm", x))
        return g.add(g.add(out, x), y)

    decoder(g, layer_of)


def stablelm(g: LlamaGraph) -> None:
    """stablelm: a layer without a second norm gives its feed-forward what attention has read."""
    g.norm_op = "NORM"

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        normed = g.normed(layer, "attn_norm", x)
        y, x, normed = g.last_rows(layer, attended(g, layer, normed, cache), x, normed)
        h, second = g.add(y, x), g.optional(layer, "ffn_norm.weight")
        return g.add(g.feed_forward(layer, normed if second is None else g.norm(h, second, layer)), h)

    decoder(g, layer_of)


def openelm(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    """openelm: Q, K and V are heads of one product."""
    y = g.normed(layer, "attn_norm", x)
    sizes = g.head_sizes(layer)
    both = g.mul_mat(g.weight(layer, "attn_qkv.weight"), y)
    both = g.reshape(both, sizes[0][0], sum(n for _, n in sizes), g.n_tokens)
    q, k, v = (g.view(both, (dim, n, g.n_tokens), both.nb[1:3]) for dim, n in sizes)
    q, k = g.norm_heads(layer, q, k)
    y, x = g.last_rows(layer, g.attend(layer, cache, g.rope(q), g.rope(k), v), x)
    h = g.add(x, y)
    return g.add(g.feed_forward(layer, g.normed(layer, "ffn_norm", h)), h)


def arctic(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
    """arctic: a dense layer in the residual, and experts that read what attention has read."""
    y = attended(g, layer, g.normed(layer, "attn_norm", x), cache)
    y, x = g.last_rows(layer, y, x)
    h = g.add(y, x)
    dense = g.add(g.feed_forward(layer, g.normed(layer, "ffn_norm", h)), h)
    y = g.normed(layer, "ffn_norm_exps", x)
    return g.add(g.routed_experts(layer, y, "softmax", True, g.expert_weights_scale), dense)


def gemma(g: LlamaGraph) -> None:
    """gemma: embeddings and queries are scaled."""
    decoder(g, partial(standard_layer, with_factors=False, scaled=True), g.apply("SCALE", g.begin()))


def talkie(g: LlamaGraph) -> None:
    """talkie: norms without weights, and the normed embeddings added after every layer."""
    skipped = g.norm(g.begin(), None, None)

    def layer_of(g: LlamaGraph, layer: int, x: Node, cache: CacheInput) -> Node:
        q, k, v = g.query_key_value(layer, g.norm(x, None, layer), norm=False)
        q = g.normed(layer, "attn_q_norm", g.rope(q))
        y, x, skip = g.last_rows(layer, g.attend(layer, cache, q, g.norm(g.rope(k), None, layer), v), x, skipped)
        h = g.add(y, x)
        h = g.add(g.feed_forward(layer, g.norm(h, None, layer)), h)
        return g.add(h, g.mul(skip, g.weight(layer, "layer_output_scale.weight")))

    decoder(g, layer_of, skipped, scale=True)


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = by_name(
    {
        "gpt2 starcoder": learned_positions,
        "starcoder2 codeshell pockettts orion": with_mean,
        "jais": partial(with_mean, rope=False, n_axes=0),
        "jais2 nemotron": partial(with_mean, squared=True),
        "mpt": mpt,
        "bloom": bloom,
        "refact": partial(decoder, layer_of=partial(_sequential, rope=False), n_axes=0),  # as Llama, without rotation
        "baichuan": baichuan,
        "olmo": olmo,
        "dbrx": dbrx,
        "falcon": parallel,
        "phi2": partial(parallel, scaled=True),
        "plamo": partial(parallel, mean=False),
        "gptneox": gptneox,
        "stablelm": stablelm,
        "openelm": partial(decoder, layer_of=openelm),
        "arctic": partial(decoder, layer_of=arctic),
        "gemma": gemma,
        "talkie": talkie,
    }
)
