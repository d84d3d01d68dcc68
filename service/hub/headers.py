"""Reads headers of variants: parsed while they arrive, several files at once, known content never twice.

A repo's first file is read until its tensor table is complete. That makes the tokenizer known, so of other variants
only the start and the tensor table are read, by ranges that jump over the shared part (engine/gguf/window.py); if
anything differs from the expectation, the file is read in full. A header read by a jump is cached for its repo only.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import BoundedSemaphore, Lock
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

from service.counting import count
from service.engine.errors import InvalidHeader, TruncatedHeader
from service.engine.gguf.header import Header, merge_shards
from service.engine.gguf.parser import HeaderParser
from service.engine.gguf.window import Doubt, LargeArray
from service.hub.cache import FileCache
from service.hub.errors import HubBusy, RepoTooLarge
from service.hub.listing import ListingLimits, RepoFile, Variant

if TYPE_CHECKING:
    from service.hub.ranges import Ranges, RemoteFile

FIRST_RANGE = 32 << 20  # of a file with a tokenizer in a repo not known yet: read only as far as needed
LATER_RANGE = 64 << 10  # of shards 2…n, which have little more than a tensor table
_SPARE = 16 << 10  # bytes by which a header may be longer than the one it is predicted from
_MOST_KNOWN = 64  # large arrays remembered of one repo
_PIECE = 1 << 20  # read at a time from a file on this disk


class RepoReader:
    """Reads the headers of one repo at one commit, or of one address, within the limits of what a repo may cost."""

    def __init__(
        self, ranges: Callable[[], Ranges], cache: FileCache | None, limits: ListingLimits, slots: ReadSlots,
        repo: str, folder: str, started: float,
    ) -> None:  # fmt: skip
        """`ranges` is called when a file must be read; `folder`: the address that file paths are appended to;
        `started`: a `time.monotonic` for the owner of several readers."""
        self._ranges, self._cache, self._limits, self._slots = ranges, cache, limits, slots
        self._repo, self._folder, self.started = repo, folder, started
        self._lock = Lock()
        self._n_bytes = 0
        self._first_in_full = Lock()
        self._known: tuple[LargeArray, ...] | None = None  # None: no file was read in full yet

    def read(
        self, variants: Sequence[Variant], in_full: bool, begin: Callable[[int], object]
    ) -> list[Header | InvalidHeader]:
        """Return the merged header of each variant, or what is wrong with it, in order. Raises the Hub's errors.

        `in_full`: no jumps, as required for what other repos and hosts are told. `begin` is called with the number of
        each variant, from 1, before it is waited for. (A generator would not do: the garbage collector ends one that
        is dropped in any thread, which then waits for threads that may need what it holds.)
        """
        found: list[Header | InvalidHeader] = []
        with ReadSlot(self._slots) as slot, ThreadPoolExecutor(max_workers=self._limits.parallel) as pool:
            parts = self._begun(pool, variants, slot, in_full)
            try:
                for number, variant in enumerate(variants, 1):
                    begin(number)
                    found.append(_merged([parts[file] for file in variant.files]))
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        return found

    def _begun(
        self, pool: ThreadPoolExecutor, variants: Sequence[Variant], slot: ReadSlot, in_full: bool
    ) -> dict[RepoFile, Future[Header]]:
        """Start reading every file: first the one that predicts the others, and small ones while it is read."""
        first = [variant.files[0] for variant in variants]
        later = [file for variant in variants for file in variant.files[1:]]
        parts = {file: pool.submit(self._file, file, slot, True, in_full) for file in first[:1]}
        parts |= {file: pool.submit(self._file, file, slot, False, in_full) for file in later}
        return parts | {file: pool.submit(self._file, file, slot, True, in_full) for file in first[1:]}

    def _file(self, file: RepoFile, slot: ReadSlot, is_first: bool, in_full: bool) -> Header:
        known = self._kept(file, in_full)
        if known is not None:
            return known
        slot.take()
        from service.hub.ranges import RemoteFile  # imports an HTTP client, which known headers do without

        remote = RemoteFile(self._repo, file.path, file.n_bytes, f"{self._folder}/{quote(file.path)}")
        if not is_first:
            header = self._stream(remote, LATER_RANGE)[0]
        elif in_full:
            header = self._in_full(remote)
        else:
            header = self._by_jump(remote)
        if file.sha256 and self._cache is not None:
            self._cache.put(self._own(file.sha256) if header.by_jump else file.sha256, header)
        return header

    def _kept(self, file: RepoFile, in_full: bool) -> Header | None:
        if file.sha256 is None:
            return None
        found = None
        if self._cache is not None:
            found = self._cache.get(file.sha256) or (None if in_full else self._cache.get(self._own(file.sha256)))
        count("hit" if found else "miss")
        return found

    def _own(self, sha256: str) -> str:
        """Return the cache key of a header read by a jump, which is trusted for this repo only."""
        return hashlib.sha256(f"{self._repo} {sha256}".encode()).hexdigest()

    def _by_jump(self, file: RemoteFile) -> Header:
        """Read a file with a tokenizer: the repo's first one in full, others by jumping over what is known."""
        with self._first_in_full:
            if self._known is None:
                return self._in_full(file)
        known = self._known if file.n_bytes else ()
        until_first_jump = min((array.start for array in known), default=FIRST_RANGE) + _SPARE
        try:
            header, arrays = self._stream(file, until_first_jump, known)
        except (Doubt, InvalidHeader):  # a wrong jump may land on anything
            return self._in_full(file)
        if not header.by_jump:
            self._learn(arrays)
        return header

    def _in_full(self, file: RemoteFile) -> Header:
        header, arrays = self._stream(file, FIRST_RANGE)
        self._learn(arrays)
        return header

    def _stream(
        self, file: RemoteFile, first: int, known: Sequence[LargeArray] = ()
    ) -> tuple[Header, tuple[LargeArray, ...]]:
        """Read from the start until the header is complete: at most `first` bytes, then as many as the parser needs.

        Return the header with its large arrays.
        """
        deadline = time.monotonic() + self._limits.file_seconds
        parser, stop = HeaderParser(file.n_bytes, known), first
        take = partial(self._take, parser)
        while parser.header is None:
            stop = min(max(stop, parser.needed), self._limits.header_bytes, file.n_bytes or 1 << 62)
            if parser.position >= stop:
                raise InvalidHeader(f"the header is larger than {self._limits.header_bytes >> 20} MiB")
            if file.ignores_ranges and known:
                raise Doubt("the server sends what is jumped over, again for each range")
            self._ranges().stream(file, parser.position, stop, deadline, take)
            stop = parser.expected + _SPARE if parser.expected > parser.position else parser.position + FIRST_RANGE
        return parser.header, parser.arrays

    def _take(self, parser: HeaderParser, data: bytes) -> bool:
        """Parse `data`; return whether to stop the stream: the header is complete, or continues elsewhere."""
        with self._lock:
            self._n_bytes += len(data)
            if self._n_bytes > self._limits.repo_header_bytes:
                raise RepoTooLarge(
                    f"the headers of this repo are larger than {self._limits.repo_header_bytes >> 20} MiB together: "
                    "name a variant",
                    field="constraints.variants",
                )
        goes_on = parser.position + len(data)
        return parser.feed(data) is not None or parser.position != goes_on

    def _learn(self, arrays: Sequence[LargeArray]) -> None:
        with self._lock:
            self._known = tuple(dict.fromkeys((*arrays, *(self._known or ()))))[:_MOST_KNOWN]


def _merged(parts: Sequence[Future[Header]]) -> Header | InvalidHeader:
    try:
        return merge_shards([part.result() for part in parts])
    except InvalidHeader as error:
        return error


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


READS = 4
WAIT_SECONDS = 5.0


class ReadSlots:
    """Limits how many repos are read at once. Answers from the cache take no slot."""

    def __init__(self, n: int = READS, wait_seconds: float = WAIT_SECONDS) -> None:
        self._n, self._wait, self._free = n, wait_seconds, BoundedSemaphore(n)

    def take(self) -> None:
        """Wait for a free slot and take it. Raises HubBusy after a few seconds."""
        if not self._free.acquire(timeout=self._wait):
            raise HubBusy(f"{self._n} repos are being read at this moment; ask again in a few seconds", retry_after=3)

    def give_back(self) -> None:
        self._free.release()


class ReadSlot:
    """At most one slot for a whole block, taken when first needed. Safe to use from several threads."""

    def __init__(self, slots: ReadSlots) -> None:
        self._slots, self._lock, self._taken = slots, Lock(), False

    def take(self) -> None:
        """Take the slot unless it was taken before. Raises HubBusy."""
        with self._lock:
            if not self._taken:
                self._slots.take()
                self._taken = True

    def __enter__(self) -> ReadSlot:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._taken:
                self._slots.give_back()
