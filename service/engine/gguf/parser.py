"""GGUF header parser: fed with a file's bytes as they arrive, it returns metadata and tensor table once they are there.

Format: ggml/docs/gguf.md of llama.cpp, versions 2 and 3, little-endian. A header is hostile input: every count and
length is bounded before it is believed. Large arrays are walked, never built: what is held at a time is the piece that
was fed, the entry or tensor that it cuts in two, and what the header keeps.
"""

from __future__ import annotations

import math
import struct

from service.engine.errors import InvalidHeader, NotGguf, TruncatedHeader
from service.engine.ggml_types import tensor_bytes, type_with_id
from service.engine.gguf.header import ArraySummary, Header, MetadataValue, Tensor

MAX_HEADER_BYTES = 64 << 20
MAX_ENTRIES = 65_536
MAX_KEY_BYTES = 65_535  # the format's own limit
MAX_STRING_BYTES = 1 << 20  # chat templates reach some 100 KB
MAX_TEXT_BYTES = 2 << 20  # keys, texts and values of one file together: all of them are kept
MAX_NAME_BYTES = 256
MAX_KEPT_ARRAY = 4_096  # per-layer arrays are kept; vocabularies are only counted
MAX_KEPT = 1 << 16  # elements of all kept arrays together

_STRING, _ARRAY = 8, 9
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
    parser = HeaderParser(file_size)
    header = parser.feed(data)
    if header is None:
        raise NeedMore(parser.needed)
    return header


class HeaderParser:
    """One header being read. `needed`: bytes from the start of the file that there must be at least."""

    def __init__(self, file_size: int | None = None) -> None:
        self.needed = 4
        self._file_size = file_size
        self._window = _Window()
        self._metadata: dict[str, MetadataValue] = {}
        self._tensors: dict[str, Tensor] = {}
        self._n_tensors = self._n_entries = -1
        self._n_kept = self._n_text = 0
        self._strings = 0  # of a large array: those still to be walked
        self._header: Header | None = None

    def feed(self, data: bytes | bytearray | memoryview) -> Header | None:
        """Take the next bytes of the file; return the header once it is complete, and None before.

        Raises NotGguf, InvalidHeader, and TruncatedHeader when the file ends before its header does.
        """
        self._window.add(data)
        try:
            while self._header is None:
                self._step()
        except NeedMore as more:
            self.needed = more.n_bytes
            self._refuse_hopeless()
        self._window.forget()
        return self._header

    def _refuse_hopeless(self) -> None:
        if self.needed > MAX_HEADER_BYTES:
            raise InvalidHeader(f"the header is larger than {MAX_HEADER_BYTES >> 20} MiB")
        if self._file_size is not None and self.needed > self._file_size:
            raise TruncatedHeader(
                f"the file ends after {self._file_size} bytes, inside its header: download or upload it again"
            )

    def _step(self) -> None:
        """Read one part, whole or not at all: the counts, an entry, a piece of a large array, a tensor, the end."""
        window = self._window
        if self._strings:
            self._strings = window.skip_strings(self._strings)
            if self._strings:
                window.commit()
                window.take(8)
        elif self._n_entries < 0:
            self._begin()
        elif len(self._metadata) < self._n_entries:
            self._entry()
        elif len(self._tensors) < self._n_tensors:
            self._tensor()
        else:
            self._header = self._whole()
        window.commit()

    def _begin(self) -> None:
        window = self._window
        _check_magic(window)
        n_tensors, n_entries = window.u64(), window.u64()
        if n_tensors > MAX_ENTRIES or n_entries > MAX_ENTRIES:
            raise InvalidHeader(f"{n_tensors} tensors and {n_entries} metadata entries: more than {MAX_ENTRIES}")
        self._n_tensors, self._n_entries = n_tensors, n_entries

    def _entry(self) -> None:
        window = self._window
        key = window.string(MAX_KEY_BYTES, "a metadata key")
        if key in self._metadata:
            raise InvalidHeader(f"metadata key {key[:80]!r} appears twice")
        value = self._value(key, window.u32())
        self._count_text(len(key) + (len(value) if isinstance(value, str) else 0))
        self._metadata[key] = value

    def _value(self, key: str, kind: int) -> MetadataValue:
        if kind == _ARRAY:
            return self._array(key)
        if kind == _STRING:
            return self._window.string(MAX_STRING_BYTES, f"metadata {key[:80]!r}")
        return self._window.scalar(_struct_of(kind, f"has the unknown value type {kind}", key))

    def _count_text(self, length: int) -> None:
        self._n_text += length
        if self._n_text > MAX_TEXT_BYTES:
            raise InvalidHeader(f"keys and texts are longer than {MAX_TEXT_BYTES >> 20} MiB together")

    def _array(self, key: str) -> list[int | float | bool | str] | ArraySummary:
        """Return a small array, or the length of a large one, whose elements are walked from here on."""
        window = self._window
        kind, length = window.u32(), window.u64()
        if kind == _ARRAY:
            raise InvalidHeader(f"metadata {key[:80]!r} is an array of arrays, which no engine reads")
        if length > MAX_HEADER_BYTES:
            raise InvalidHeader(f"metadata {key[:80]!r} claims {length} elements")
        if kind == _STRING:
            self._strings = length
            return ArraySummary(length)
        fmt = _struct_of(kind, f"is an array of the unknown type {kind}", key)
        if length > MAX_KEPT_ARRAY or self._n_kept + length > MAX_KEPT:
            window.position += fmt.size * length
            return ArraySummary(length)
        values = window.scalars(fmt, length)
        self._n_kept += length
        return values

    def _tensor(self) -> None:
        tensor = _read_tensor(self._window, _alignment(self._metadata))
        if tensor.name in self._tensors:
            raise InvalidHeader(f"tensor {tensor.name!r} appears twice")
        self._tensors[tensor.name] = tensor

    def _whole(self) -> Header:
        alignment, tensors = _alignment(self._metadata), tuple(self._tensors.values())
        self._window.take(0)
        n_bytes = -(-self._window.absolute // alignment) * alignment
        _check_places(tensors, n_bytes, self._file_size)
        return Header(self._metadata, tensors, n_bytes)


class _Window:
    """The bytes of a file that were fed and not understood yet. A read that goes past them asks for more."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = 0  # of the window in the file
        self._committed = 0
        self.position = 0

    @property
    def absolute(self) -> int:
        """The present position in the file."""
        return self._start + self.position

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """Put bytes behind those that are there; what was read in part is read again."""
        self._data += data
        self.position = self._committed

    def commit(self) -> None:
        """Never come back to what was read."""
        self._committed = self.position

    def forget(self) -> None:
        """Let go of what was read for good."""
        gone = min(self._committed, len(self._data))
        del self._data[:gone]
        self._start += gone
        self._committed -= gone
        self.position = self._committed

    def take(self, n: int) -> int:
        """Return the present position and move `n` bytes on. Raises NeedMore."""
        start = self.position
        self.position = start + n
        if self.position > len(self._data):
            raise NeedMore(self._start + self.position)
        return start

    def u32(self) -> int:
        """Return a 32-bit number. Raises NeedMore, as all that read."""
        return int(_U32.unpack_from(self._data, self.take(4))[0])

    def u64(self) -> int:
        """Return a 64-bit number."""
        return int(_U64.unpack_from(self._data, self.take(8))[0])

    def scalar(self, fmt: struct.Struct) -> int | float | bool:
        """Return one value in the form of `fmt`."""
        value: int | float | bool = fmt.unpack_from(self._data, self.take(fmt.size))[0]
        return value

    def scalars(self, fmt: struct.Struct, count: int) -> list[int | float | bool | str]:
        """Return `count` values in the form of `fmt`."""
        start = self.take(fmt.size * count)
        return [row[0] for row in fmt.iter_unpack(self._data[start : self.position])]

    def string(self, limit: int, what: str) -> str:
        """Return a text of at most `limit` bytes. Raises InvalidHeader for a longer one, naming `what`."""
        length = self.u64()
        if length > limit:
            raise InvalidHeader(f"{what} of {length} bytes is longer than the {limit} allowed")
        start = self.take(length)
        return self._data[start : start + length].decode("utf-8", "replace")

    def head(self, n: int) -> bytes:
        """Return at most `n` bytes from the present position, without moving."""
        return bytes(self._data[self.position : self.position + n])

    def skip_strings(self, count: int) -> int:
        """Walk over `count` strings as far as their lengths are there; return how many are left."""
        data, position, last, unpack = self._data, self.position, len(self._data) - 8, _U64.unpack_from
        while count and position <= last:
            length = unpack(data, position)[0]
            if length > MAX_STRING_BYTES:
                raise InvalidHeader(f"an array element of {length} bytes is longer than {MAX_STRING_BYTES}")
            position += 8 + length
            count -= 1
        self.position = position
        return count


def _check_magic(window: _Window) -> None:
    head = window.head(4)
    if head != b"GGUF"[: len(head)]:
        raise NotGguf("the file does not begin with the four letters GGUF: it is no GGUF file")
    window.take(4)
    version = window.u32()
    if version in (2 << 24, 3 << 24):
        raise InvalidHeader("a big-endian GGUF file: neither engine loads it on a little-endian machine")
    if version not in (2, 3):
        raise InvalidHeader(f"GGUF version {version}: versions 2 and 3 are known")


def _struct_of(kind: int, what: str, key: str) -> struct.Struct:
    fmt = _SCALAR.get(kind)
    if fmt is None:
        raise InvalidHeader(f"metadata {key[:80]!r} {what}")
    return fmt


def _alignment(metadata: dict[str, MetadataValue]) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0 or value & (value - 1) or value > 1 << 20:
        raise InvalidHeader(f"general.alignment is {value!r}: it must be a power of two")
    return value


def _read_tensor(window: _Window, alignment: int) -> Tensor:
    name = window.string(MAX_NAME_BYTES, "a tensor name")
    n_dims = window.u32()
    if not 1 <= n_dims <= 4:
        raise InvalidHeader(f"tensor {name!r} has {n_dims} dimensions: 1 to 4 are possible")
    dims = tuple(window.u64() for _ in range(n_dims))
    if 0 in dims or math.prod(dims) >= 1 << 56:
        raise InvalidHeader(f"tensor {name!r} has impossible dimensions {dims}")
    ggml_type = type_with_id(window.u32())
    offset = window.u64()
    if dims[0] % ggml_type.block:
        raise InvalidHeader(
            f"tensor {name!r}: rows of {dims[0]} do not divide into {ggml_type.name} blocks of {ggml_type.block}"
        )
    if offset % alignment:
        raise InvalidHeader(f"tensor {name!r} begins at {offset}, not a multiple of {alignment}")
    return Tensor(name, ggml_type.name, dims, offset, tensor_bytes(ggml_type.name, dims))


def _check_places(tensors: tuple[Tensor, ...], n_bytes: int, file_size: int | None) -> None:
    """Refuse tensors that lie over each other, or beyond the end of the file."""
    end = 0
    for tensor in sorted(tensors, key=lambda t: t.offset):
        if tensor.offset < end:
            raise InvalidHeader(f"tensor {tensor.name!r} begins at {tensor.offset}, inside the one before it")
        end = tensor.offset + tensor.nbytes
    if file_size is not None and tensors and n_bytes + end > file_size:
        raise TruncatedHeader(
            f"the tensor table describes {n_bytes + end} bytes but the file has {file_size}: it is truncated"
        )
