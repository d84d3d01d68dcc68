"""The KV cache and recurrent state of every layer, as each engine shapes its tensors.

Sources: ik src/llama.cpp llama_kv_cache_init; llama.cpp src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp,
llama-memory-recurrent.cpp.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from service.engine.layers import Layer
from service.engine.memory.graph import CUDA_ALIGNMENT, cuda_row_padding, row_size
from service.engine.memory.spec import GraphSpec
from service.engine.model import Mla, Model, Recurrent
from service.engine.units import pad

SPARSE_ARCHITECTURES = frozenset({"glm-dsa", "deepseek32"})
_CONTEXT_WITH_SHARED_INDEXERS = 1 << 20
_MAX_KEPT = 64


class CacheTensor(NamedTuple):
    """One cache tensor: type and shape, `ne[0]` contiguous."""

    kind: str
    ne: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of the contiguous tensor."""
        rows = 1
        for n in self.ne[1:]:
            rows *= n
        return row_size(self.kind, self.ne[0]) * rows


def cache_tensors(model: Model, spec: GraphSpec, layer: Layer) -> tuple[CacheTensor, ...]:
    """Return the tensors of the layer's cache: what attention reads, then the recurrent state; () for none."""
    attention = attention_cache(model, spec, layer) + indexer_cache(model, spec, layer)
    return attention + recurrent_state(model, spec, layer)


def attention_cache(model: Model, spec: GraphSpec, layer: Layer) -> tuple[CacheTensor, ...]:
    """Return K and V, or K alone (latent); () for layers without attention or with another layer's cache."""
    ik = spec.engine == "ik_llama.cpp"
    if layer.kind == "nextn":
        return next_token_cache(model, spec, layer) if ik and spec.next_tokens else ()
    if not layer.attends or cache_owner(model, layer) != layer.index:
        return ()
    if model.mla is not None and spec.mla:
        return _latent_ik(model.mla, spec) if ik else _latent_llama(model.mla, spec)
    return _keys_values_ik(model, layer, spec) if ik else _keys_values_llama(model, layer, spec)


def indexer_cache(model: Model, spec: GraphSpec, layer: Layer) -> tuple[CacheTensor, ...]:
    """Return the keys by which sparse attention (DSA) chooses rows; () for layers without an indexer of their own.

    ik makes them whether or not `--dsa` is given (llama.cpp:1432); llama.cpp src/llama-kv-cache-dsa.cpp.
    """
    size = model.int_value("attention.indexer.key_length")
    if not size or layer.kind == "nextn" or not spec.mla or not full_indexer(model, spec, layer.index):
        return ()
    if spec.engine == "ik_llama.cpp":
        return (CacheTensor(spec.type_indexer, (size, spec.n_kv)),)
    return (CacheTensor(spec.type_k, (size, spec.n_kv, spec.n_stream)),)


def full_indexer(model: Model, spec: GraphSpec, layer: int) -> bool:
    """Return whether the layer chooses rows itself, not as the last that did.

    ik llama-hparams.cpp:1917 (always GLM-5.2's schedule); llama.cpp src/models/glm-dsa.cpp:56, deepseek32.cpp.
    """
    ik = spec.engine == "ik_llama.cpp"
    if model.architecture not in (SPARSE_ARCHITECTURES - {"deepseek32"} if ik else SPARSE_ARCHITECTURES):
        return False
    types = model.value("attention.indexer.types")
    if isinstance(types, list) and layer < len(types) and not ik:
        return bool(types[layer])
    shared = ik or (model.architecture == "glm-dsa" and model.n_ctx_train >= _CONTEXT_WITH_SHARED_INDEXERS)
    return not shared or layer <= 1 or layer % 4 == 2


def recurrent_state(model: Model, spec: GraphSpec, layer: Layer) -> tuple[CacheTensor, ...]:
    """Return the window of the convolution and the state, in ik one tensor; () for layers without."""
    if not layer.recurs or model.recurrent is None:
        return ()
    return (_state_ik if spec.engine == "ik_llama.cpp" else _state_llama)(model.recurrent, spec)


def next_token_cache(model: Model, spec: GraphSpec, layer: Layer) -> tuple[CacheTensor, ...]:
    """Return the cache of a next-token layer, where it has one: it attends as the model's attention layers do.

    ik src/llama.cpp:1182 (in the main context too, once they are loaded); llama.cpp src/llama-model.cpp:2797.
    """
    if model.mla is not None and spec.mla:
        return (_latent_ik if spec.engine == "ik_llama.cpp" else _latent_llama)(model.mla, spec)
    return (_keys_values_ik if spec.engine == "ik_llama.cpp" else _keys_values_llama)(model, layer, spec)


def cache_owner(model: Model, layer: Layer) -> int:
    """Return the layer whose cache `layer` reads: the last of its kind that has one where Gemma's layers share theirs.

    Source: llama.cpp src/llama-model.cpp:2781 (reuse).
    """
    n_own = model.n_layer - model.int_value("attention.shared_kv_layers")
    if layer.index < n_own or n_own < 2:
        return layer.index
    return n_own - (2 if layer.n_swa else 1)


def unshared_bytes(model: Model, spec: GraphSpec, layer: Layer) -> int:
    """Return the bytes that the layer's own keys and values would take in ik, if it did not read another's."""
    return sum(t.n_bytes for t in _keys_values_ik(model, layer, spec))


def _state_ik(r: Recurrent, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    state = (r.inner_size // max(r.time_step_rank, 1)) ** 2 * r.time_step_rank
    return (CacheTensor("f32", (r.n_conv + state, spec.n_seq)),)


def _state_llama(r: Recurrent, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    n_rows = spec.n_seq * (1 + spec.n_snapshots)  # llama-memory-recurrent.cpp:101
    return (CacheTensor("f32", (r.n_conv, n_rows)), CacheTensor("f32", (r.n_state, n_rows)))


def _latent_ik(mla: Mla, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    row = mla.kv_lora_rank + mla.rope
    if spec.flash_attn:
        return (CacheTensor(spec.type_k, (row, spec.n_kv)),)
    if spec.mla == 1:
        transposed = CacheTensor(spec.type_v, (mla.kv_lora_rank * spec.n_kv,))
        return (CacheTensor(spec.type_k, (row, spec.n_kv)), transposed)
    return (CacheTensor(spec.type_v, (row, spec.n_kv)),)


def _latent_llama(mla: Mla, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    rows = CacheTensor(spec.type_k, (mla.kv_lora_rank + mla.rope, spec.n_kv, spec.n_stream))
    if spec.rules.latent_cache == "rows and values":
        return (rows, CacheTensor(spec.type_v, (mla.kv_lora_rank, spec.n_kv, spec.n_stream)))
    return (rows,)


def heads(model: Model, layer: Layer) -> tuple[int, int, int]:
    """Return KV heads and head sizes of K and V; a latent model without its latent cache has both for every head."""
    if model.mla is not None:
        return layer.n_head, model.mla.nope + model.mla.rope, model.mla.value
    return layer.n_head_kv, layer.head_dim_k, layer.head_dim_v


def _keys_values_ik(model: Model, layer: Layer, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    n_head, dim_k, dim_v = heads(model, layer)
    if not n_head:
        return ()
    keys = CacheTensor(spec.type_k, (dim_k, n_head * spec.n_kv))
    return (keys, CacheTensor(spec.type_v, (dim_v * n_head * spec.n_kv,)))


def _keys_values_llama(model: Model, layer: Layer, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    n_head, dim_k, dim_v = heads(model, layer)
    if not n_head and not spec.transposed_v:
        return ()
    rows = window_rows(layer.n_swa, spec) if layer.n_swa else spec.n_kv
    width = dim_v * n_head if not spec.transposed_v or model.mla is not None else widest_values(model)
    keys = CacheTensor(spec.type_k, (dim_k * n_head, rows, spec.n_stream))
    return (keys, CacheTensor(spec.type_v, (width, rows, spec.n_stream)))


def widest_values(model: Model) -> int:
    """Return the elements of the widest layer's V: all layers' without flash attention (llama-kv-cache.cpp:160)."""
    return max(la.head_dim_v * la.n_head_kv for la in model.layers if la.attends or la.kind == "nextn")


def window_rows(n_swa: int, spec: GraphSpec) -> int:
    """Return the cache rows of a sliding-window layer in llama.cpp (llama-kv-cache-iswa.cpp:71-80).

    One cache for several sequences holds a window for each.
    """
    if spec.swa_full:
        return spec.n_kv
    windows = n_swa * (spec.n_seq if spec.n_stream == 1 else 1)
    return min(spec.n_kv, pad(min(spec.n_kv, windows + spec.n_ubatch), 256))


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
