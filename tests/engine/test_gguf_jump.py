"""Jumps over arrays that another file has too: the same header as when all is read, or a doubt; whatever differs."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from service.engine.errors import InvalidHeader
from service.engine.gguf.header import Header
from service.engine.gguf.parser import HeaderParser, parse_header
from service.engine.gguf.window import SMALLEST, Doubt, LargeArray

U32, I32, STRING, ARRAY = 4, 5, 8, 9
_SPARE = 1 << 10


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


class Vocabulary(NamedTuple):
    """An array of a tokenizer: the type of its elements, and each of them encoded."""

    kind: int
    elements: list[bytes]

    @property
    def body(self) -> bytes:
        return struct.pack("<IIQ", ARRAY, self.kind, len(self.elements)) + b"".join(self.elements)


class File(NamedTuple):
    """One file of a repo, with its metadata in order. `missing`: bytes by which it is shorter than its tensors say."""

    entries: list[tuple[bytes, bytes | Vocabulary]]
    rows: list[int]
    alignment: int = 32
    missing: int = 0
    pads_last: bool = True

    @property
    def head(self) -> bytes:
        parts = [struct.pack("<4sIQQ", b"GGUF", 3, len(self.rows), len(self.entries))]
        parts += [text(key) + (v.body if isinstance(v, Vocabulary) else v) for key, v in self.entries]
        offset = 0
        for number, n in enumerate(self.rows):
            parts.append(text(b"blk.%d.w" % number) + struct.pack("<IQIQ", 1, n, 0, offset))
            offset += -(-4 * n // self.alignment) * self.alignment
        head = b"".join(parts)
        return head + bytes(-len(head) % self.alignment)

    @property
    def n_bytes(self) -> int:
        sizes = [-(-4 * n // self.alignment) * self.alignment for n in self.rows]
        if not self.pads_last:
            sizes[-1:] = [4 * n for n in self.rows[-1:]]
        return len(self.head) + sum(sizes) - self.missing


def number(value: int) -> bytes:
    return struct.pack("<II", U32, value)


def words(value: bytes) -> bytes:
    return struct.pack("<I", STRING) + text(value)


def donor(rng: random.Random) -> File:
    """A file with three large arrays, between them nothing, a number, or a small one."""
    n = rng.randrange(SMALLEST // 8, SMALLEST // 6)
    tokens = [text(rng.randbytes(rng.randrange(4))) for _ in range(n)]
    types = [struct.pack("<i", rng.randrange(6)) for _ in range(rng.choice((4 * n, 300)))]
    merges = [text(b"%d %d" % (i, i + 1)) for i in range(n)]
    entries: list[tuple[bytes, bytes | Vocabulary]] = [
        (b"general.name", words(b"m" * rng.randrange(40))),
        (b"t.tokens", Vocabulary(STRING, tokens)),
        (b"t.type", Vocabulary(I32, types)),
        (b"t.merges", Vocabulary(STRING, merges)),
        (b"t.bos", number(1)),
    ]
    if rng.random() < 0.5:
        entries.insert(rng.randrange(len(entries) + 1), (b"general.alignment", number(64)))
    if rng.random() < 0.3:
        entries.insert(2, (b"t.few", Vocabulary(STRING, [text(b"x")] * 5)))
    alignment = 64 if any(key == b"general.alignment" for key, _ in entries) else 32
    return File(entries, [rng.randrange(1, 99) for _ in range(rng.randrange(1, 30))], alignment)


# --- how a file can differ from the one that was read in full

Change = Callable[[random.Random, File], File]


def in_one_array(change: Callable[[random.Random, list[bytes]], None]) -> Change:
    """Change the elements of one of the arrays."""

    def changed(rng: random.Random, file: File) -> File:
        entries = list(file.entries)
        large = [i for i, (_, v) in enumerate(entries) if isinstance(v, Vocabulary) and len(v.elements) > 1000]
        place = rng.choice([i for i in large if not entries[i][0].startswith(b"t.typ")])
        key, array = entries[place]
        assert isinstance(array, Vocabulary)
        elements = list(array.elements)
        change(rng, elements)
        entries[place] = key, Vocabulary(array.kind, elements)
        return file._replace(entries=entries)

    return changed


def _longer(rng: random.Random, elements: list[bytes]) -> None:
    place = rng.randrange(len(elements))
    elements[place] = text(elements[place][8:] + b"!" * rng.choice((1, 8, 64)))


def _longer_here_shorter_there(rng: random.Random, elements: list[bytes]) -> None:
    a, b = rng.sample(range(len(elements)), 2)
    elements[a], elements[b] = elements[b], elements[a]


def _other_words(rng: random.Random, elements: list[bytes]) -> None:
    for place in rng.sample(range(len(elements)), 20):
        elements[place] = text(rng.randbytes(len(elements[place]) - 8))


def _one_more(rng: random.Random, elements: list[bytes]) -> None:
    elements.insert(rng.randrange(len(elements)), text(b"new"))


def _one_less(rng: random.Random, elements: list[bytes]) -> None:
    del elements[rng.randrange(len(elements))]


def _one_of_two(rng: random.Random, elements: list[bytes]) -> None:
    """As many elements, as many bytes, another one at the end."""
    elements[-2:] = reversed(elements[-2:])


def _other_types(rng: random.Random, file: File) -> File:
    return file._replace(rows=[rng.randrange(1, 99) for _ in file.rows])


def _other_name(rng: random.Random, file: File) -> File:
    return _with(file, b"general.name", words(b"n" * rng.randrange(3000)))


def _with(file: File, key: bytes, value: bytes) -> File:
    return file._replace(entries=[(k, value if k == key else v) for k, v in file.entries])


def _keys_behind(rng: random.Random, file: File) -> File:
    return file._replace(entries=[*file.entries, (b"quantize.file", words(b"i" * rng.randrange(2000)))])


def _a_key_between(rng: random.Random, file: File) -> File:
    entries = list(file.entries)
    entries.insert(rng.randrange(len(entries) + 1), (b"t.more", number(7)))
    return file._replace(entries=entries)


def _other_order(rng: random.Random, file: File) -> File:
    return file._replace(entries=rng.sample(file.entries, len(file.entries)))


def _a_key_less(rng: random.Random, file: File) -> File:
    entries = list(file.entries)
    gone, _ = entries.pop(rng.randrange(len(entries)))
    return file._replace(entries=entries, alignment=32 if gone == b"general.alignment" else file.alignment)


def _other_name_of_array(rng: random.Random, file: File) -> File:
    return file._replace(entries=[(b"t.typo" if k == b"t.type" else k, v) for k, v in file.entries])


def _other_kind(rng: random.Random, file: File) -> File:
    kinds = {b"t.type": U32}
    entries = [(k, v._replace(kind=kinds.get(k, v.kind)) if isinstance(v, Vocabulary) else v) for k, v in file.entries]
    return file._replace(entries=entries)


def _other_alignment(rng: random.Random, file: File) -> File:
    entries = [(k, v) for k, v in file.entries if k != b"general.alignment"]
    return file._replace(entries=[*entries, (b"general.alignment", number(128))], alignment=128)


def _cut_off(rng: random.Random, file: File) -> File:
    return file._replace(missing=rng.choice((-32, -1, 1, 4, 32, 4000)))


def _no_padding(rng: random.Random, file: File) -> File:
    return file._replace(pads_last=False)


def _no_tensors(rng: random.Random, file: File) -> File:
    return file._replace(rows=[])


def _more_tensors(rng: random.Random, file: File) -> File:
    return file._replace(rows=[*file.rows, *[5] * 400])


HONEST: tuple[Change, ...] = (_other_types, _other_name, _keys_behind, _more_tensors, _no_padding)
CHANGES: tuple[Change, ...] = (
    *HONEST, _a_key_between, _a_key_less, _other_order, _other_name_of_array, _other_kind, _other_alignment, _cut_off,
    _no_tensors,
    *map(in_one_array, (_longer, _longer_here_shorter_there, _other_words, _one_more, _one_less, _one_of_two)),
)  # fmt: skip


# --- reading


def outcome(read: Callable[[], Header]) -> Header | str:
    try:
        return read()
    except InvalidHeader as error:
        return f"{type(error).__name__}: {error.detail}"


def by_jump(file: File, known: tuple[LargeArray, ...]) -> tuple[Header | None, int]:
    """Return the header as read by ranges that jump (None: in doubt), and how many bytes that took."""
    head, taken = file.head, 0
    parser, stop = HeaderParser(file.n_bytes, known), known[0].start + _SPARE
    try:
        while parser.header is None:
            start, stop = parser.position, max(stop, parser.needed)
            if start >= len(head):
                return None, taken
            taken += min(stop, len(head)) - start
            parser.feed(head[start:stop])
            stop = parser.expected + _SPARE if parser.expected > parser.position else parser.position + len(head)
    except (Doubt, InvalidHeader):
        return None, taken
    return parser.header, taken


def check_repo(seed: int, changes: tuple[Change, ...]) -> tuple[int, int]:
    """Hold three files, each some changes away from the first, to what a full reading says: how many jumps, and times
    that a jump was taken back."""
    rng = random.Random(seed)
    first = donor(rng)
    parser = HeaderParser(first.n_bytes)
    parser.feed(first.head)
    n_jumps = n_doubts = 0
    for _ in range(3):
        file = first
        for change in rng.sample(changes, rng.choice((1, 1, 2, 3))):
            file = change(rng, file)
        header, _ = by_jump(file, parser.arrays)
        if header is None:
            n_doubts += 1
        else:
            assert replace(header, by_jump=False) == outcome(partial(parse_header, file.head, file.n_bytes))
            n_jumps += header.by_jump
    return n_jumps, n_doubts


@pytest.mark.parametrize("seed", range(12))
def test_a_jump_tells_what_a_full_reading_tells_or_is_taken_back(seed: int) -> None:
    check_repo(seed, CHANGES)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_thousand_repos_are_read_the_same_by_jumps() -> None:
    counts = [check_repo(seed, CHANGES) for seed in range(1000, 2000)]
    n_jumps, n_doubts = (sum(numbers) for numbers in zip(*counts, strict=True))
    assert n_jumps > 1000
    assert n_doubts > 500


@pytest.mark.parametrize("seed", range(4))
def test_variants_that_differ_as_variants_do_are_always_jumped_over(seed: int) -> None:
    assert check_repo(seed, HONEST) == (3, 0)


def test_a_jump_reads_the_beginning_and_the_tensor_table_only() -> None:
    file = donor(random.Random(1))
    parser = HeaderParser(file.n_bytes)
    parser.feed(file.head)
    header, taken = by_jump(_other_types(random.Random(2), file), parser.arrays)
    assert header is not None
    assert header.by_jump
    assert taken < len(file.head) / 8
    assert [a.key for a in parser.arrays] == [key.decode() for key, v in file.entries if isinstance(v, Vocabulary)]


def test_small_arrays_are_walked() -> None:
    file = File([(b"t.tokens", Vocabulary(STRING, [text(b"x")] * 100))], [8])
    parser = HeaderParser(file.n_bytes)
    assert parser.feed(file.head) is not None
    assert parser.arrays == ()


def test_a_length_changed_between_is_not_seen_and_hence_the_header_is_marked() -> None:
    """What no reader can see without reading it: an element in the gap that says it is longer than in the first file.

    The file is damaged, or built to fool: read in full it is another one. The mark keeps that within its own repo.
    """
    file = donor(random.Random(3))
    parser = HeaderParser(file.n_bytes)
    parser.feed(file.head)
    array = parser.arrays[0]
    place = file.head.index(text(b""), array.start + 1000, array.start + array.n_bytes - 1000)
    fooling = bytearray(file.head)
    fooling[place : place + 8] = struct.pack("<Q", 100)

    class Fooling(File):
        head = bytes(fooling)

    header, _ = by_jump(Fooling(*file), parser.arrays)
    assert header is not None
    assert header.by_jump
    assert isinstance(outcome(lambda: parse_header(bytes(fooling), file.n_bytes)), str)
