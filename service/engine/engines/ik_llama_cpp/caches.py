"""The KV cache and recurrent state as ik_llama.cpp shapes their tensors: src/llama.cpp llama_kv_cache_init."""

from __future__ import annotations

from service.engine.layers import Layer
from service.engine.memory.cache import CacheTensor, heads
from service.engine.memory.spec import GraphSpec
from service.engine.model import Mla, Model, Recurrent


def keys_values(model: Model, layer: Layer, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    """Return K and V: every layer has all rows, also one with a sliding window; () for a layer without heads."""
    n_head, dim_k, dim_v = heads(model, layer)
    if not n_head:
        return ()
    keys = CacheTensor(spec.type_k, (dim_k, n_head * spec.n_kv))
    return (keys, CacheTensor(spec.type_v, (dim_v * n_head * spec.n_kv,)))


def latent_rows(mla: Mla, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    """Return the latent rows, and with `-mla 1` without flash attention their values by column."""
    row = mla.kv_lora_rank + mla.rope
    if spec.flash_attn:
        return (CacheTensor(spec.type_k, (row, spec.n_kv)),)
    if spec.mla == 1:
        transposed = CacheTensor(spec.type_v, (mla.kv_lora_rank * spec.n_kv,))
        return (CacheTensor(spec.type_k, (row, spec.n_kv)), transposed)
    return (CacheTensor(spec.type_v, (row, spec.n_kv)),)


def recurrent_state(r: Recurrent, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    """Return the window of the convolution and the state as one tensor."""
    state = (r.inner_size // max(r.time_step_rank, 1)) ** 2 * r.time_step_rank
    return (CacheTensor("f32", (r.n_conv + state, spec.n_seq)),)
