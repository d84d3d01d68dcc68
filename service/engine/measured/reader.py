"""Rows from the bytes that a benchmark program writes while it runs, which are not trusted: memory and work are
bounded."""

from __future__ import annotations

import re

from service.engine.logs.bench_rows import MAX_JSON, RowReader
from service.engine.measured.rows import MeasuredRow, row_of

MAX_KEPT = 160 << 10
_MAX_LINES = 2_000
_MAX_KEPT_LINE = 2_000
_MAX_LOOKED_AT = 32 << 20
_MAX_END = 16 << 10
# Searched for one by one: many times faster than one expression with as many branches.
_TELLING = (
    b"buffer size", b"splits", b"offloaded ", b"MiB free", b"~llama_context: ", b"loaded meta data", b"nvalid",
    b"general.architecture", b": arch", b"n_ctx", b"rror", b"ERROR", b"ailed", b"what():", b"memory", b"bad_alloc",
    b"GGML_ASSERT", b"abort", b"nknown", b"not support", b"nsupported", b"n_kv_max", b"build:", b"retrying",
)  # fmt: skip
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Excerpt:
    """The lines of a program's output that matter (memory, graphs, errors, rows), and its very end.

    `llama-bench -v` prints thousands of lines for each test (llama.cpp 0c1e57098 names every input of every graph that
    it reserves), and what it says of memory stands at the beginning.
    """

    def __init__(self) -> None:
        self._kept: dict[int, bytes] = {}
        self._size = 0
        self._seen = 0
        self._end = b""

    def add(self, block: bytes) -> None:
        """Look at whole lines, the next of the output."""
        if self._seen < _MAX_LOOKED_AT:
            for word in _TELLING:
                at = block.find(word)
                while at >= 0 and self._size + _MAX_KEPT_LINE <= MAX_KEPT and len(self._kept) < _MAX_LINES:
                    first = block.rfind(b"\n", 0, at) + 1
                    behind = block.find(b"\n", at) + 1 or len(block)
                    self._keep(self._seen + first, block[first:behind])
                    at = block.find(word, behind)
        self._seen += len(block)
        self._end = (self._end + block[-_MAX_END:])[-_MAX_END:]

    def add_row(self, line: bytes, at: int) -> None:
        """Keep a line that made a row: `at` bytes into the block that is added next."""
        self._keep(self._seen + at, line + b"\n")

    def _keep(self, where: int, line: bytes) -> None:
        room = len(self._kept) < _MAX_LINES and self._size + _MAX_KEPT_LINE <= MAX_KEPT
        if room and len(line) <= _MAX_KEPT_LINE and where not in self._kept:
            self._kept[where] = line
            self._size += len(line)

    @property
    def text(self) -> str:
        """Return the telling lines in their order, then the output's end, each line once, without control characters:
        at most MAX_KEPT and 16 KiB."""
        begins = self._seen - len(self._end)
        end = self._end if not begins else self._end[self._end.find(b"\n") + 1 :]
        begins = self._seen - len(end)
        kept = b"".join(line for where, line in sorted(self._kept.items()) if where < begins)
        return printable(kept + end)


def printable(data: bytes) -> str:
    """Return text without control characters but tabs and the ends of lines."""
    return _UNPRINTABLE.sub("", data.decode(errors="replace"))


MAX_ROWS = 1_000
_MAX_LINE = MAX_JSON
_MAX_CANDIDATES = 100_000
_MAX_PART = 2_000
# What may belong to a row begins with one of these; all other lines are passed over without decoding them.
_CANDIDATE = re.compile(rb'^[ \t]{0,64}[|{}\["][^\n]*', re.MULTILINE)
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")


class Reader:
    """Reads the output of one program chunk by chunk: one stream, or whole lines of both.

    How the bytes are cut into chunks does not matter. Never raises. A line with control characters or that is no UTF-8,
    one longer than a MiB, and the last one until its end is there, make no row.
    """

    def __init__(self) -> None:
        self._rows = RowReader()
        self._excerpt = Excerpt()
        self._part = bytearray()
        self._skipping = False
        self._candidates_left = _MAX_CANDIDATES
        self._rows_left = MAX_ROWS

    def feed(self, data: bytes) -> list[MeasuredRow]:
        """Return the rows that these bytes complete, in the order of the output: MAX_ROWS at most in all."""
        end = data.rfind(b"\n") + 1
        rows = self._read(self._completed(data, end)) if end else []
        self._keep(data[end:] if len(data) - end <= _MAX_LINE else None)
        if self._rows.in_object and len(self._part) < 8 and self._part.strip() == b"}":
            # llama-bench ends an object of its array without ending the line, and flushes (llama-bench.cpp:1825).
            rows += self._read(bytes(self._part))
            self._part.clear()
        rows = rows[: self._rows_left]
        self._rows_left -= len(rows)
        return rows

    def _completed(self, data: bytes, end: int) -> bytes:
        """Return the whole lines up to `end`, with what was kept of the first of them."""
        start = data.find(b"\n") + 1 if self._skipping else 0
        block = bytes(self._part) + data[start:end]
        self._part.clear()
        self._skipping = False
        return block

    def _keep(self, part: bytes | None) -> None:
        if self._skipping:
            return
        if part is None or len(self._part) + len(part) > _MAX_LINE:
            self._part.clear()
            self._skipping = True
        else:
            self._part += part

    def _read(self, block: bytes) -> list[MeasuredRow]:
        rows: list[MeasuredRow] = []
        for match in _CANDIDATE.finditer(block) if self._rows_left else ():
            if not self._candidates_left:
                break
            self._candidates_left -= 1
            line = _text(match[0])
            found = self._rows.read(line) if line is not None else []
            if found:
                self._excerpt.add_row(match[0], match.start())
                rows += map(row_of, found)
        self._excerpt.add(block)
        return rows

    @property
    def log(self) -> str:
        """Return what was printed, cut to the lines that tell something and the very end: about 180 KiB at most.

        It is what `classify` and `memory_of` look at. No line but the last was taken apart, none stands there twice.
        """
        return self._excerpt.text + printable(bytes(self._part[:_MAX_PART]))


def _text(line: bytes) -> str | None:
    line = line.rstrip(b"\r")
    if len(line) > _MAX_LINE or _CONTROL.search(line):
        return None
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None
