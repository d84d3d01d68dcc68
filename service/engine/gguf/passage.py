"""The way over a large array: walked element by element, or jumped over where another file of the repo has it too."""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.gguf.jump import SAMPLE, SMALLEST, Doubt, LargeArray, known_as
from service.engine.gguf.window import Window

MAX_STRING_BYTES = 1 << 20  # chat templates reach some 100 KB
_LENGTH = 8  # bytes of a text's length, the least that one takes


class Passage:
    """One array being passed. `seen`: the known one that it was taken for; `expected`: where reading may stop then."""

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
        """Pass as much as there is, and return when that is all. Raises NeedMore, InvalidHeader and Doubt."""
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
        """Return what was passed, or None where it is too small to be jumped over.

        `keys`: all of the header, with "" before and behind; `next_start`: where the next one, or the header, ends.
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
