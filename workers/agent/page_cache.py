"""Whether a model's files are in the page cache: the first load from disk takes minutes, the next one seconds."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

PageCache: TypeAlias = Literal["cold", "warm", "unknown"]

_WINDOW = 1 << 30
_WARM, _COLD = 0.95, 0.05
_LOWEST_BIT = bytes(byte & 1 for byte in range(256))  # it says so, the others are reserved
_LIBC = ctypes.CDLL(None, use_errno=True)
_PROT_READ, _MAP_SHARED, _FAILED = 1, 1, ctypes.c_void_p(-1).value
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def page_cache(files: Sequence[Path]) -> PageCache:
    """Return `warm` when 95 % of the files' pages are in memory, `cold` when at most 5 % are, else `unknown`.

    Also `unknown` for a file that belongs to somebody else and cannot be written: since Linux 5.2 the kernel tells only
    owners and writers (mm/mincore.c, can_do_mincore), and all others that everything is there.
    """
    pages = resident = 0
    for path in files:
        try:
            if path.stat().st_uid != os.getuid() and not os.access(path, os.W_OK):
                return "unknown"
            seen = _resident(path)
        except OSError:
            return "unknown"
        pages, resident = pages + seen[0], resident + seen[1]
    if not pages or _COLD < resident / pages < _WARM:
        return "unknown"
    return "warm" if resident / pages >= _WARM else "cold"


def _resident(path: Path) -> tuple[int, int]:
    """Return (pages of the file, pages of it in memory), a GiB at a time. Raises OSError."""
    pages = resident = 0
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        for offset in range(0, size, _WINDOW):
            vector = _window(file.fileno(), offset, min(_WINDOW, size - offset))
            pages += len(vector)
            resident += vector.translate(_LOWEST_BIT).count(1)
    return pages, resident


def _window(descriptor: int, offset: int, length: int) -> bytes:
    address = _LIBC.mmap(None, length, _PROT_READ, _MAP_SHARED, descriptor, offset)
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), "mmap")
    try:
        vector = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
        if _LIBC.mincore(ctypes.c_void_p(address), ctypes.c_size_t(length), vector) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
    finally:
        _LIBC.munmap(address, length)
    return vector.raw
