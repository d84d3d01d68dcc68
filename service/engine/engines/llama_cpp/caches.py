"""The KV cache and recurrent state as llama.cpp shapes their tensors.

Sources: src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp.
"""

from __future__ import annotations

from service.engine.layers import Layer
from service.engine.memory.cache import CacheTensor, heads
from service.engine.memory.spec import GraphSpec
from service.engine.model import Mla, Model, Recurrent
from service.engine.units import pad


def keys_values(model: Model, layer: Layer, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    """Return K and V, of a layer with a sliding window for the window only; () for a layer without heads."""
    n_head, dim_k, dim_v = heads(model, layer)
    if not n_head and not spec.transposed_v:
        return ()
    rows = window_rows(layer.n_swa, spec) if layer.n_swa else spec.n_kv
    width = dim_v * n_head if not spec.transposed_v or model.mla is not None else widest_values(model)
    keys = CacheTensor(spec.type_k, (dim_k * n_head, rows, spec.n_stream))
    return (keys, CacheTensor(spec.type_v, (width, rows, spec.n_stream)))


def latent_rows(mla: Mla, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    """Return the latent rows, in older builds with their values."""
    rows = CacheTensor(spec.type_k, (mla.kv_lora_rank + mla.rope, spec.n_kv, spec.n_stream))
    if spec.rules.latent_cache == "rows and values":
        return (rows, CacheTensor(spec.type_v, (mla.kv_lora_rank, spec.n_kv, spec.n_stream)))
    return (rows,)


def recurrent_state(r: Recurrent, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    """Return the window of the convolution and the state, each with its snapshots (llama-memory-recurrent.cpp:101)."""
    n_rows = spec.n_seq * (1 + spec.n_snapshots)
    return (CacheTensor("f32", (r.n_conv, n_rows)), CacheTensor("f32", (r.n_state, n_rows)))


def widest_values(model: Model) -> int:
    """Return the elements of the widest layer's V: all layers' without flash attention (llama-kv-cache.cpp:160)."""
    return max(la.head_dim_v * la.n_head_kv for la in model.layers if la.attends or la.kind == "nextn")


def window_rows(n_swa: int, spec: GraphSpec) -> int:
    """Return the cache rows of a sliding-window layer (llama-kv-cache-iswa.cpp:71-80).

    One cache for several sequences holds a window for each.
    """
    if spec.swa_full:
        return spec.n_kv
    windows = n_swa * (spec.n_seq if spec.n_stream == 1 else 1)
    return min(spec.n_kv, pad(min(spec.n_kv, windows + spec.n_ubatch), 256))
