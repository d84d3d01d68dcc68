"""A bounded disk cache of parsed headers by the hash of their file's content, shared by all repos and revisions.

Content under a hash never changes, so entries never become stale; the least recently used go first. Processes may share
a folder. What cannot be written is simply not cached, and everything may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import msgspec

from service.engine.gguf.header import Header
from service.scratch import write_whole

_SHAPE = "headers-1"  # to be raised when parsing the same file gives something else
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Header).decode


class _Kept(NamedTuple):
    """One file of the cache: when it was last asked for, its size, and where it is."""

    used_at: float
    n_bytes: int
    path: str


class FileCache:
    """A folder of headers. Safe to use from several threads and processes."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """`max_bytes` may be exceeded by a sixteenth for each process that writes."""
        self._folder, self._max_bytes = folder / _SHAPE, max_bytes
        self._until_counted = 0  # bytes that may be written before the folder is counted again
        self._lock = Lock()

    def get(self, key: str) -> Header | None:
        """Return the header stored under `key` (64 hexadecimal digits), None if there is none that can be read."""
        path = self._path(key)
        try:
            header = _decode(path.read_bytes())
            os.utime(path)
        except (OSError, msgspec.DecodeError):
            return None
        return header

    def put(self, key: str, header: Header) -> None:
        """Store a header, replacing an unreadable one."""
        data, path = _encode(header), self._path(key)
        with contextlib.suppress(OSError):
            write_whole(path, data)
        self._make_room(len(data))

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / key

    def _make_room(self, n_bytes: int) -> None:
        with self._lock:
            self._until_counted -= n_bytes
            if self._until_counted >= 0:
                return
            kept = sorted(_files(self._folder))
            total = sum(file.n_bytes for file in kept)
            for file in kept if total > self._max_bytes else ():
                if total <= self._max_bytes - self._max_bytes // 8:
                    break
                with contextlib.suppress(OSError):
                    os.unlink(file.path)
                total -= file.n_bytes
            self._until_counted = self._max_bytes // 16


def _files(folder: Path) -> list[_Kept]:
    """Return all files of the cache, except those that another process deletes meanwhile."""
    found = []
    with contextlib.suppress(OSError):
        for letters in os.scandir(folder):
            with contextlib.suppress(OSError), os.scandir(letters) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        seen = entry.stat()
                        found.append(_Kept(seen.st_mtime, seen.st_size, entry.path))
    return found
