"""Headers of variants: parsed as they arrive, shards side by side, known content never read again.

The first file of a repo is read until its tensor table is complete, and its connection given up; from then on the size
of a header is known, for the variants of a repo share their tokenizer, and one range of that size keeps the connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import IO, Protocol

from service.engine.errors import InvalidHeader, TruncatedHeader
from service.engine.gguf import Header, HeaderParser, merge_shards
from service.hub.errors import RepoTooLarge
from service.hub.listing import Limits, RepoFile, Variant
from service.hub.ranges import Ranges, RemoteFile

FIRST_RANGE = 32 << 20  # of a file with a tokenizer, when nothing is known of the repo yet: read as far as it is needed
LATER_RANGE = 256 << 10  # of shards 2…n, which have a tensor table and little else
_SPARE = 64 << 10
_PIECE = 1 << 20  # of a file on this disk


class HeaderCache(Protocol):
    """Parsed headers of single files, by the sha256 of the file's content."""

    def get(self, sha256: str) -> Header | None:
        """Return the header of the file with this content, or None."""
        ...

    def put(self, sha256: str, header: Header) -> None:
        """Keep a header."""
        ...


class NoCache:
    """Keeps nothing."""

    def get(self, sha256: str) -> Header | None:
        """Return None."""
        return None

    def put(self, sha256: str, header: Header) -> None:
        """Forget the header."""


class RepoReader:
    """Reads the headers of one repo at one commit, and keeps to what one repo may cost."""

    def __init__(
        self, ranges: Ranges, cache: HeaderCache, limits: Limits, repo: str, revision: str, started: float
    ) -> None:
        """`started`: a time of `time.monotonic`, for whoever keeps readers."""
        self._ranges, self._cache, self._limits = ranges, cache, limits
        self._repo, self._revision, self.started = repo, revision, started
        self._lock = Lock()
        self._n_bytes = 0
        self._likely: int | None = None  # bytes of a header with a tokenizer in this repo

    def read(self, variant: Variant) -> Header:
        """Return the merged header of a variant. Raises InvalidHeader's tree and the Hub's errors."""
        with ThreadPoolExecutor(max_workers=min(self._limits.parallel, len(variant.files))) as pool:
            parts = [pool.submit(self._read_file, file, i == 0) for i, file in enumerate(variant.files)]
            try:
                return merge_shards([part.result() for part in parts])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _read_file(self, file: RepoFile, is_first: bool) -> Header:
        known = self._cache.get(file.sha256) if file.sha256 else None
        if known is not None:
            return known
        remote = RemoteFile(self._repo, self._revision, file.path, file.n_bytes)
        header = self._stream(remote, (self._likely or FIRST_RANGE) if is_first else LATER_RANGE)
        if is_first:
            self._likely = max(self._likely or 0, header.n_bytes + _SPARE)
        if file.sha256:
            self._cache.put(file.sha256, header)
        return header

    def _stream(self, file: RemoteFile, first: int) -> Header:
        """Read from the start until the header is complete: `first` bytes at most at first, then ever more."""
        deadline = time.monotonic() + self._limits.file_seconds
        parser = _Counted(HeaderParser(file.n_bytes), self._spend)
        position, stop = 0, first
        while parser.header is None:
            stop = min(max(stop, parser.needed), self._limits.header_bytes, file.n_bytes or 1 << 62)
            if position >= stop:
                raise InvalidHeader(f"the header is larger than {self._limits.header_bytes >> 20} MiB")
            position = self._ranges.stream(file, position, stop, deadline, parser.take)
            stop = 2 * position
        return parser.header

    def _spend(self, n_bytes: int) -> None:
        with self._lock:
            self._n_bytes += n_bytes
            if self._n_bytes > self._limits.repo_header_bytes:
                raise RepoTooLarge(
                    f"the headers of this repo are larger than {self._limits.repo_header_bytes >> 20} MiB together: "
                    "name a variant",
                    field="constraints.variants",
                )


class _Counted:
    """A parser that says when it has enough, and counts what it is given."""

    def __init__(self, parser: HeaderParser, spend: Callable[[int], None]) -> None:
        self._parser, self._spend = parser, spend
        self.header: Header | None = None

    @property
    def needed(self) -> int:
        """Bytes from the start of the file that there must be at least."""
        return self._parser.needed

    def take(self, data: bytes) -> bool:
        """Parse `data`; return whether the header is complete."""
        self._spend(len(data))
        self.header = self._parser.feed(data)
        return self.header is not None


def header_of_file(stream: IO[bytes], size: int, limit: int) -> Header:
    """Return the header of an open file of `size` bytes.

    Raises NotGguf, TruncatedHeader and InvalidHeader as the parser does, and InvalidHeader for one over `limit`.
    """
    parser, read = HeaderParser(size), 0
    while read < limit and (data := stream.read(min(_PIECE, limit - read))):
        read += len(data)
        if (header := parser.feed(data)) is not None:
            return header
    if read >= limit:
        raise InvalidHeader(f"the header is larger than {limit >> 20} MiB")
    raise TruncatedHeader(f"the file ends after {read} bytes, inside its header: download or upload it again")
