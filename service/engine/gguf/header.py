"""What a GGUF header holds, and how the headers of shards become one."""

from __future__ import annotations

from math import prod
from typing import TypeAlias

import msgspec

from service.engine.errors import InvalidHeader


class ArraySummary(msgspec.Struct, frozen=True):
    """A large metadata array, of which only the length is kept."""

    length: int


MetadataValue: TypeAlias = int | float | str | bool | list[int | float | bool | str] | ArraySummary


class Tensor(msgspec.Struct, frozen=True):
    """One row of the tensor table. `dims[0]` is the row length; `offset` is in bytes of its shard's data section."""

    name: str
    type: str
    dims: tuple[int, ...]
    offset: int
    nbytes: int

    @property
    def n_elements(self) -> int:
        """Return the number of weights."""
        return prod(self.dims)


class Header(msgspec.Struct, frozen=True):
    """Metadata and tensor table of one file; `n_bytes` is where the data section begins.

    `by_jump` says that parts of large arrays were not read but taken to be as in another file of the same repo
    (window.py). `misplaced` describes the first tensor that is not stored right after the one before it, which not
    every engine accepts; it is None if there is none.
    """

    metadata: dict[str, MetadataValue]
    tensors: tuple[Tensor, ...]
    n_bytes: int
    by_jump: bool = False
    misplaced: str | None = None


def merge_shards(headers: list[Header]) -> Header:
    """Return one header with the metadata of the first shard and the tensors of all.

    Raises InvalidHeader when the shards are not a complete set (split.no, split.count, split.tensors.count).
    """
    if not headers:
        raise InvalidHeader("no file to read")
    first = headers[0].metadata
    count = first.get("split.count", 1)
    if len(headers) > 1 or (isinstance(count, int) and count > 1):
        _check_split(headers)
    tensors = {t.name: t for header in headers for t in header.tensors}
    if len(tensors) != sum(len(h.tensors) for h in headers):
        raise InvalidHeader("two shards have a tensor of the same name")
    n_bytes, by_jump = sum(h.n_bytes for h in headers), any(h.by_jump for h in headers)
    misplaced = next((h.misplaced for h in headers if h.misplaced), None)
    return Header(first, tuple(tensors.values()), n_bytes, by_jump, misplaced)


def _check_split(headers: list[Header]) -> None:
    for number, header in enumerate(headers):
        count, place = header.metadata.get("split.count"), header.metadata.get("split.no")
        if count != len(headers):
            raise InvalidHeader(f"shard {number + 1} says the model has {count} shards, {len(headers)} were found")
        if place != number:
            raise InvalidHeader(f"shard {number + 1} says it is number {place}: the files are mixed up")
    total = headers[0].metadata.get("split.tensors.count")
    if isinstance(total, int) and total > 0 and total != sum(len(h.tensors) for h in headers):
        raise InvalidHeader(f"the first shard announces {total} tensors, the shards hold another number")


# `general.type` and `general.architecture` as llama.cpp's converters write them (gguf-py constants.py: GGUFType,
# MODEL_ARCH); a drafter of next-token layers has those alone, without the model's own first layer.
_TYPES = {
    "adapter": "an adapter (LoRA)", "mmproj": "a projector for images or sound", "imatrix": "an importance matrix",
    "vocab": "a vocabulary",
}  # fmt: skip
_ARCHITECTURES = {
    "clip": "a projector for images or sound", "dflash": "a drafter (DFlash)", "dflash-draft": "a drafter (DFlash)",
    "eagle3": "a drafter (EAGLE-3)",
}  # fmt: skip


def what_else(header: Header) -> str | None:
    """Return what the file is in words, None for what may be a language model."""
    kind, architecture = header.metadata.get("general.type"), header.metadata.get("general.architecture")
    if isinstance(kind, str) and kind in _TYPES:
        return _TYPES[kind]
    if "imatrix.datasets" in header.metadata or "imatrix.chunk_count" in header.metadata:
        return _TYPES["imatrix"]
    if isinstance(architecture, str) and architecture in _ARCHITECTURES:
        return _ARCHITECTURES[architecture]
    if not header.tensors:
        return "a vocabulary" if "tokenizer.ggml.model" in header.metadata else "a header without tensors"
    layers = {tensor.name.split(".")[1] for tensor in header.tensors if tensor.name.startswith("blk.")}
    if layers and "0" not in layers and f"{architecture}.nextn_predict_layers" in header.metadata:
        return "a drafter: the next-token layers (MTP) of a model, without the model"
    return None
