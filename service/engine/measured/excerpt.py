"""The lines of a benchmark program's output that tell something: memory, graphs, errors, rows; and its very end.

`llama-bench -v` prints thousands of lines for each test (llama.cpp 0c1e57098 names every input of every graph that it
reserves), and what it says of memory stands at the beginning. Memory and work are bounded whatever is printed.
"""

from __future__ import annotations

import re

MAX_KEPT = 160 << 10
_MAX_LINES = 2_000
_MAX_LINE = 2_000
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
    """Gathers telling lines from blocks of whole lines."""

    def __init__(self) -> None:
        self._kept: dict[int, bytes] = {}
        self._size = 0
        self._seen = 0
        self._end = b""

    def add(self, block: bytes) -> None:
        """Look at whole lines, the next of the output."""
        if self._seen < _MAX_LOOKED_AT:
            for word in _TELLING:
                self._find(word, block)
        self._seen += len(block)
        self._end = (self._end + block[-_MAX_END:])[-_MAX_END:]

    def add_row(self, line: bytes, at: int) -> None:
        """Keep a line that made a row: `at` bytes into the block that is added next."""
        self._keep(self._seen + at, line + b"\n")

    def _find(self, word: bytes, block: bytes) -> None:
        at = block.find(word)
        while at >= 0 and self._size + _MAX_LINE <= MAX_KEPT and len(self._kept) < _MAX_LINES:
            first = block.rfind(b"\n", 0, at) + 1
            behind = block.find(b"\n", at) + 1 or len(block)
            self._keep(self._seen + first, block[first:behind])
            at = block.find(word, behind)

    def _keep(self, where: int, line: bytes) -> None:
        room = len(self._kept) < _MAX_LINES and self._size + _MAX_LINE <= MAX_KEPT
        if room and len(line) <= _MAX_LINE and where not in self._kept:
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
