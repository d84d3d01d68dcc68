"""Content of the local Hub's files: real bytes at the front, and zeros made on demand up to a size of any height."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_CHUNK = 64 << 10
_ZEROS = bytes(_CHUNK)


@dataclass(frozen=True)
class Blob:
    """A file's content. `oid` is its identity: as an LFS oid, but of the front and the size, not of all the zeros."""

    front: bytes
    n_bytes: int
    is_lfs: bool = True

    @cached_property
    def oid(self) -> str:
        """64 hexadecimal digits."""
        return hashlib.sha256(self.front + self.n_bytes.to_bytes(8, "little")).hexdigest()

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from `start` to `stop` (not included) in pieces."""
        while start < min(stop, len(self.front)):
            piece = self.front[start : min(stop, len(self.front), start + _CHUNK)]
            yield piece
            start += len(piece)
        while start < stop:
            yield _ZEROS[: stop - start]
            start += min(_CHUNK, stop - start)


@dataclass(frozen=True)
class WholeFile(Blob):
    """A file of which every byte is there: its identity is its content's."""

    @cached_property
    def oid(self) -> str:
        return hashlib.sha256(self.front).hexdigest()


def text(content: str) -> Blob:
    """Return a small file that git keeps itself."""
    return Blob(content.encode(), len(content.encode()), is_lfs=False)
