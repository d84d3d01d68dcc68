"""The KV cache and recurrent state as llama.cpp shapes their tensors.

Sources: src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp,
llama-kv-cache-dsv4.cpp.
"""

from __future__ import annotations

from typing import NamedTuple

from service.engine.engines.llama_cpp import ARCHITECTURES
from service.engine.layers import Layer
from service.engine.memory.cache import CacheTensor, heads
from service.engine.memory.spec import GraphSpec
from service.engine.model import Mla, Model, Recurrent
from service.engine.units import pad


def keys_values(model: Model, layer: Layer, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    """Return K and V, of a layer with a sliding window for the window only; () for a layer without heads."""
    ratio = model.compression_ratio(layer.index)
    if ratio is not None:
        return compressed(model, layer, ratio, spec)
    n_head, dim_k, dim_v = heads(model, layer)
    no_cache = model.architecture in ARCHITECTURES.having("no_cache")
    if no_cache or (not n_head and not spec.transposed_v):
        return ()
    rows = window_rows(layer.n_swa, spec) if layer.n_swa else spec.n_kv
    width = dim_v * n_head if not spec.transposed_v or model.mla is not None else widest_values(model)
    keys = CacheTensor(spec.type_k, (dim_k * n_head, rows, spec.n_stream))
    return (keys, CacheTensor(spec.type_v, (width, rows, spec.n_stream)))


class Compression(NamedTuple):
    """Rows of DeepSeek V4's caches, of one sequence: the window, and those that stand for 4 and for 128 tokens."""

    raw: int
    fine: int
    coarse: int


def compression(model: Model, spec: GraphSpec) -> Compression:
    """Return the rows of each sequence; there are as many caches as sequences even where these share one elsewhere."""
    window = model.int_value("attention.sliding_window")
    raw = spec.n_kv if spec.swa_full else min(spec.n_kv, pad(window + spec.n_ubatch, 256))
    return Compression(raw, pad(-(-spec.n_kv // 4), 256), pad(-(-spec.n_kv // 128), 256))


def compressed(model: Model, layer: Layer, ratio: int, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    """Return the raw rows, compressed ones, the indexer's, and what waits for each (llama-kv-cache-dsv4.cpp)."""
    size, n, dim = compression(model, spec), spec.n_seq, layer.head_dim_k
    planes = n * (1 + spec.n_snapshots)
    raw = CacheTensor(spec.type_k, (dim, size.raw, n))
    if ratio == 4:
        indexer = model.int_value("attention.indexer.key_length")
        rows = (CacheTensor(spec.type_k, (width, size.fine, n)) for width in (dim, indexer))
        waiting = (CacheTensor("f32", (2 * width, 8, planes)) for width in (dim, dim, indexer, indexer))
        return (raw, *rows, *waiting)
    if ratio == 128:
        waiting = (CacheTensor("f32", (dim, 128, planes)) for _ in range(2))
        return (raw, CacheTensor(spec.type_k, (dim, size.coarse, n)), *waiting)
    return (raw,)


def latent_rows(mla: Mla, layer: Layer, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    """Return the latent rows, of a layer with a sliding window for the window only; in older builds with values."""
    n_rows = window_rows(layer.n_swa, spec) if layer.n_swa else spec.n_kv
    rows = CacheTensor(spec.type_k, (mla.kv_lora_rank + mla.rope, n_rows, spec.n_stream))
    if spec.rules.latent_cache == "rows and values":
        return (rows, CacheTensor(spec.type_v, (mla.kv_lora_rank, spec.n_kv, spec.n_stream)))
    return (rows,)


def indexer_keys(model: Model, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    """Return the indexer's keys, of the type of K (llama-kv-cache-dsa.cpp); with pools their gates and sums as well.

    MiniMax-M3's cache has values, too, which nobody reads (llama-kv-cache-msa.cpp).
    """
    size = model.int_value("attention.indexer.key_length") * (3 if model.int_value("attention.indexer.kpool") else 1)
    keys = CacheTensor(spec.type_k, (size, spec.n_kv, spec.n_stream))
    if model.architecture != "minimax-m3":
        return (keys,)
    return (keys, CacheTensor(spec.type_v, (model.layers[0].head_dim_v, spec.n_kv, spec.n_stream)))


def recurrent_state(recurrent: Recurrent, model: Model, layer: Layer, spec: GraphSpec) -> tuple[CacheTensor, ...]:
    """Return the window of the convolution and the state, each with its snapshots (llama-memory-recurrent.cpp:101).

    A layer with embedded n-grams also keeps some of its convolution (llama_hparams::ple_conv_state).
    """
    n_rows = spec.n_seq * (1 + spec.n_snapshots)
    state = (CacheTensor("f32", (recurrent.n_conv, n_rows)), CacheTensor("f32", (recurrent.n_state, n_rows)))
    layers = model.value("ple.layers")
    if not isinstance(layers, list) or layer.index not in layers:
        return state
    n_last = max(model.int_value("ple.conv_kernel") - 1, 0) * model.int_value("ple.ngram_size")
    width = n_last * model.int_value("hyper_connection.count") * model.n_embd
    return (*state, CacheTensor("f32", (width, n_rows)))


def widest_values(model: Model) -> int:
    """Return the elements of the widest layer's V: all layers' without flash attention (llama-kv-cache.cpp:160)."""
    widths = (la.head_dim_v * la.n_head_kv for la in model.layers if la.attends or la.kind == "nextn")
    return max(widths, default=0)


def window_rows(n_swa: int, spec: GraphSpec) -> int:
    """Return the cache rows of a sliding-window layer (llama-kv-cache-iswa.cpp:71-80).

    One cache for several sequences holds a window for each.
    """
    if spec.swa_full:
        return spec.n_kv
    windows = n_swa * (spec.n_seq if spec.n_stream == 1 else 1)
    return min(spec.n_kv, pad(min(spec.n_kv, windows + spec.n_ubatch), 256))
