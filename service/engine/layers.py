"""The blocks of a model as its header describes them: kind, heads, sliding windows, experts."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from service.engine.architectures import architecture
from service.engine.errors import UnsupportedModel
from service.engine.gguf.header import Header
from service.engine.metadata import MetadataReader
from service.engine.tensor_names import is_expert, layer_of

_MAX_HEADS = 65_536  # heads of a layer, or elements of a head


Kind: TypeAlias = Literal["attention", "recurrent", "parallel", "feed_forward", "nextn"]
_RECURRENT = (".ssm_", ".time_mix", ".shortconv.")
_ATTENTION = (".attn_q", ".attn_kv", ".attn_k")


class Layer(msgspec.Struct, frozen=True):
    """One block. `n_swa` is the sliding window in tokens (0: full attention); head sizes in elements.

    `kind` is what mixes tokens: attention, a recurrent state, both on the same input (parallel), or nothing (a block of
    a hybrid model that is feed-forward alone); nextn: a next-token block, which the model itself does not run.
    """

    index: int
    kind: Kind
    n_head: int
    n_head_kv: int
    head_dim_k: int
    head_dim_v: int
    n_swa: int
    moe: bool

    @property
    def attends(self) -> bool:
        """Whether attention over a cache is among what the block does."""
        return self.kind in ("attention", "parallel")

    @property
    def recurs(self) -> bool:
        """Whether the block has a recurrent state."""
        return self.kind in ("recurrent", "parallel")


def _windows(reader: MetadataReader, n_layer: int) -> list[int]:
    facts = architecture(reader.arch)
    window = reader.optional("attention.sliding_window", facts.window)
    pattern = reader.get("attention.sliding_window_pattern")
    if facts.windowed_layers not in (None, n_layer):
        return [0] * n_layer
    if isinstance(pattern, list):
        return [window if i < len(pattern) and pattern[i] else 0 for i in range(n_layer)]
    period = pattern if isinstance(pattern, int) and pattern > 0 else facts.window_period
    if not period:
        return [0] * n_layer
    full = 0 if facts.full_layer_first else period - 1
    return [window if i % period != full else 0 for i in range(n_layer)]


def _kinds(reader: MetadataReader, header: Header, n_layer: int, nextn: int) -> list[Kind]:
    """What each block is, by the tensors that it has."""
    linear = (".attn_norm_2.",) if architecture(reader.arch).linear_attention else ()
    recurrent = {layer_of(t.name) for t in header.tensors if any(part in t.name for part in _RECURRENT + linear)}
    attention = {layer_of(t.name) for t in header.tensors if any(part in t.name for part in _ATTENTION)}
    kinds: list[Kind] = []
    for i in range(n_layer):
        if i >= n_layer - nextn:
            kinds.append("nextn")
        elif i in recurrent:
            kinds.append("parallel" if architecture(reader.arch).parallel else "recurrent")
        else:
            kinds.append("feed_forward" if recurrent and i not in attention else "attention")
    return kinds


def read_layers(reader: MetadataReader, header: Header, n_layer: int, nextn: int) -> tuple[Layer, ...]:
    """Return all blocks, next-token ones last. Raises UnsupportedModel for heads that no model has."""
    heads = reader.per_layer("attention.head_count", n_layer, 1)
    heads_kv = reader.per_layer("attention.head_count_kv", n_layer, heads[0])
    default = reader.require("embedding_length") // max(heads[0], 1)
    dim_k = reader.per_layer("attention.key_length", n_layer, default)
    dim_v = reader.per_layer("attention.value_length", n_layer, default)
    windows, kinds = _windows(reader, n_layer), _kinds(reader, header, n_layer, nextn)
    for i in range(n_layer):
        if windows[i]:  # windowed layers may have heads of another size
            dim_k[i] = reader.optional("attention.key_length_swa", dim_k[i])
            dim_v[i] = reader.optional("attention.value_length_swa", dim_v[i])
    moe = {layer_of(t.name) for t in header.tensors if is_expert(t.name)}
    layers = []
    for i in range(n_layer):
        layers.append(Layer(i, kinds[i], heads[i], heads_kv[i], dim_k[i], dim_v[i], windows[i], i in moe))
    _check_heads(reader, layers)
    return tuple(layers)


def _check_heads(reader: MetadataReader, layers: list[Layer]) -> None:
    """Some layers of pruned models have no heads; no model with attention has none at all, or heads without a size."""
    attending = [layer for layer in layers if layer.attends]
    sizes = [n for a in attending for n in (a.n_head, a.n_head_kv, a.head_dim_k, a.head_dim_v)]
    if attending and (
        min(sizes) < 0 or max(sizes) > _MAX_HEADS or not any(a.n_head and a.n_head_kv for a in attending)
    ):
        raise UnsupportedModel(f"{reader.arch}.attention: heads and their sizes from {min(sizes)} to {max(sizes)}")
    if any(a.n_head and not (a.head_dim_k and a.head_dim_v) for a in attending):
        raise UnsupportedModel(f"{reader.arch}.attention: heads without a size")
