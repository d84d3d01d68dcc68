"""The bytes of a file between what was fed to the parser and what it has understood; jumps over large arrays.

Variants of one repo share their tokenizer, which is nearly all of their headers. If a file has the same array, with the
same bytes at its beginning and end, then what lies between is taken to be as long as in the file that was read in full.
That is a guess until the header after it has proved it (`check_jump`).

One thing cannot be proved without reading: that no element in between was made longer to hide a second header. So a
header that was read by a jump is marked (`Header.by_jump`), and believed only for its own repo.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence

import msgspec

from service.engine.errors import InvalidHeader
from service.engine.ggml_types import is_known
from service.engine.gguf.header import Header

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
SAMPLE = 256  # bytes at the beginning and the end of an array that are compared
SMALLEST = 32 << 10  # bytes of an array that is worth a jump

# Nearly all texts of a tokenizer are short. A regular expression passes many of them at once, in a third of the time
# that a loop over them takes. Its alternatives begin with different bytes, so that none is tried after another failed.
_AT_ONCE, _SHORT = 128, 63
_SHORT_TEXTS = re.compile(
    rb"(?>%s){%d}+" % (b"|".join(rb"\x%02x\0{7}.{%d}" % (n, n) for n in range(_SHORT + 1)), _AT_ONCE), re.DOTALL
)


class LargeArray(msgspec.Struct, frozen=True):
    """An array of a header that was read in full.

    It begins at byte `start` of the file and is `n_bytes` long; `head` and `tail` are its first and last bytes.
    `before` and `after` are the keys around it ("" if there is none). `rest` counts the bytes from its end to the first
    element of the next large array, or to the end of the tensor table.
    """

    key: str
    kind: int
    length: int
    start: int
    n_bytes: int
    head: bytes
    tail: bytes
    before: str
    after: str
    rest: int
    alignment: int


class Doubt(Exception):
    """A header is not as a jump presumed, so the file must be read in full."""


def known_as(known: Iterable[LargeArray], key: str, kind: int, length: int, head: bytes) -> LargeArray | None:
    """Return the one of `known` that has this key, type, length and beginning, None if none has."""
    return next(
        (a for a in known if (a.key, a.kind, a.length) == (key, kind, length) and a.head == head),
        None,
    )


def check_jump(header: Header, alignment: int, jumped: Sequence[LargeArray], file_size: int | None) -> None:
    """Raise Doubt unless `header`, read by jumps over `jumped`, is what the file must hold.

    The keys around each array are those of the file read in full, and the tensors fill the data section without a gap
    up to the file's last byte, as engines demand and write them (gguf_init_from_file_impl and gguf_write of
    ggml/src/gguf.cpp; the last tensor is padded too, but not by every writer).
    """
    keys = ["", *header.metadata, ""]
    for array in jumped:
        place = keys.index(array.key)
        if (keys[place - 1], keys[place + 1]) != (array.before, array.after) or alignment != array.alignment:
            raise Doubt(f"{array.key} is at another place")
    if not all(is_known(name) for name in {tensor.type for tensor in header.tensors}):
        raise Doubt("where tensors of an unknown type end is not known")
    end = 0
    for tensor in header.tensors:
        if tensor.offset != -(-end // alignment) * alignment:
            raise Doubt(f"tensor {tensor.name!r} is not where the one before it ends")
        end = tensor.offset + tensor.nbytes
    if not end or file_size not in (header.n_bytes + end, header.n_bytes - (-end // alignment) * alignment):
        raise Doubt("the tensor table does not end with the file")


class NeedMore(Exception):
    """The bytes given end inside the header; at least `n_bytes` from the start of the file are needed."""

    def __init__(self, n_bytes: int) -> None:
        super().__init__(f"the header needs at least {n_bytes} bytes")
        self.n_bytes = n_bytes


class Window:
    """The bytes of a file that were fed and are not understood yet. A read that goes past them raises NeedMore."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = 0  # of the window in the file
        self._committed = 0
        self.position = 0

    @property
    def absolute(self) -> int:
        """Return the present position in the file."""
        return self._start + self.position

    @property
    def end(self) -> int:
        """Return the position in the file after what was fed."""
        return self._start + len(self._data)

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes; what was read but not committed is read again."""
        self._data += data
        self.position = self._committed

    def commit(self) -> None:
        """Take what was read as read for good."""
        self._committed = self.position

    def forget(self) -> None:
        """Drop what was read for good, except its last bytes, which `last` may return."""
        gone = max(0, min(self._committed, len(self._data)) - SAMPLE)
        del self._data[:gone]
        self._start += gone
        self._committed -= gone
        self.position = self._committed

    def jump(self, n: int) -> None:
        """Move `n` bytes on for good; those of them that were not fed yet are not needed any more."""
        self.position += n
        if self.position > len(self._data):
            self._data.clear()
            self._start += self.position
            self.position = 0
        self.commit()

    def last(self, n: int) -> bytes:
        """Return the `n` bytes before the present position, at most SAMPLE."""
        return bytes(self._data[self.position - n : self.position])

    def take(self, n: int) -> int:
        """Return the present position and move `n` bytes on. Raises NeedMore."""
        start = self.position
        self.position = start + n
        if self.position > len(self._data):
            raise NeedMore(self._start + self.position)
        return start

    def u32(self) -> int:
        """Return the next four bytes as a number."""
        return int(_U32.unpack_from(self._data, self.take(4))[0])

    def u64(self) -> int:
        """Return the next eight bytes as a number."""
        return int(_U64.unpack_from(self._data, self.take(8))[0])

    def scalar(self, fmt: struct.Struct) -> int | float | bool:
        """Return the next value of the format `fmt`."""
        value: int | float | bool = fmt.unpack_from(self._data, self.take(fmt.size))[0]
        return value

    def scalars(self, fmt: struct.Struct, count: int) -> list[int | float | bool | str]:
        """Return the next `count` values of the format `fmt`."""
        start = self.take(fmt.size * count)
        return [row[0] for row in fmt.iter_unpack(self._data[start : self.position])]

    def string(self, limit: int, what: str) -> str:
        """Return the next text. Raises InvalidHeader, naming `what`, when it is longer than `limit` bytes."""
        length = self.u64()
        if length > limit:
            raise InvalidHeader(f"{what} of {length} bytes is longer than the {limit} allowed")
        start = self.take(length)
        return self._data[start : start + length].decode("utf-8", "replace")

    def head(self, n: int) -> bytes:
        """Return at most `n` bytes from the present position, without moving."""
        return bytes(self._data[self.position : self.position + n])

    def skip_strings(self, count: int, limit: int) -> int:
        """Skip up to `count` texts, as far as their lengths were fed, and return how many are left.

        Raises InvalidHeader for a text that is longer than `limit` bytes, which are more than a short text has.
        """
        data, position, last, unpack = self._data, self.position, len(self._data) - 8, _U64.unpack_from
        while count and position <= last:
            if count >= _AT_ONCE and (short := _SHORT_TEXTS.match(data, position)) is not None:
                position, count = short.end(), count - _AT_ONCE
                continue
            for _ in range(min(count, _AT_ONCE)):
                if position > last:
                    break
                length = unpack(data, position)[0]
                if length > limit:
                    raise InvalidHeader(f"an array element of {length} bytes is longer than {limit}")
                position += 8 + length
                count -= 1
        self.position = position
        return count
