"""A model: what a header describes. Layers, tensors by role, cache geometry.

Key names are those of llama.cpp's gguf-py/gguf/constants.py; the fallbacks are the engines' own (llama-hparams,
`src/llama-hparams.cpp` of ik_llama.cpp, `src/llama-model.cpp` of llama.cpp).
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import msgspec

from service.engine.architectures import architecture
from service.engine.errors import UnsupportedModel
from service.engine.ggml_types import is_known
from service.engine.gguf.header import ArraySummary, Header, MetadataValue, Tensor
from service.engine.layers import Layer, read_layers
from service.engine.metadata import MetadataReader, as_int
from service.engine.overrides import Match, matching
from service.engine.tensor_names import layer_of

_MAX_LAYERS = 4_096
_MAX_STATE = 1 << 20  # elements of a recurrent state along one side


class Mla(msgspec.Struct, frozen=True):
    """Multi-head latent attention: sizes in elements a token (cache: kv_lora_rank + rope)."""

    kv_lora_rank: int
    q_lora_rank: int
    rope: int
    nope: int
    value: int


class Recurrent(msgspec.Struct, frozen=True):
    """State of a recurrent layer (ssm.* keys, shortconv.*, kda.*), in elements.

    A short convolution has no state besides its window; Kimi's delta attention has q, k and v of all heads in it.
    """

    conv_kernel: int
    inner_size: int
    state_size: int
    time_step_rank: int
    group_count: int

    @property
    def n_mixed(self) -> int:
        """Channels of the convolution."""
        return self.inner_size + 2 * self.group_count * self.state_size

    @property
    def n_conv(self) -> int:
        """What a sequence keeps of the convolution's last inputs."""
        return max(self.conv_kernel - 1, 0) * self.n_mixed

    @property
    def n_state(self) -> int:
        """What a sequence keeps as state."""
        return self.state_size * self.inner_size


class Model(msgspec.Struct, frozen=True, dict=True):
    """What a header says. `n_layer` counts all blocks, next-token ones too, as the engines' block_count does.

    `match`: what finds `-ot` patterns in its tensors' names; strangers' patterns want one that can be stopped.
    `misplaced`: as in the header.
    """

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
    match: Match = matching
    misplaced: str | None = None

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

    @property
    def position_axes(self) -> int:
        """Positions a token: 4 where the header splits the rotation into sections (M-RoPE)."""
        sections = self.value("rope.dimension_sections")
        used = sections[:2] if isinstance(sections, list) else []
        return 4 if len(used) == 2 and all(isinstance(n, int) and n > 0 for n in used) else 1

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(t.nbytes for t in self.tensors)

    @cached_property
    def n_elements(self) -> int:
        """Number of weights."""
        return sum(t.n_elements for t in self.tensors)

    @property
    def bpw(self) -> float:
        """Bits per weight over all tensors."""
        return self.n_bytes * 8 / self.n_elements

    @property
    def expert_share(self) -> float:
        """The share of the routed experts that one token uses; 1 where there are none."""
        return self.n_expert_used / self.n_expert if self.n_expert else 1.0

    @cached_property
    def moe_layers(self) -> tuple[int, ...]:
        """Blocks that run and own routed experts."""
        return tuple(layer.index for layer in self.layers if layer.moe and layer.kind != "nextn")

    @cached_property
    def types(self) -> dict[str, int]:
        """Bytes by tensor type, largest first."""
        total = Counter[str]()
        for t in self.tensors:
            total[t.type] += t.nbytes
        return dict(total.most_common())

    def value(self, key: str, default: MetadataValue | None = None) -> MetadataValue | None:
        """Return the metadata value `<architecture>.<key>`, or `default`."""
        return self.metadata.get(f"{self.architecture}.{key}", default)

    def compression_ratio(self, layer: int) -> int | None:
        """Return how many tokens a compressed row of a layer's cache stands for (DeepSeek V4).

        0 where the layer attends to its window alone, None for models that compress nothing.
        """
        ratios = self.value("attention.compress_ratios")
        if not architecture(self.architecture).compressed_rows or not isinstance(ratios, list):
            return None
        found = ratios[layer] if layer < len(ratios) else 0
        return found if isinstance(found, int) else 0

    def int_value(self, key: str, default: int = 0) -> int:
        """Return `<architecture>.<key>` as an int, or `default` when absent, infinite or not a number."""
        return as_int(self.value(key), default)


def build_model(header: Header, match: Match = matching) -> Model:
    """Return the model that a (merged) header describes, with what finds `-ot` patterns in its tensors' names.

    Raises UnsupportedModel when the metadata that every language model has is missing or impossible, or when tensors
    are of a type that neither engine has.
    """
    unknown = sorted(name for name in {tensor.type for tensor in header.tensors} if not is_known(name))
    if unknown:
        raise UnsupportedModel(f"tensors of {', '.join(unknown[:4])}: a type newer than this service knows")
    reader = MetadataReader(header)
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
        layers=read_layers(reader, header, n_layer, nextn),
        mla=_mla(reader, header),
        recurrent=_recurrent(reader),
        match=match,
        misplaced=header.misplaced,
    )


def _experts(reader: MetadataReader) -> tuple[int, int]:
    """Return (experts, experts that a token uses); both engines refuse to load what is refused here (load_hparams)."""
    n_expert, n_used = reader.optional("expert_count"), reader.optional("expert_used_count")
    if not 0 <= n_used <= n_expert or (n_expert > 0 and n_used == 0):
        raise UnsupportedModel(f"{reader.arch}.expert_count is {n_expert}, of which a token uses {n_used}")
    return n_expert, n_used


def _vocabulary(reader: MetadataReader, header: Header) -> int:
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    embedding = next((t for t in header.tensors if t.name == "token_embd.weight"), None)
    if embedding is not None and len(embedding.dims) > 1:
        return embedding.dims[1]
    return tokens.length if isinstance(tokens, ArraySummary) else reader.optional("vocab_size")


def _mla(reader: MetadataReader, header: Header) -> Mla | None:
    rank, rope = reader.optional("attention.kv_lora_rank"), reader.optional("rope.dimension_count")
    if not rank or not any(t.name.endswith(".attn_kv_a_mqa.weight") for t in header.tensors):
        return None
    key = reader.optional("attention.key_length_mla") or reader.optional("attention.key_length")
    value = reader.optional("attention.value_length_mla") or reader.optional("attention.value_length")
    return Mla(rank, reader.optional("attention.q_lora_rank"), rope, max(key - rope, 0), value)


def _recurrent(reader: MetadataReader) -> Recurrent | None:
    found = _state_sizes(reader)
    if found is None:
        return None
    sizes = msgspec.structs.astuple(found)
    if min(sizes) < 0 or max(sizes) > _MAX_STATE or found.time_step_rank > found.inner_size:
        raise UnsupportedModel(f"{reader.arch}.ssm: sizes {', '.join(map(str, sizes))} make no state")
    return found


def _state_sizes(reader: MetadataReader) -> Recurrent | None:
    """llama.cpp src/llama-hparams.cpp:208 (n_embd_r) and :236 (n_embd_s)."""
    window, conv = reader.optional("shortconv.l_cache"), reader.optional("ssm.conv_kernel")
    if window:
        return Recurrent(window, reader.require("embedding_length"), 0, 0, 0)
    head_dim, n_head = reader.optional("kda.head_dim"), reader.optional("attention.head_count")
    if head_dim:
        return Recurrent(conv or 4, n_head * head_dim, head_dim, n_head, n_head)
    if wkv := reader.optional("wkv.head_size"):
        return Recurrent(1 + reader.optional("token_shift_count", 2), reader.require("embedding_length"), wkv, 0, 0)
    if architecture(reader.arch).linear_attention:
        head_dim = reader.optional("attention.key_length") or reader.require("embedding_length") // max(n_head, 1)
        return Recurrent(0, n_head * head_dim, head_dim, n_head, 0)
    if not conv:
        return None
    sizes = ("inner_size", "state_size", "time_step_rank", "group_count")
    return Recurrent(conv, *(reader.optional(f"ssm.{key}") for key in sizes))
