"""The KV cache and recurrent state as ik_llama.cpp shapes their tensors: src/llama.cpp llama_kv_cache_init."""

from __future__ import annotations

from service.engine.layers import Layer
from service.engine.memory.cache import CacheTensor, heads
from service.engine.memory.spec import GraphSpec
from service.engine.model import Mla, Model, Recurrent
from service.engine.units import pad

FINE, COARSE = 4, 128  # tokens that a compressed row of DeepSeek V4 stands for


def keys_values(model: Model, layer: Layer, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    """Return K and V: every layer has all rows, also one with a sliding window; a layer without heads no row of K."""
    if model.architecture == "deepseek4":
        # Keys of all tokens, which are values too; compressed rows, the indexer's, and what waits for the next of each.
        # Source: src/llama-dsv4.cpp:883 (ensure_dsv4_cache_tensors).
        ratio, dim, n = model.compression_ratio(layer.index) or 0, layer.head_dim_k, spec.n_seq
        raw = CacheTensor(spec.type_k, (dim, layer.n_head_kv * spec.n_kv))
        if not ratio:
            return (raw,)
        rows = pad(-(-spec.n_kv // ratio), 256) * n
        if ratio == COARSE:
            return (raw, CacheTensor(spec.type_k, (dim, rows)), *[CacheTensor("f32", (dim, COARSE * n))] * 2)
        indexer = model.int_value("attention.indexer.key_length")
        waiting = [CacheTensor("f32", (2 * width, 2 * FINE * n)) for width in (dim, dim, indexer, indexer)]
        return (raw, CacheTensor(spec.type_k, (dim, rows)), CacheTensor(spec.type_indexer, (indexer, rows)), *waiting)
    n_head, dim_k, dim_v = heads(model, layer)
    if not n_head:
        return (CacheTensor(spec.type_k, (dim_k, 0)),)  # of which a card reserves the padding, if quantised
    keys = CacheTensor(spec.type_k, (dim_k, n_head * spec.n_kv))
    return (keys, CacheTensor(spec.type_v, (dim_v * n_head * spec.n_kv,)))


def latent_rows(mla: Mla, layer: Layer, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    """Return the latent rows, and with `-mla 1` without flash attention their values by column."""
    row = mla.kv_lora_rank + mla.rope
    if spec.flash_attn:
        return (CacheTensor(spec.type_k, (row, spec.n_kv)),)
    if spec.mla == 1:
        transposed = CacheTensor(spec.type_v, (mla.kv_lora_rank * spec.n_kv,))
        return (CacheTensor(spec.type_k, (row, spec.n_kv)), transposed)
    return (CacheTensor(spec.type_v, (row, spec.n_kv)),)


def recurrent_state(recurrent: Recurrent, model: Model, layer: Layer, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    """Return the window of the convolution and the state as one tensor."""
    state = (recurrent.inner_size // max(recurrent.time_step_rank, 1)) ** 2 * recurrent.time_step_rank
    return (CacheTensor("f32", (recurrent.n_conv + state, spec.n_seq)),)
