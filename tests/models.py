"""Header-true models without weights, in the quantisation mixes people use.

A mix is a comma list of SUBSTRING=TYPE where the first match wins and `*` matches all, a single type, or the name of
a preset that approximates what llama-quantize makes under that name. `Qwen3-8B@4` is the first four layers of Qwen3-8B
with a vocabulary of 32,768: of true widths, and small enough to be filled with weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple, cast

from service.engine.ggml_types import tensor_bytes, type_named
from service.engine.gguf import write as gguf_file
from service.engine.gguf.header import ArraySummary, Header, MetadataValue, Tensor
from service.engine.memory.graphs import share_graphs
from service.engine.model import Model, build_model
from service.engine.tensor_names import layer_of
from tests.shapes import BESIDES, SHAPES, Shape
from tests.shapes.rows import Values

ALIGNMENT = 32
_CUT_VOCABULARY = 32_768


def model_names() -> tuple[str, ...]:
    """Return the names of the models to choose from; files of an old layout and a few sizes can be built besides."""
    return tuple(SHAPES)


# base type, the type of attn_v and ffn_down in about half of the layers, token_embd: llama-quantize's habit
_PRESETS = {
    "q4_k_m": ("q4_K", "q6_K", "q4_K"),
    "q5_k_m": ("q5_K", "q6_K", "q5_K"),
    "q3_k_m": ("q3_K", "q4_K", "q3_K"),
    "q2_k": ("q2_K", "q3_K", "q2_K"),
    "q4_k_s": ("q4_K", "q5_K", "q4_K"),
    "iq4_xs": ("iq4_xs", "q5_K", "q4_K"),
}


def _shape(name: str) -> Shape:
    """The shape of a model, or of its first layers (`NAME@LAYERS`)."""
    whole, _, layers = name.partition("@")
    shape = (SHAPES | BESIDES)[whole]()
    return _cut(shape, int(layers)) if layers else shape


def _cut(shape: Shape, n_layer: int) -> Shape:
    count = f"{shape.architecture}.block_count"
    n_before, n_vocab = shape.metadata[count], min(shape.n_vocab, _CUT_VOCABULARY)
    rows = [
        row._replace(dims=tuple(n_vocab if n == shape.n_vocab else n for n in row.dims))
        for row in shape.rows
        if (layer_of(row.name) or 0) < n_layer
    ]
    metadata: Values = {
        key: value[:n_layer] if isinstance(value, list) and len(value) == n_before else value
        for key, value in shape.metadata.items()
        if not key.endswith(".nextn_predict_layers")  # they lie behind the layers that stay
    }
    metadata[count] = n_layer
    if (key := f"{shape.architecture}.vocab_size") in metadata:
        metadata[key] = n_vocab
    return Shape(shape.architecture, metadata, rows, n_vocab)


def _preset_type(preset: tuple[str, str, str], name: str, n_layer: int) -> str:
    base, more, embedding = preset
    if name == "output.weight":
        return "q6_K"
    if name == "token_embd.weight":
        return embedding
    layer, eighth = layer_of(name) or 0, n_layer // 8
    big = layer < eighth or layer >= 7 * n_layer // 8 or (layer - eighth) % 3 == 2
    return more if big and ("attn_v." in name or "ffn_down" in name) else base


@cache
def _rules(mix: str) -> list[list[str]]:
    return [rule.split("=") for rule in (mix if "=" in mix else f"*={mix}").split(",")]


def _mixed_type(mix: str, name: str) -> str:
    return next(kind for part, kind in _rules(mix) if part == "*" or part in name)


@cache
def _fitting_type(kind: str, row_length: int) -> str:
    """The type, or what llama-quantize falls back to where the row is not a multiple of the block."""
    smaller = "iq4_nl" if type_named(kind).bpw < 5 else "q8_0"
    candidates = (type_named(name) for name in (kind, smaller, "q8_0", "f16"))
    return next(t.name for t in candidates if row_length % t.block == 0)


def _tensors(shape: Shape, mix: str) -> tuple[Tensor, ...]:
    preset, n_layer = _PRESETS.get(mix.lower()), int(str(shape.metadata[f"{shape.architecture}.block_count"]))
    tensors, offset = [], 0
    for name, dims, f32, fixed in shape.rows:
        chosen = _preset_type(preset, name, n_layer) if preset else _mixed_type(mix, name)
        kind = _fitting_type(fixed or ("f32" if f32 else chosen), dims[0])
        n_bytes = tensor_bytes(kind, dims)
        tensors.append(Tensor(name, kind, dims, offset, n_bytes))
        offset += -(-n_bytes // ALIGNMENT) * ALIGNMENT
    return tuple(tensors)


def _general(model_name: str, shape: Shape) -> Values:
    general: Values = {
        "general.architecture": shape.architecture,
        "general.type": "model",
        "general.name": model_name,
        "general.quantization_version": 2,
        "general.file_type": 15,
    }
    return general | shape.metadata


@lru_cache(maxsize=64)
def build_header(model_name: str, mix: str) -> Header:
    """Return the merged header of `model_name` quantised to `mix`, as the parser would return it."""
    return _header(model_name, _shape(model_name), mix)


def _header(model_name: str, shape: Shape, mix: str) -> Header:
    metadata = cast("dict[str, MetadataValue]", dict(_general(model_name, shape)))
    metadata["tokenizer.ggml.tokens"] = ArraySummary(shape.n_vocab)
    return Header(metadata, _tensors(shape, mix), 0)


@lru_cache(maxsize=24)
def build(model_name: str, mix: str) -> Model:
    """Return the model `model_name` quantised to `mix`."""
    model = build_model(build_header(model_name, mix))
    share_graphs((_keeper(), model))
    return model


@cache
def _keeper() -> Model:
    """The model whose graphs are those of all: else each keeps up to 150 MB of its own."""
    return build_model(build_header("Qwen3-0.6B", "q8_0"))


class File(NamedTuple):
    """One file of a model: its header's bytes, and the size of the data section behind it."""

    head: bytes
    n_data: int


def gguf_files(model_name: str, mix: str, shards: int = 1) -> tuple[File, ...]:
    """Return `model_name` as GGUF with a real-size tokenizer, first shard first.

    With `shards` above 1, the first has the metadata, and every one its share of the bytes, as llama-gguf-split makes
    them.
    """
    shape = _shape(model_name)
    tensors = build_header(model_name, mix).tensors
    metadata: dict[str, gguf_file.Value] = {**_general(model_name, shape), **gguf_file.tokenizer(shape.n_vocab)}
    if shards == 1:
        return (_file(metadata, tensors),)
    files = []
    for number, part in enumerate(_shares(tensors, shards)):
        split: dict[str, gguf_file.Value] = {
            "split.no": gguf_file.U16(number),
            "split.count": gguf_file.U16(shards),
            "split.tensors.count": gguf_file.I32(len(tensors)),
        }
        files.append(_file((metadata if number == 0 else {}) | split, part))
    return tuple(files)


def gguf_bytes(model_name: str, mix: str, small: bool = False) -> bytes:
    """Return the header of `model_name` as the bytes of one file; `small`: with a tokenizer of 300 tokens."""
    if not small:
        return gguf_files(model_name, mix)[0].head
    shape = _shape(model_name)
    metadata: dict[str, gguf_file.Value] = {**_general(model_name, shape), **gguf_file.tokenizer(300)}
    return gguf_file.header_bytes(metadata, build_header(model_name, mix).tensors)


def write_gguf(path: Path, model_name: str, mix: str, shards: int = 1, sparse: bool = True) -> tuple[Path, ...]:
    """Write `model_name` as GGUF with a real-size tokenizer; return the files written, first shard first.

    The data is a hole of the true size (`sparse`), or left out. With `shards` above 1, `path` gets the
    `-00001-of-0000N` of llama-gguf-split.
    """
    files = gguf_files(model_name, mix, shards)
    paths = [path] if shards == 1 else [path.with_name(shard_name(path.name, i, shards)) for i in range(shards)]
    for file, target in zip(files, paths, strict=True):
        with target.open("wb") as stream:
            stream.write(file.head)
            if sparse:
                stream.truncate(len(file.head) + file.n_data)
    return tuple(paths)


def shard_name(name: str, number: int, count: int) -> str:
    """Return the name of shard `number` (from 0) of the file `name`."""
    return f"{name.removesuffix('.gguf')}-{number + 1:05d}-of-{count:05d}.gguf"


def _file(metadata: Mapping[str, gguf_file.Value], tensors: Sequence[Tensor]) -> File:
    return File(gguf_file.header_bytes(metadata, tensors), gguf_file.data_bytes(tensors))


def _shares(tensors: tuple[Tensor, ...], shards: int) -> list[list[Tensor]]:
    parts: list[list[Tensor]] = [[] for _ in range(shards)]
    total, done = sum(t.nbytes for t in tensors), 0
    for tensor in tensors:
        parts[min(shards - 1, done * shards // total)].append(tensor)
        done += tensor.nbytes
    return parts
