"""llama.cpp: multi-head latent attention (DeepSeek V2 to R1, Kimi K2, Mistral 4), always on the latent rows.

Source: llama.cpp src/models/deepseek2.cpp, whose graph mistral4.cpp shares.
"""

from __future__ import annotations

from collections.abc import Callable

from service.engine.engines.llama_cpp.graphs.blocks import CacheInput, LlamaGraph
from service.engine.engines.llama_cpp.graphs.gqa import after_attention
from service.engine.memory.cache import latent_sizes
from service.engine.memory.graph import Node, row_size
from service.engine.memory.graphs.base import MissingTensor


def deepseek2(g: LlamaGraph) -> None:
    """deepseek2, mistral4: queries absorbed into the latent rows, dense layers first, then experts.

    Queries are scaled by position where the header has a temperature.
    """
    x = g.begin()
    g.position_input()
    scale = g.input("f32", 1, 1, g.n_tokens) if g.given("attention.temperature_scale") else None
    (cache,) = g.cache_inputs(0, latent=True)
    for i in g.layers():
        y = _attention(g, i, g.normed(i, "attn_norm", x), cache, scale)
        x = after_attention(g, i, y, x, norm_weights=g.expert_weights_norm)
    g.finish(x)


def query(g: LlamaGraph, layer: int, y: Node) -> Node:
    """Return the queries of all heads, by one matrix or two with a norm between."""
    if g.optional(layer, "attn_q_a.weight") is None:
        return g.mul_mat(g.weight(layer, "attn_q.weight"), y)
    return g.mul_mat(g.weight(layer, "attn_q_b.weight"), low_rank_query(g, layer, y))


def low_rank_query(g: LlamaGraph, layer: int, y: Node) -> Node:
    """Return what the first of two matrices makes of `y`, normed."""
    return g.normed(layer, "attn_q_a_norm", g.mul_mat(g.weight(layer, "attn_q_a.weight"), y))


def _attention(g: LlamaGraph, layer: int, y: Node, cache: CacheInput, scale: Node | None) -> Node:
    q, n_head = query(g, layer, y), g.layer(layer).n_head
    q, compressed, k = latent_rows(g, layer, g.reshape(q, q.ne[0] // n_head, n_head, g.n_tokens), y)
    return attend_latent(g, layer, q if scale is None else g.mul(q, scale), compressed, k, cache)


def latent_rows(g: LlamaGraph, layer: int, q: Node, y: Node, *, rope: bool = True) -> tuple[Node, Node, Node]:
    """Return the queries absorbed into the latent rows, the values in them, and them. Raises MissingTensor."""
    n, n_head = g.n_tokens, g.layer(layer).n_head
    k_b = g.weight(layer, "attn_k_b.weight")
    if g.model.mla is None or not g.spec.mla:
        raise MissingTensor("a latent cache")
    m = latent_sizes(g.model, g.model.mla, g.layer(layer))
    if k_b.ne[1] != m.kv_lora_rank:
        raise MissingTensor("matrices of one slice a head")
    rank = m.kv_lora_rank
    head = 4 * (m.nope + m.rope)
    parts = (head, head * n_head)
    latent = g.mul_mat(g.weight(layer, "attn_kv_a_mqa.weight"), y)
    compressed = g.view(latent, (rank, n), (latent.nb[1],))
    k_rope = g.view(latent, (m.rope, 1, n), (latent.nb[1], latent.nb[1]))
    k_norm = g.optional(layer, "attn_k_norm.weight")
    k_rope = k_rope if k_norm is None else g.norm(k_rope, k_norm, layer)
    compressed = g.normed(layer, "attn_kv_a_norm", compressed)
    q_nope = g.swap_heads(g.view(q, (m.nope, n_head, n), parts))
    q_rope = g.view(q, (m.rope, n_head, n), parts)
    if rope:
        q_rope, k_rope = g.rope(q_rope), g.rope(k_rope)
    absorbed = g.swap_heads(g.mul_mat(k_b, q_nope))
    q = g.concat(absorbed, q_rope, 0)
    compressed = g.reshape(compressed, rank, 1, n)
    k = g.concat(compressed, k_rope, 0)
    return q, compressed, k


def attend_latent(
    g: LlamaGraph, layer: int, q: Node, compressed: Node, k: Node, cache: CacheInput, *, project: bool = True,
    sinks: Node | None = None,
) -> Node:  # fmt: skip
    """Store the latent rows k, attend with queries absorbed into them, and project; `compressed` has the values."""
    rank, width = compressed.ne[0], k.ne[0]
    g.expand(q, compressed, k)
    keys = g.cache(layer)[0]
    g.store_rows(keys, k, cache.k_ids)
    row = row_size(keys.kind, width)
    k = g.view(keys, (width, 1, cache.n_rows, g.spec.n_stream), (row, row, row * cache.n_rows))
    v = g.view(k, (rank, 1, cache.n_rows, g.spec.n_stream), k.nb[1:])
    out = g.attention(q, k, v, cache.mask, sinks, expand_v=g.weight(layer, "attn_v_b.weight"))
    return g.mul_mat(g.weight(layer, "attn_output.weight"), out) if project else out


def indexer_key(g: LlamaGraph, layer: int, y: Node) -> Node:
    """Return the key by which an indexer finds each token: a product, with a norm that takes off the mean."""
    k = g.apply("NORM", g.mul_mat(g.weight(layer, "indexer.attn_k.weight"), y))
    g.pin(k, layer)
    return g.add(g.mul(k, g.weight(layer, "indexer.k_norm.weight")), g.weight(layer, "indexer.k_norm.bias"))


ARCHITECTURES: dict[str, Callable[[LlamaGraph], None]] = {"deepseek2": deepseek2, "mistral4": deepseek2}
