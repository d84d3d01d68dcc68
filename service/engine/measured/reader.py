"""Rows from the bytes that a benchmark program writes while it runs. The bytes are hostile, memory and work bounded."""

from __future__ import annotations

import re

from service.engine.logs.bench_rows import MAX_JSON, RowReader
from service.engine.measured.excerpt import Excerpt, printable
from service.engine.measured.rows import MeasuredRow, row_of

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
