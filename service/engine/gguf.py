"""GGUF header parser: fed with the first bytes of a file, it returns the metadata and the tensor table.

Format: ggml/docs/gguf.md of llama.cpp, versions 2 and 3, little-endian. A header is hostile input: every count and
length is bounded before it is believed, and nothing is built for a large array but its length.
"""

from __future__ import annotations

import math
import struct
from typing import TypeAlias

import msgspec

from service.engine.errors import InvalidHeader, NotGguf, TruncatedHeader
from service.engine.ggml_types import tensor_bytes, type_with_id

MAX_HEADER_BYTES = 64 << 20
MAX_ENTRIES = 65_536
MAX_KEY_BYTES = 65_535  # the format's own limit
MAX_STRING_BYTES = 4 << 20  # chat templates reach some 100 KB
MAX_TEXT_BYTES = 8 << 20  # keys, values and names of one file together: all of them are kept
MAX_NAME_BYTES = 256
MAX_KEPT_ARRAY = 4_096  # per-layer arrays are kept; vocabularies are only counted
MAX_KEPT = 1 << 20  # elements of all kept arrays together

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_SCALAR = {kind: struct.Struct(fmt) for kind, fmt in _SCALARS.items()}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


class ArraySummary(msgspec.Struct, frozen=True):
    """A large metadata array, of which only the length is kept."""

    length: int


MetadataValue: TypeAlias = int | float | str | bool | list[int | float | bool | str] | ArraySummary


class Tensor(msgspec.Struct, frozen=True):
    """One row of the tensor table. `dims[0]` is the row length; `offset` counts from the data section of its shard."""

    name: str
    type: str
    dims: tuple[int, ...]
    offset: int
    nbytes: int
    shard: int = 0


class Header(msgspec.Struct, frozen=True):
    """Metadata and tensor table of one file; `n_bytes` is where the data section begins."""

    metadata: dict[str, MetadataValue]
    tensors: tuple[Tensor, ...]
    n_bytes: int


class NeedMore(Exception):
    """The bytes given end inside the header; at least `n_bytes` from the start of the file are needed."""

    def __init__(self, n_bytes: int) -> None:
        super().__init__(f"the header needs at least {n_bytes} bytes")
        self.n_bytes = n_bytes


def parse_header(data: bytes | bytearray | memoryview, file_size: int | None = None) -> Header:
    """Return the header at the start of `data`.

    Raises NeedMore when `data` ends inside the header (or TruncatedHeader when `file_size` says there is no more),
    NotGguf, and InvalidHeader for counts, lengths, types or offsets that no engine would load.
    """
    try:
        return _parse(_Cursor(data), file_size)
    except NeedMore as more:
        if more.n_bytes > MAX_HEADER_BYTES:
            raise InvalidHeader(f"the header is larger than {MAX_HEADER_BYTES >> 20} MiB") from more
        if file_size is not None and more.n_bytes > file_size:
            raise TruncatedHeader(
                f"the file ends after {file_size} bytes, inside its header: download or upload it again"
            ) from more
        raise


class _Cursor:
    """A position in bytes that asks for more instead of reading past the end."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = bytes(data) if isinstance(data, memoryview) else data
        self.position = 0
        self.end = len(data)
        self.n_kept = 0
        self.n_text = 0

    def take(self, n: int) -> int:
        """Return the present position and move `n` bytes on."""
        start = self.position
        self.position = start + n
        if self.position > self.end:
            raise NeedMore(self.position)
        return start

    def u32(self) -> int:
        return int(_U32.unpack_from(self.data, self.take(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack_from(self.data, self.take(8))[0])

    def string(self, limit: int, what: str) -> str:
        length = self.u64()
        if length > limit:
            raise InvalidHeader(f"{what} of {length} bytes is longer than the {limit} allowed")
        self.n_text += length
        if self.n_text > MAX_TEXT_BYTES:
            raise InvalidHeader(f"keys, texts and names are longer than {MAX_TEXT_BYTES >> 20} MiB together")
        start = self.take(length)
        return bytes(self.data[start : start + length]).decode("utf-8", "replace")

    def skip_strings(self, count: int) -> None:
        data, position, end, unpack = self.data, self.position, self.end, _U64.unpack_from
        for _ in range(count):
            if position + 8 > end:
                raise NeedMore(position + 8)
            length = unpack(data, position)[0]
            if length > MAX_STRING_BYTES:
                raise InvalidHeader(f"an array element of {length} bytes is longer than {MAX_STRING_BYTES}")
            position += 8 + length
        self.position = position
        self.take(0)


def _parse(cursor: _Cursor, file_size: int | None) -> Header:
    _check_magic(cursor)
    n_tensors, n_entries = cursor.u64(), cursor.u64()
    if n_tensors > MAX_ENTRIES or n_entries > MAX_ENTRIES:
        raise InvalidHeader(f"{n_tensors} tensors and {n_entries} metadata entries: more than {MAX_ENTRIES}")
    metadata = _metadata(cursor, n_entries)
    alignment = _alignment(metadata)
    tensors = _tensor_table(cursor, n_tensors, alignment)
    n_bytes = -(-cursor.position // alignment) * alignment
    _check_fits(tensors, n_bytes, file_size)
    return Header(metadata, tensors, n_bytes)


def _check_magic(cursor: _Cursor) -> None:
    head = bytes(cursor.data[:4])
    if head != b"GGUF"[: len(head)]:
        raise NotGguf("the file does not begin with the four letters GGUF: it is no GGUF file")
    cursor.take(4)
    version = cursor.u32()
    if version in (2 << 24, 3 << 24):
        raise InvalidHeader("a big-endian GGUF file: neither engine loads it on a little-endian machine")
    if version not in (2, 3):
        raise InvalidHeader(f"GGUF version {version}: versions 2 and 3 are known")


def _metadata(cursor: _Cursor, count: int) -> dict[str, MetadataValue]:
    entries: dict[str, MetadataValue] = {}
    for _ in range(count):
        key = cursor.string(MAX_KEY_BYTES, "a metadata key")
        if key in entries:
            raise InvalidHeader(f"metadata key {key[:80]!r} appears twice")
        entries[key] = _value(cursor, cursor.u32(), key)
    return entries


def _value(cursor: _Cursor, kind: int, key: str) -> MetadataValue:
    if kind == _STRING:
        return cursor.string(MAX_STRING_BYTES, f"metadata {key[:80]!r}")
    if kind == _ARRAY:
        return _array(cursor, key)
    return _scalar(cursor, kind, key)


def _scalar(cursor: _Cursor, kind: int, key: str) -> int | float | bool:
    fmt = _SCALAR.get(kind)
    if fmt is None:
        raise InvalidHeader(f"metadata {key[:80]!r} has the unknown value type {kind}")
    value: int | float | bool = fmt.unpack_from(cursor.data, cursor.take(fmt.size))[0]
    return value


def _array(cursor: _Cursor, key: str) -> list[int | float | bool | str] | ArraySummary:
    kind, length = cursor.u32(), cursor.u64()
    if kind == _ARRAY:
        raise InvalidHeader(f"metadata {key[:80]!r} is an array of arrays, which no engine reads")
    if length > MAX_HEADER_BYTES:
        raise InvalidHeader(f"metadata {key[:80]!r} claims {length} elements")
    if kind == _STRING:
        cursor.skip_strings(length)
        return ArraySummary(length)
    fmt = _SCALAR.get(kind)
    if fmt is None:
        raise InvalidHeader(f"metadata {key[:80]!r} is an array of the unknown type {kind}")
    start = cursor.take(fmt.size * length)
    if length > MAX_KEPT_ARRAY or cursor.n_kept + length > MAX_KEPT:
        return ArraySummary(length)
    cursor.n_kept += length
    return [row[0] for row in fmt.iter_unpack(cursor.data[start : start + fmt.size * length])]


def _alignment(metadata: dict[str, MetadataValue]) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0 or value & (value - 1) or value > 1 << 20:
        raise InvalidHeader(f"general.alignment is {value!r}: it must be a power of two")
    return value


def _tensor_table(cursor: _Cursor, count: int, alignment: int) -> tuple[Tensor, ...]:
    tensors: dict[str, Tensor] = {}
    for _ in range(count):
        tensor = _tensor(cursor, alignment)
        if tensor.name in tensors:
            raise InvalidHeader(f"tensor {tensor.name!r} appears twice")
        tensors[tensor.name] = tensor
    return tuple(tensors.values())


def _tensor(cursor: _Cursor, alignment: int) -> Tensor:
    name = cursor.string(MAX_NAME_BYTES, "a tensor name")
    n_dims = cursor.u32()
    if not 1 <= n_dims <= 4:
        raise InvalidHeader(f"tensor {name!r} has {n_dims} dimensions: 1 to 4 are possible")
    dims = tuple(cursor.u64() for _ in range(n_dims))
    if 0 in dims or math.prod(dims) >= 1 << 56:
        raise InvalidHeader(f"tensor {name!r} has impossible dimensions {dims}")
    ggml_type = type_with_id(cursor.u32())
    offset = cursor.u64()
    if dims[0] % ggml_type.block:
        raise InvalidHeader(
            f"tensor {name!r}: rows of {dims[0]} do not divide into {ggml_type.name} blocks of {ggml_type.block}"
        )
    if offset % alignment:
        raise InvalidHeader(f"tensor {name!r} begins at {offset}, not a multiple of {alignment}")
    return Tensor(name, ggml_type.name, dims, offset, tensor_bytes(ggml_type.name, dims))


def _check_fits(tensors: tuple[Tensor, ...], n_bytes: int, file_size: int | None) -> None:
    if file_size is None:
        return
    end = max((t.offset + t.nbytes for t in tensors), default=0)
    if tensors and n_bytes + end > file_size:
        raise TruncatedHeader(
            f"the tensor table describes {n_bytes + end} bytes but the file has {file_size}: it is truncated"
        )


def merge_shards(headers: list[Header]) -> Header:
    """Return one header with the metadata of the first shard and the tensors of all, each marked with its shard.

    Raises InvalidHeader when the shards are not a complete set (split.no, split.count, split.tensors.count).
    """
    if not headers:
        raise InvalidHeader("no file to read")
    first = headers[0].metadata
    count = first.get("split.count", 1)
    if len(headers) > 1 or (isinstance(count, int) and count > 1):
        _check_split(headers)
    tensors = {
        t.name: Tensor(t.name, t.type, t.dims, t.offset, t.nbytes, shard)
        for shard, header in enumerate(headers)
        for t in header.tensors
    }
    if len(tensors) != sum(len(h.tensors) for h in headers):
        raise InvalidHeader("the shards repeat a tensor name")
    return Header(first, tuple(tensors.values()), sum(h.n_bytes for h in headers))


def _check_split(headers: list[Header]) -> None:
    for number, header in enumerate(headers):
        count, place = header.metadata.get("split.count"), header.metadata.get("split.no")
        if count != len(headers):
            raise InvalidHeader(f"shard {number + 1} says the model has {count} shards, {len(headers)} are here")
        if place != number:
            raise InvalidHeader(f"shard {number + 1} says it is number {place}: the files are mixed up")
    total = headers[0].metadata.get("split.tensors.count")
    if isinstance(total, int) and total > 0 and total != sum(len(h.tensors) for h in headers):
        raise InvalidHeader(f"the first shard announces {total} tensors, the shards hold another number")
