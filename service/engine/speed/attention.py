"""Attention over the cache: bytes read and operations, for one token and for a micro-batch."""

from __future__ import annotations

from typing import Literal, TypeAlias

from service.engine.speed.work import Attention, Work

Form: TypeAlias = Literal["heads", "latent", "mla2", "expanded"]


def token_form(work: Work) -> Form:
    """Return how one token attends: to cached heads, or to the latent (ik_llama.cpp docs, -mla)."""
    if work.mla is None or work.mla_mode == 0:
        return "heads"
    return "mla2" if work.mla_mode == 2 else "latent"


def batch_form(work: Work) -> Form:
    """Return how a micro-batch attends: to heads with -mla 0, and with 2 and 3 for flash attention, else to the latent.

    Without flash attention 1, 2 and 3 do the same (ik_llama.cpp pull requests 235 and 273: equal speeds at 16k).
    """
    if work.mla is None:
        return "heads"
    return "latent" if work.mla_mode == 1 or (work.mla_mode and not work.flash) else "expanded"


def visible(layer: Attention, n_kv: float, n_tokens: float) -> float:
    """Return the cached rows that a layer reads at depth `n_kv`: its window at most, and the compressed ones."""
    rows = min(n_kv, layer.n_swa + n_tokens) if layer.n_swa else n_kv
    return rows + n_kv / layer.compressed if layer.compressed else rows


def cache_bytes(work: Work, layer: Attention, n_kv: float) -> float:
    """Return the bytes of the cache that one token reads in all layers of the group."""
    form = token_form(work)
    if work.mla is None:
        row = layer.n_head_kv * (layer.head_dim_k * work.cache_k + layer.head_dim_v * work.cache_v)
    elif form == "heads":
        row = layer.n_head * ((work.mla.nope + work.mla.rope) * work.cache_k + work.mla.value * work.cache_v)
    else:
        row = (work.mla.kv_lora_rank + work.mla.rope) * work.cache_k
        if form == "mla2":
            row += work.mla.kv_lora_rank * 2  # the transposed f16 copy of V
    return layer.count * visible(layer, n_kv, 0) * row


def latent_operations(work: Work, layer: Attention, n_kv: float) -> float:
    """Return the operations of one token over the latent cache in all layers of the group; 0 without MLA."""
    if work.mla is None or work.mla_mode == 0:
        return 0.0
    width = 2 * work.mla.kv_lora_rank + work.mla.rope
    return layer.count * 2 * n_kv * layer.n_head * width


def token_operations(work: Work, layer: Attention, n_kv: float) -> float:
    """Return the operations of one token over the cache in all layers of the group."""
    if work.mla is not None and work.mla_mode:
        return latent_operations(work, layer, n_kv)
    return layer.count * 2 * visible(layer, n_kv, 0) * layer.n_head * _head_width(work, layer)


def batch_operations(work: Work, layer: Attention, n_tokens: int, n_kv: int) -> float:
    """Return the operations of a micro-batch that starts at depth `n_kv`, in all layers of the group.

    Each token sees on average three quarters of the batch: whole tiles are computed, half of them masked.
    """
    seen = visible(layer, n_kv + 0.75 * n_tokens, n_tokens)
    form = batch_form(work)
    if form == "latent" and work.mla is not None:
        width = 2 * work.mla.kv_lora_rank + work.mla.rope
        return layer.count * 2 * n_tokens * seen * layer.n_head * width
    operations = 2 * n_tokens * seen * layer.n_head * _head_width(work, layer)
    if form == "expanded" and work.mla is not None and work.mla_mode:
        heads = layer.n_head * (work.mla.nope + work.mla.value)
        operations += 2 * (n_kv + n_tokens) * work.mla.kv_lora_rank * heads
    return layer.count * operations


def _head_width(work: Work, layer: Attention) -> int:
    if work.mla is not None:
        return work.mla.nope + work.mla.rope + work.mla.value
    return layer.head_dim_k + layer.head_dim_v


def heads_a_kv_head(work: Work, layer: Attention) -> int:
    """Return the query heads that share one KV head; 1 where the latent is cached."""
    return 1 if work.mla is not None else max(layer.n_head // max(layer.n_head_kv, 1), 1)
