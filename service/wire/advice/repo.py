"""The types of `/v1/repos/{owner}/{name}` and `advisor inspect`: variants, and the model of one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from service.engine.gguf.header import ArraySummary, Header, MetadataValue, Tensor
from service.engine.layers import Layer
from service.engine.model import Model
from service.engine.tensor_names import role_of
from service.structs import made_from

_CACHE_BYTES = {"f16": (2, 1), "q8_0": (34, 32)}  # (bytes, elements) of a block; ggml-common.h: block_q8_0
_MAX_TEXT = 400


class FileView(msgspec.Struct, frozen=True):
    """One file of the repo: its path, size in bytes, and sha256 if the Hub states it."""

    path: str
    n_bytes: int | None = None
    sha256: str | None = None


class HeaderView(msgspec.Struct, frozen=True, kw_only=True):
    """The header of one variant: its size in bytes, number of tensors, bits per weight, and weight bytes by type.

    `by_jump`: parts of the tokenizer were not read but assumed to equal another variant's in the repo.
    """

    n_bytes: int
    n_tensors: int
    bpw: float
    bytes_by_type: dict[str, int]
    by_jump: bool


class VariantView(msgspec.Struct, frozen=True):
    """One quantised model: its name, files (shards in order), and their total bytes.

    If the whole repo was read (`advisor inspect`): its `header`, or in `unreadable` the reason why there is none.
    """

    name: str
    files: list[FileView]
    n_bytes: int | None
    header: HeaderView | None = None
    unreadable: str | None = None


class CostView(msgspec.Struct, frozen=True):
    """The cost of reading: requests (including the listing and each redirect), bytes of files, and seconds."""

    requests: int
    n_bytes: int
    seconds: float


class LayerView(msgspec.Struct, frozen=True, kw_only=True):
    """One block: bytes by role, and cache elements per token. `window`: tokens kept by sliding attention, 0: all."""

    index: int
    kind: str
    n_bytes: int
    roles: dict[str, int]
    n_head: int
    n_head_kv: int
    cache_elements: int
    window: int
    types: list[str]


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """The model in one variant's header. Sizes in bytes; `cache_bytes_per_token`: of all layers, by cache type.

    Metadata is the header's, with long texts cut and vocabularies replaced by their length.
    """

    variant: str
    name: str
    architecture: str
    n_layer: int
    n_layer_nextn: int
    n_embd: int
    n_vocab: int
    n_ctx_train: int
    n_expert: int
    n_expert_used: int
    n_parameters: int
    n_bytes: int
    bpw: float
    tied: bool
    bytes_by_role: dict[str, int]
    bytes_by_type: dict[str, int]
    cache_bytes_per_token: dict[str, int]
    layers: list[LayerView]
    metadata: dict[str, Any]


class RepoView(msgspec.Struct, frozen=True, kw_only=True):
    """A repo at one commit. `other_files`: paths of files that are not variants, by kind (mmproj, imatrix, …).

    `cost`: for `advisor inspect`, the cost of reading the whole repo.
    """

    repo: str
    revision: str | None
    variants: list[VariantView]
    other_files: dict[str, list[str]]
    model: ModelView | None = None
    cost: CostView | None = None


def header_view(header: Header) -> HeaderView:
    """Return the view of a variant's merged header."""
    by_type = _summed((tensor.type, tensor.nbytes) for tensor in header.tensors)
    n_weights = sum(math.prod(tensor.dims) for tensor in header.tensors)
    return HeaderView(
        n_bytes=header.n_bytes,
        n_tensors=len(header.tensors),
        bpw=round(8 * sum(by_type.values()) / max(1, n_weights), 3),
        bytes_by_type=by_type,
        by_jump=header.by_jump,
    )


def model_view(variant: str, model: Model) -> ModelView:
    """Return the view of `model`, from the merged header of `variant`."""
    layers = [_layer_view(model, layer) for layer in model.layers]
    elements = sum(layer.cache_elements for layer in layers)
    return made_from(
        ModelView,
        model,
        variant=variant,
        n_parameters=model.n_elements,
        bpw=round(model.bpw, 3),
        bytes_by_role=_by_role(model.tensors),
        bytes_by_type=model.types,
        cache_bytes_per_token={kind: elements * n // block for kind, (n, block) in _CACHE_BYTES.items()},
        layers=layers,
        metadata={key: _shown(value) for key, value in sorted(model.metadata.items())},
    )


def _layer_view(model: Model, layer: Layer) -> LayerView:
    tensors = model.by_layer[layer.index]
    return made_from(
        LayerView,
        layer,
        n_bytes=sum(tensor.nbytes for tensor in tensors),
        roles=_by_role(tensors),
        cache_elements=_cache_elements(model, layer),
        window=layer.n_swa,
        types=sorted({tensor.type for tensor in tensors}),
    )


def _cache_elements(model: Model, layer: Layer) -> int:
    """Return the elements of K and V per token; latent attention stores only its compressed form."""
    if layer.kind != "attention":
        return 0
    if model.mla:
        return model.mla.kv_lora_rank + model.mla.rope
    return layer.n_head_kv * (layer.head_dim_k + layer.head_dim_v)


def _by_role(tensors: Iterable[Tensor]) -> dict[str, int]:
    return _summed((role_of(tensor.name), tensor.nbytes) for tensor in tensors)


def _summed(parts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the sum of each name's bytes, the largest first."""
    total = Counter[str]()
    for name, n_bytes in parts:
        total[name] += n_bytes
    return dict(total.most_common())


def _shown(value: MetadataValue) -> MetadataValue | dict[str, int]:
    if isinstance(value, ArraySummary):
        return {"length": value.length}
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        return value[:_MAX_TEXT] + "…"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return [_shown(item) for item in value] if isinstance(value, list) else value  # type: ignore[misc]
