"""GGUF header parser: it is fed a file's bytes as they arrive, and returns the header once it is complete.

The format is that of ggml/docs/gguf.md of llama.cpp, versions 2 and 3, little-endian. A header is hostile input: every
count and length is bounded before it is believed. Large arrays are walked, never built: at any time only the piece that
was fed, the entry or tensor that it cuts in two, and what the header keeps are in memory.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from msgspec.structs import replace

from service.engine.errors import InvalidHeader, NotGguf, TruncatedHeader
from service.engine.ggml_types import is_known, tensor_bytes, type_with_id, unknown_type
from service.engine.gguf.header import ArraySummary, Header, MetadataValue, Tensor
from service.engine.gguf.window import SAMPLE, SMALLEST, Doubt, LargeArray, NeedMore, Window, check_jump, known_as

MAX_STRING_BYTES = 1 << 20  # chat templates reach some 100 KB
_LENGTH = 8  # bytes of a text's length, the least that one takes


class Passage:
    """One large array being passed: walked element by element, or jumped over if another file of the repo has it too.

    `seen` is the known array that it was taken for, None if it is walked. `expected` is the position in the file where
    reading may stop after a jump, 0 without one.
    """

    def __init__(self, key: str, kind: int, element_bytes: int | None, length: int, start: int) -> None:
        """`element_bytes` is None for an array of texts; `start` is where in the file the first element begins."""
        self.start, self.expected = start, 0
        self.seen: LargeArray | None = None
        self._key, self._kind, self._length = key, kind, length
        self._n_texts = 0 if element_bytes else length
        self._n_bytes = (element_bytes or 0) * length  # of numbers, not yet passed
        self._sample = min(SAMPLE, length * (element_bytes or _LENGTH))
        self._head: bytes | None = None
        self._tail, self._end = b"", 0

    def go_on(self, window: Window, known: Sequence[LargeArray]) -> None:
        """Pass as much as the window holds, and return once all is passed. Raises NeedMore, InvalidHeader and Doubt."""
        if self._head is None:
            self._begin(window, known)
        if self.seen:
            window.take(len(self.seen.tail))
            if window.last(len(self.seen.tail)) != self.seen.tail:
                raise Doubt(f"{self._key} ends otherwise")
        else:
            self._walk(window)
        self._end = window.absolute

    def described(self, keys: Sequence[str], next_start: int, alignment: int) -> LargeArray | None:
        """Return what was passed, None if it is too small to be worth a jump or was not read in full.

        `keys` are all keys of the header, with "" before and after them. `next_start` is where the next large array
        begins, or where the header ends.
        """
        if self._end - self.start < SMALLEST or self.seen or self._head is None:
            return None
        place = keys.index(self._key)
        return LargeArray(
            key=self._key, kind=self._kind, length=self._length, start=self.start, n_bytes=self._end - self.start,
            head=self._head, tail=self._tail, before=keys[place - 1], after=keys[place + 1],
            rest=next_start - self._end, alignment=alignment,
        )  # fmt: skip

    def _begin(self, window: Window, known: Sequence[LargeArray]) -> None:
        window.take(self._sample)
        self._head = window.last(self._sample)
        self.seen = known_as(known, self._key, self._kind, self._length, self._head)
        if self.seen:
            self.expected = self.start + self.seen.n_bytes + self.seen.rest + SAMPLE
            window.jump(self.seen.n_bytes - self._sample - len(self.seen.tail))
        else:
            window.position -= self._sample

    def _walk(self, window: Window) -> None:
        self._n_texts = window.skip_strings(self._n_texts, MAX_STRING_BYTES)
        window.position += self._n_bytes
        self._n_bytes = 0
        window.commit()
        window.take(_LENGTH if self._n_texts else 0)
        self._tail = window.last(min(SAMPLE, window.absolute - self.start))


MAX_HEADER_BYTES = 64 << 20
MAX_ENTRIES = 65_536
MAX_KEY_BYTES = 65_535  # the format's own limit
MAX_TEXT_BYTES = 2 << 20  # keys, texts and values of one file together: all of them are kept
MAX_NAME_BYTES = 63  # GGML_MAX_NAME is 64 with the NUL: llama.cpp refuses longer ones (ggml/src/gguf.cpp)
MAX_KEPT_ARRAY = 4_096  # per-layer arrays are kept; vocabularies are only counted
MAX_KEPT = 1 << 16  # elements of all kept arrays together

_ALIGNMENT_TYPE, _STRING, _ARRAY = 4, 8, 9  # of general.alignment: u32
_SCALAR = {n: struct.Struct(f"<{letter}") for n, letter in zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True)}


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
    """Reads one header from the pieces of a file; `header` is None until it is complete.

    `needed` is how many bytes of the file, from its beginning, there must be at least. With `known`, large arrays of
    other files of the same repo, the parser jumps over those that this file has too: it then wants its next bytes from
    `position`, which is after what it was fed, and `expected` is where the next jump, or the end of the header, should
    be.
    """

    def __init__(self, file_size: int | None = None, known: Sequence[LargeArray] = ()) -> None:
        self.needed = 4
        self.expected = 0
        self._file_size = file_size
        self._known = known
        self._window = Window()
        self._metadata: dict[str, MetadataValue] = {}
        self._tensors: dict[str, Tensor] = {}
        self._n_tensors = self._n_entries = -1
        self._n_kept = self._n_text = 0
        self._passages: list[Passage] = []
        self._is_passing = False
        self.header: Header | None = None

    @property
    def position(self) -> int:
        """Return the position in the file of the byte that must be fed next."""
        return self._window.end

    @property
    def arrays(self) -> tuple[LargeArray, ...]:
        """Return the header's large arrays, by which other files' can be known; only once it is complete."""
        ends = [*(passage.start for passage in self._passages), self._window.absolute][1:]
        keys = ["", *self._metadata, ""]
        alignment = _alignment(self._metadata)
        found = (p.described(keys, end, alignment) for p, end in zip(self._passages, ends, strict=True))
        return tuple(array for array in found if array)

    def feed(self, data: bytes | bytearray | memoryview) -> Header | None:
        """Take the bytes of the file from `position` on; return the header once it is complete, and None before.

        Raises NotGguf, InvalidHeader, TruncatedHeader when the file ends before its header does, and Doubt when a jump
        was wrong.
        """
        self._window.add(data)
        try:
            while self.header is None:
                self._step()
        except NeedMore as more:
            self.needed = more.n_bytes
            self._refuse_hopeless(self.needed)
        self._window.forget()
        return self.header

    def _refuse_hopeless(self, needed: int) -> None:
        if needed > MAX_HEADER_BYTES:
            raise InvalidHeader(f"the header is larger than {MAX_HEADER_BYTES >> 20} MiB")
        if self._file_size is not None and needed > self._file_size:
            raise TruncatedHeader(
                f"the file ends after {self._file_size} bytes, inside its header: download or upload it again"
            )

    def _step(self) -> None:
        """Read one part, whole or not at all: the counts, an entry, a piece of a large array, a tensor, the end."""
        if self._is_passing:
            self._pass()
        elif self._n_entries < 0:
            self._begin()
        elif len(self._metadata) < self._n_entries:
            self._entry()
        elif len(self._tensors) < self._n_tensors:
            self._tensor()
        else:
            self.header = self._whole()
        self._window.commit()

    def _pass(self) -> None:
        passage = self._passages[-1]
        try:
            passage.go_on(self._window, self._known)
        finally:
            self.expected = passage.expected or self.expected
        self._is_passing = False

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
        kind = window.u32()
        if key == "general.alignment" and kind != _ALIGNMENT_TYPE:
            raise InvalidHeader(
                f"general.alignment has the value type {kind}: engines read only u32 ({_ALIGNMENT_TYPE})"
            )
        value = self._value(key, kind)
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
        """Return a small array, or only the length of a large one, whose elements are passed from here on."""
        window = self._window
        kind, length = window.u32(), window.u64()
        if kind == _ARRAY:
            raise InvalidHeader(f"metadata {key[:80]!r} is an array of arrays, which no engine reads")
        if length > MAX_HEADER_BYTES:
            raise InvalidHeader(f"metadata {key[:80]!r} claims {length} elements")
        fmt = None if kind == _STRING else _struct_of(kind, f"is an array of the unknown type {kind}", key)
        self._refuse_hopeless(window.absolute + length * (fmt.size if fmt else 8))
        if fmt is None or length > MAX_KEPT_ARRAY or self._n_kept + length > MAX_KEPT:
            self._passages.append(Passage(key, kind, fmt.size if fmt else None, length, window.absolute))
            self._is_passing = True
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
        n_bytes = -(-self._window.absolute // alignment) * alignment
        tensors = _with_sizes(tensors, n_bytes, self._file_size)
        _check_places(tensors, n_bytes, self._file_size)
        jumped = [passage.seen for passage in self._passages if passage.seen]
        header = Header(self._metadata, tensors, n_bytes, bool(jumped), _misplaced(tensors, alignment))
        if jumped:
            check_jump(header, alignment, jumped, self._file_size)
        return header


def _check_magic(window: Window) -> None:
    head = window.head(4)
    if head != b"GGUF"[: len(head)]:
        raise NotGguf("the file does not begin with the four letters GGUF: it is not a GGUF file")
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


def _read_tensor(window: Window, alignment: int) -> Tensor:
    name = window.string(MAX_NAME_BYTES, "a tensor name")
    n_dims = window.u32()
    if not 1 <= n_dims <= 4:
        raise InvalidHeader(f"tensor {name!r} has {n_dims} dimensions: 1 to 4 are possible")
    dims = tuple(window.u64() for _ in range(n_dims))
    if 0 in dims or math.prod(dims) >= 1 << 56:
        raise InvalidHeader(f"tensor {name!r} has impossible dimensions {dims}")
    type_id, offset = window.u32(), window.u64()
    ggml_type = type_with_id(type_id)
    if ggml_type and dims[0] % ggml_type.block:
        raise InvalidHeader(
            f"tensor {name!r}: rows of {dims[0]} do not divide into {ggml_type.name} blocks of {ggml_type.block}"
        )
    if offset % alignment:
        raise InvalidHeader(f"tensor {name!r} begins at {offset}, not a multiple of {alignment}")
    if ggml_type is None:
        return Tensor(name, unknown_type(type_id), dims, offset, 0)
    return Tensor(name, ggml_type.name, dims, offset, tensor_bytes(ggml_type.name, dims))


def _with_sizes(tensors: tuple[Tensor, ...], n_bytes: int, file_size: int | None) -> tuple[Tensor, ...]:
    """Return the tensors, those of unknown types as long as up to the next one or the end of the file."""
    if all(is_known(name) for name in {tensor.type for tensor in tensors}):
        return tensors
    starts = sorted({tensor.offset for tensor in tensors})
    ends = dict(zip(starts, [*starts[1:], max(starts[-1], (file_size or 0) - n_bytes)], strict=True))
    return tuple(t if is_known(t.type) else replace(t, nbytes=ends[t.offset] - t.offset) for t in tensors)


def _misplaced(tensors: tuple[Tensor, ...], alignment: int) -> str | None:
    """Describe the first tensor that does not lie right after the one before it in the table; None if all do."""
    expected = 0
    for tensor in tensors:
        if tensor.offset != expected:
            return f"tensor {tensor.name[:64]!r} is at {tensor.offset}, expected at {expected}"
        if not is_known(tensor.type):
            return None  # how long it really is, is not known
        expected += -(-tensor.nbytes // alignment) * alignment
    return None


def _check_places(tensors: tuple[Tensor, ...], n_bytes: int, file_size: int | None) -> None:
    """Raise InvalidHeader if tensors overlap, and TruncatedHeader if they go beyond the end of the file."""
    end = 0
    for tensor in sorted(tensors, key=lambda t: t.offset):
        if tensor.offset < end:
            raise InvalidHeader(f"tensor {tensor.name!r} begins at {tensor.offset}, inside the one before it")
        end = tensor.offset + tensor.nbytes
    if file_size is not None and tensors and n_bytes + end > file_size:
        raise TruncatedHeader(
            f"the tensor table describes {n_bytes + end} bytes but the file has {file_size}: it is truncated"
        )
