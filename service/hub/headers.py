"""Headers of variants: a first range, more where the parser asks for it, shards side by side, known content never."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Protocol

from service.engine.errors import InvalidHeader
from service.engine.gguf import Header, NeedMore, merge_shards, parse_header
from service.hub.errors import RepoTooLarge
from service.hub.listing import Limits, RepoFile, Variant
from service.hub.ranges import Ranges, RemoteFile

FIRST_RANGE = 1 << 20  # of a file with a tokenizer, when nothing is known of the repo yet
LATER_RANGE = 256 << 10  # of shards 2…n, which have a tensor table and little else
_SPARE = 64 << 10


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
        self._first_range = FIRST_RANGE

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
        deadline = time.monotonic() + self._limits.file_seconds

        def more(start: int, stop: int) -> bytes:
            self._spend(stop - start)
            return self._ranges.read(remote, start, stop, deadline)

        header = grow(more, self._first_range if is_first else LATER_RANGE, file.n_bytes, self._limits.header_bytes)
        if is_first:  # the variants of a repo share their tokenizer, so their headers are of one size
            self._first_range = max(self._first_range, header.n_bytes + _SPARE)
        if file.sha256:
            self._cache.put(file.sha256, header)
        return header

    def _spend(self, n_bytes: int) -> None:
        with self._lock:
            self._n_bytes += n_bytes
            if self._n_bytes > self._limits.repo_header_bytes:
                raise RepoTooLarge(
                    f"the headers of this repo are larger than {self._limits.repo_header_bytes >> 20} MiB together: "
                    "name a variant",
                    field="constraints.variants",
                )


def grow(more: Callable[[int, int], bytes], first: int, file_size: int | None, limit: int) -> Header:
    """Return the header of a file of which `more(start, stop)` gives bytes: `first` bytes, then twice as many.

    Raises NotGguf, TruncatedHeader and InvalidHeader as parse_header does, and InvalidHeader for a header over `limit`.
    """
    data = bytearray()
    stop = first
    while True:
        stop = min(stop, limit, stop if file_size is None else max(file_size, 1))
        data += more(len(data), stop)
        try:
            return parse_header(data, file_size)
        except NeedMore as need:
            if need.n_bytes > limit:
                raise InvalidHeader(f"the header is larger than {limit >> 20} MiB") from need
            stop = max(need.n_bytes, 2 * len(data))
