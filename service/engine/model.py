"""A model: what a header describes. Layers, tensors by role, cache geometry.

Key names are those of llama.cpp's gguf-py/gguf/constants.py; the fallbacks are the engines' own (llama-hparams,
`src/llama-hparams.cpp` of ik_llama.cpp, `src/llama-model.cpp` of llama.cpp).
"""

from __future__ import annotations

import math
import re
from functools import cached_property
from typing import Literal, TypeAlias

import msgspec

from service.engine.errors import UnsupportedModel
from service.engine.gguf import ArraySummary, Header, MetadataValue, Tensor

Role: TypeAlias = Literal[
    "token_embd",
    "output",
    "attention",
    "recurrent",
    "dense_ffn",
    "router",
    "shared_expert",
    "expert",
    "norm",
    "nextn",
    "other",
]

_EXPERT = re.compile(r"\.ffn_(up|gate|down|gate_up)_(ch)?exps\.")
_SHARED = re.compile(r"\.ffn_(up|gate|down)_shexp\.|\.ffn_gate_inp_shexp\.")
_DENSE = re.compile(r"\.ffn_(up|gate|down|up_gate)\.")
_LAYER = re.compile(r"blk\.(\d+)\.")
_MAX_LAYERS = 4_096
_MAX_HEADS = 65_536  # heads of a layer, or elements of a head
_MAX_STATE = 1 << 20  # elements of a recurrent state along one side


class Mla(msgspec.Struct, frozen=True):
    """Multi-head latent attention: sizes in elements a token (cache: kv_lora_rank + rope)."""

    kv_lora_rank: int
    q_lora_rank: int
    rope: int
    nope: int
    value: int


class Recurrent(msgspec.Struct, frozen=True):
    """State of a recurrent layer (ssm.* keys), in elements."""

    conv_kernel: int
    inner_size: int
    state_size: int
    time_step_rank: int
    group_count: int


class Layer(msgspec.Struct, frozen=True):
    """One block. `n_swa` is the sliding window in tokens (0: full attention); head sizes in elements."""

    index: int
    kind: Literal["attention", "recurrent", "nextn"]
    n_head: int
    n_head_kv: int
    head_dim_k: int
    head_dim_v: int
    n_swa: int
    moe: bool


class Model(msgspec.Struct, frozen=True, dict=True):
    """A header understood. `n_layer` counts all blocks, next-token ones too, as the engines' block_count does."""

    architecture: str
    name: str
    metadata: dict[str, MetadataValue]
    tensors: tuple[Tensor, ...]
    n_layer: int
    n_layer_nextn: int
    n_embd: int
    n_vocab: int
    n_ctx_train: int
    n_expert: int
    n_expert_used: int
    layers: tuple[Layer, ...]
    mla: Mla | None
    recurrent: Recurrent | None

    @cached_property
    def by_name(self) -> dict[str, Tensor]:
        """Tensors by their full GGUF name."""
        return {t.name: t for t in self.tensors}

    @cached_property
    def by_layer(self) -> tuple[tuple[Tensor, ...], ...]:
        """Tensors of each block, in file order."""
        found: list[list[Tensor]] = [[] for _ in range(self.n_layer)]
        for tensor in self.tensors:
            index = layer_of(tensor.name)
            if index is not None and index < self.n_layer:
                found[index].append(tensor)
        return tuple(tuple(tensors) for tensors in found)

    @property
    def tied(self) -> bool:
        """Whether the output head is the token embedding."""
        return "output.weight" not in self.by_name

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(t.nbytes for t in self.tensors)

    @cached_property
    def n_elements(self) -> int:
        """Number of weights."""
        return sum(_elements(t) for t in self.tensors)

    @property
    def bpw(self) -> float:
        """Bits per weight over all tensors."""
        return self.n_bytes * 8 / self.n_elements

    @property
    def moe_layers(self) -> tuple[int, ...]:
        """Blocks that run and own routed experts."""
        return tuple(layer.index for layer in self.layers if layer.moe and layer.kind != "nextn")

    @cached_property
    def types(self) -> dict[str, int]:
        """Bytes by tensor type, largest first."""
        total: dict[str, int] = {}
        for t in self.tensors:
            total[t.type] = total.get(t.type, 0) + t.nbytes
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    def value(self, key: str, default: MetadataValue | None = None) -> MetadataValue | None:
        """Return the metadata value `<architecture>.<key>`, or `default`."""
        return self.metadata.get(f"{self.architecture}.{key}", default)

    def int_value(self, key: str, default: int = 0) -> int:
        """Return `<architecture>.<key>` as an int, or `default` when absent, infinite or not a number."""
        return _as_int(self.value(key), default)


def layer_of(name: str) -> int | None:
    """Return the block a tensor name belongs to, or None for tensors outside the blocks."""
    match = _LAYER.match(name)
    return int(match[1]) if match else None


def role_of(name: str) -> Role:
    """Return what a tensor is for, by the GGUF naming conventions (llama.cpp gguf-py/gguf/constants.py)."""
    if name.startswith(("token_embd", "per_layer_token_embd", "position_embd", "token_types")):
        return "token_embd"
    if name.startswith("output."):
        return "output"
    if ".nextn." in name:
        return "nextn"
    for role, pattern in (("expert", _EXPERT), ("shared_expert", _SHARED), ("dense_ffn", _DENSE)):
        if pattern.search(name):
            return role  # type: ignore[return-value]
    if ".ffn_gate_inp" in name or ".exp_probs_b" in name:
        return "router"
    if "_norm." in name:
        return "norm"
    if ".attn_" in name or ".indexer." in name:
        return "attention"
    return "recurrent" if ".ssm_" in name or ".time_mix" in name or ".shortconv" in name else "other"


def build_model(header: Header) -> Model:
    """Return the model that a (merged) header describes.

    Raises UnsupportedModel when the metadata that every language model has is missing or impossible.
    """
    reader = _Reader(header)
    n_layer, nextn = reader.require("block_count"), reader.optional("nextn_predict_layers")
    if not 0 < n_layer <= _MAX_LAYERS or not 0 <= nextn < n_layer:
        raise UnsupportedModel(f"{reader.arch}.block_count is {n_layer} with {nextn} next-token layers")
    n_expert, n_expert_used = _experts(reader)
    return Model(
        architecture=reader.arch,
        name=str(header.metadata.get("general.name", reader.arch))[:200],
        metadata={k: v for k, v in header.metadata.items() if not k.startswith("tokenizer.ggml.")},
        tensors=header.tensors,
        n_layer=n_layer,
        n_layer_nextn=nextn,
        n_embd=reader.require("embedding_length"),
        n_vocab=_vocabulary(reader, header),
        n_ctx_train=reader.optional("context_length", 4096),
        n_expert=n_expert,
        n_expert_used=n_expert_used,
        layers=_layers(reader, header, n_layer, nextn),
        mla=_mla(reader, header),
        recurrent=_recurrent(reader),
    )


class _Reader:
    """Typed access to `<architecture>.*` metadata."""

    def __init__(self, header: Header) -> None:
        arch = header.metadata.get("general.architecture")
        if not isinstance(arch, str) or not arch:
            raise UnsupportedModel("the header has no general.architecture: it is no language model")
        self.arch, self.metadata = arch, header.metadata

    def get(self, key: str) -> MetadataValue | None:
        return self.metadata.get(f"{self.arch}.{key}")

    def require(self, key: str) -> int:
        value = _as_int(self.get(key), 0)
        if value <= 0:
            raise UnsupportedModel(f"the header lacks {self.arch}.{key}, which every language model has")
        return value

    def optional(self, key: str, default: int = 0) -> int:
        return _as_int(self.get(key), default)

    def per_layer(self, key: str, n_layer: int, default: int) -> list[int]:
        value = self.get(key)
        if isinstance(value, list):
            numbers = [_as_int(v, default) for v in value][:n_layer]
            return numbers + [numbers[-1] if numbers else default] * (n_layer - len(numbers))
        return [_as_int(value, default)] * n_layer


def _as_int(value: MetadataValue | None, default: int) -> int:
    if isinstance(value, list):
        value = value[0] if value else None
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else default


def _elements(tensor: Tensor) -> int:
    count = 1
    for d in tensor.dims:
        count *= d
    return count


def _experts(reader: _Reader) -> tuple[int, int]:
    """Return (experts, experts that a token uses); both engines refuse to load what is refused here (load_hparams)."""
    n_expert, n_used = reader.optional("expert_count"), reader.optional("expert_used_count")
    if not 0 <= n_used <= n_expert or (n_expert > 0 and n_used == 0):
        raise UnsupportedModel(f"{reader.arch}.expert_count is {n_expert}, of which a token uses {n_used}")
    return n_expert, n_used


def _vocabulary(reader: _Reader, header: Header) -> int:
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    embedding = next((t for t in header.tensors if t.name == "token_embd.weight"), None)
    if embedding is not None and len(embedding.dims) > 1:
        return embedding.dims[1]
    return tokens.length if isinstance(tokens, ArraySummary) else reader.optional("vocab_size")


def _mla(reader: _Reader, header: Header) -> Mla | None:
    rank, rope = reader.optional("attention.kv_lora_rank"), reader.optional("rope.dimension_count")
    if not rank or not any(t.name.endswith(".attn_kv_a_mqa.weight") for t in header.tensors):
        return None
    key = reader.optional("attention.key_length_mla") or reader.optional("attention.key_length")
    value = reader.optional("attention.value_length_mla") or reader.optional("attention.value_length")
    return Mla(rank, reader.optional("attention.q_lora_rank"), rope, max(key - rope, 0), value)


def _recurrent(reader: _Reader) -> Recurrent | None:
    if not reader.optional("ssm.conv_kernel"):
        return None
    keys = ("conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count")
    found = Recurrent(*(reader.optional(f"ssm.{key}") for key in keys))
    sizes = msgspec.structs.astuple(found)
    if min(sizes) < 0 or max(sizes) > _MAX_STATE or found.time_step_rank > found.inner_size:
        raise UnsupportedModel(f"{reader.arch}.ssm: sizes {', '.join(map(str, sizes))} make no state")
    return found


# Layers with a sliding window when the header has no pattern: (period, position that is NOT windowed); both engines'
# llm_load_hparams. gemma3: every sixth layer is full; gpt-oss: odd ones; llama4: every fourth, no header key.
_SWA_PERIOD = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2, "llama4": 4, "cohere2": 4, "exaone4": 4}
_SWA_DEFAULT = {"llama4": 8192}


def _windows(reader: _Reader, n_layer: int) -> list[int]:
    window = reader.optional("attention.sliding_window", _SWA_DEFAULT.get(reader.arch, 0))
    pattern = reader.get("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        return [window if i < len(pattern) and pattern[i] else 0 for i in range(n_layer)]
    period = pattern if isinstance(pattern, int) and pattern > 0 else _SWA_PERIOD.get(reader.arch, 0)
    if not period:
        return [0] * n_layer
    return [window if (i + 1) % period else 0 for i in range(n_layer)]


def _recurrent_layers(reader: _Reader, header: Header, n_layer: int) -> set[int]:
    names = {layer_of(t.name) for t in header.tensors if ".ssm_" in t.name or ".time_mix" in t.name}
    return {i for i in names if i is not None and i < n_layer}


def _layers(reader: _Reader, header: Header, n_layer: int, nextn: int) -> tuple[Layer, ...]:
    heads = reader.per_layer("attention.head_count", n_layer, 1)
    heads_kv = reader.per_layer("attention.head_count_kv", n_layer, heads[0])
    default = reader.require("embedding_length") // max(heads[0], 1)
    dim_k = reader.per_layer("attention.key_length", n_layer, default)
    dim_v = reader.per_layer("attention.value_length", n_layer, default)
    windows, recurrent = _windows(reader, n_layer), _recurrent_layers(reader, header, n_layer)
    moe = {layer_of(t.name) for t in header.tensors if _EXPERT.search(t.name)}
    layers = []
    for i in range(n_layer):
        kind: Literal["attention", "recurrent", "nextn"] = (
            "nextn" if i >= n_layer - nextn else "recurrent" if i in recurrent else "attention"
        )
        layers.append(Layer(i, kind, heads[i], heads_kv[i], dim_k[i], dim_v[i], windows[i], i in moe))
    _check_heads(reader, layers)
    return tuple(layers)


def _check_heads(reader: _Reader, layers: list[Layer]) -> None:
    """Some layers of pruned models have no heads; no model with attention has none at all, or heads without a size."""
    attending = [layer for layer in layers if layer.kind == "attention"]
    sizes = [n for a in attending for n in (a.n_head, a.n_head_kv, a.head_dim_k, a.head_dim_v)]
    if attending and (
        min(sizes) < 0 or max(sizes) > _MAX_HEADS or not any(a.n_head and a.n_head_kv for a in attending)
    ):
        raise UnsupportedModel(f"{reader.arch}.attention: heads and their sizes from {min(sizes)} to {max(sizes)}")
    if any(a.n_head and not (a.head_dim_k and a.head_dim_v) for a in attending):
        raise UnsupportedModel(f"{reader.arch}.attention: heads without a size")
