"""Jumping over large arrays that another file of the same repo has too: what is remembered of them, and the proof.

Variants of one repo share their tokenizer, which is nearly all of their headers. If a file has the same array, with the
same bytes at its beginning and end, then what lies between is taken to be as long as in the file that was read in full.
That is a guess until the header after it has proved it (`check_jump`).

One thing cannot be proved without reading: that no element in between was made longer to hide a second header. So a
header that was read by a jump is marked (`Header.by_jump`), and believed only for its own repo.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from service.engine.ggml_types import is_known
from service.engine.gguf.header import Header

SAMPLE = 256  # bytes at the beginning and the end of an array that are compared
SMALLEST = 32 << 10  # bytes of an array that is worth a jump


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
