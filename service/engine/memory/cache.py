"""The KV cache and recurrent state of every layer; each engine shapes its own tensors (`caches.py` in its folder)."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import msgspec

from service.engine.engines import engine_spec
from service.engine.layers import Layer
from service.engine.memory.graph import CUDA_ALIGNMENT, cuda_row_padding, row_size
from service.engine.memory.spec import GraphSpec
from service.engine.model import Mla, Model
from service.engine.units import pad

_MAX_KEPT = 64


class CacheTensor(NamedTuple):
    """One cache tensor: type and shape, `ne[0]` contiguous."""

    kind: str
    ne: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return row_size(self.kind, self.ne[0]) * prod(self.ne[1:])


def cache_tensors(model: Model, spec: GraphSpec, layer: Layer) -> tuple[CacheTensor, ...]:
    """Return the tensors of the layer's cache: what attention reads, then the recurrent state; () for none."""
    attention = attention_cache(model, spec, layer) + indexer_cache(model, spec, layer)
    return attention + recurrent_state(model, spec, layer)


def attention_cache(model: Model, spec: GraphSpec, layer: Layer) -> tuple[CacheTensor, ...]:
    """Return K and V, or K alone (latent); () for layers without attention or with another layer's cache."""
    if layer.kind == "nextn":
        has_cache = spec.next_tokens and engine_spec(spec.engine).memory.caches_next_tokens
        return own_cache(model, spec, layer) if has_cache else ()
    if not layer.attends or cache_owner(model, layer) != layer.index:
        return ()
    return own_cache(model, spec, layer)


def indexer_cache(model: Model, spec: GraphSpec, layer: Layer) -> tuple[CacheTensor, ...]:
    """Return the keys by which sparse attention (DSA) chooses rows; () for layers without an indexer of their own.

    ik makes them whether or not `--dsa` is given (llama.cpp:1432); llama.cpp src/llama-kv-cache-dsa.cpp.
    """
    absent = not model.int_value("attention.indexer.key_length") or not layer.attends
    if absent or (model.mla is not None and not spec.mla) or not full_indexer(model, spec, layer.index):
        return ()
    return engine_spec(spec.engine).memory.indexer_keys(model, spec)


def full_indexer(model: Model, spec: GraphSpec, layer: int) -> bool:
    """Return whether the layer chooses rows itself, not as the last that did."""
    return engine_spec(spec.engine).memory.has_indexer(model, layer)


def recurrent_state(model: Model, spec: GraphSpec, layer: Layer) -> tuple[CacheTensor, ...]:
    """Return the window of the convolution and the state; () for layers without."""
    if not layer.recurs or model.recurrent is None:
        return ()
    return engine_spec(spec.engine).memory.recurrent_state(model.recurrent, model, layer, spec)


def own_cache(model: Model, spec: GraphSpec, layer: Layer) -> tuple[CacheTensor, ...]:
    """Return the cache of a layer, also of a next-token layer, which attends as the model's attention layers do.

    ik src/llama.cpp:1182 (in the main context too, once they are loaded); llama.cpp src/llama-model.cpp:2797.
    """
    memory = engine_spec(spec.engine).memory
    if model.mla is not None and spec.mla:
        return memory.latent_rows(latent_sizes(model, model.mla, layer), layer, spec)
    return memory.keys_values(model, layer, spec)


def latent_sizes(model: Model, mla: Mla, layer: Layer) -> Mla:
    """Return the sizes of a layer's latent attention: windowed layers may have others (dots3note)."""
    rank = model.int_value("attention.kv_lora_rank_swa")
    if not layer.n_swa or not rank:
        return mla
    key, value = (model.int_value(f"attention.{part}_length_mla_swa") for part in ("key", "value"))
    return Mla(rank, mla.q_lora_rank, mla.rope, max(key - mla.rope, 0), value)


def cache_owner(model: Model, layer: Layer) -> int:
    """Return the layer whose cache `layer` reads: the last of its kind that has one where Gemma's layers share theirs.

    Source: llama.cpp src/llama-model.cpp:2781 (reuse).
    """
    n_own = model.n_layer - model.int_value("attention.shared_kv_layers")
    if layer.index < n_own or n_own < 2:
        return layer.index
    return n_own - (2 if layer.n_swa else 1)


def heads(model: Model, layer: Layer) -> tuple[int, int, int]:
    """Return KV heads and head sizes of K and V; a latent model without its latent cache has both for every head."""
    if model.mla is not None:
        return layer.n_head, model.mla.nope + model.mla.rope, model.mla.value
    return layer.n_head_kv, layer.head_dim_k, layer.head_dim_v


def cache_bytes(model: Model, spec: GraphSpec, *, cuda_padding: bool = False) -> tuple[int, ...]:
    """Return the bytes of each block's cache; with `cuda_padding` as a CUDA buffer reserves them."""
    known: dict[tuple[GraphSpec, bool], tuple[int, ...]] = model.__dict__.setdefault("_cache_bytes", {})
    spec = msgspec.structs.replace(spec, rope_owners=())
    found = known.get((spec, cuda_padding))
    if found is None:
        if len(known) >= _MAX_KEPT:
            known.clear()
        found = known[spec, cuda_padding] = _cache_bytes(model, spec, cuda_padding)
    return found


def _cache_bytes(model: Model, spec: GraphSpec, cuda_padding: bool) -> tuple[int, ...]:
    by_shape: dict[tuple[CacheTensor, ...], int] = {}
    found = []
    for layer in model.layers:
        tensors = cache_tensors(model, spec, layer)
        if tensors not in by_shape:
            by_shape[tensors] = sum(_reserved(t) if cuda_padding else t.n_bytes for t in tensors)
        found.append(by_shape[tensors])
    return tuple(found)


def _reserved(t: CacheTensor) -> int:
    return pad(t.n_bytes + cuda_row_padding(t.kind, t.ne[0]), CUDA_ALIGNMENT)
