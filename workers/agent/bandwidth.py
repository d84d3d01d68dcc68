"""How fast this machine's RAM is read, measured for half a second: what bounds experts that stay on the CPU."""

from __future__ import annotations

import ctypes
import mmap
import threading
import time

import psutil

_SECONDS, _ROUNDS = 0.5, 5
_BYTES_EACH = 32 << 20  # of one thread: together several times any last-level cache
_LEAST_BYTES = 512 << 20
_MOST_OF_FREE = 8
_LIBC = ctypes.CDLL(None)
_LIBC.memchr.restype = ctypes.c_void_p
_LIBC.memchr.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)


def read_bandwidth_gbs(seconds: float = _SECONDS) -> float | None:
    """Return GB/s (10^9 bytes) that all physical cores together read from RAM; None where too little RAM is free.

    Each core's thread searches its own memory for a byte that is not there: memchr of the C library reads every cache
    line once, by the widest loads, and Python lets all threads do so at once. The best of five rounds counts: whatever
    else the machine does only slows the others.
    """
    threads = psutil.cpu_count(logical=False) or 1
    each = max(_BYTES_EACH, _LEAST_BYTES // threads)
    if psutil.virtual_memory().available < _MOST_OF_FREE * each * threads:
        return None
    together = threading.Barrier(threads)
    readers = [_Reader(each, seconds / _ROUNDS, together) for _ in range(threads)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    rounds = zip(*(reader.bytes_per_second for reader in readers), strict=True)
    return round(max(map(sum, rounds)) / 1e9, 1)


class _Reader(threading.Thread):
    def __init__(self, size: int, seconds: float, together: threading.Barrier) -> None:
        super().__init__(daemon=True)
        self._size, self._seconds, self._together = size, seconds, together
        self.bytes_per_second: list[float] = []

    def run(self) -> None:
        """Pages are written first, by the thread that reads them: until then all are one page of zeros, and on several
        sockets they come to lie where they are first touched."""
        with mmap.mmap(-1, self._size) as memory:
            block = (ctypes.c_char * self._size).from_buffer(memory)
            address = ctypes.addressof(block)
            ctypes.memset(address, 1, self._size)
            for _ in range(_ROUNDS):
                self._together.wait()
                self.bytes_per_second.append(self._rate(address))
            del block

    def _rate(self, address: int) -> float:
        began, read = time.perf_counter(), 0
        while time.perf_counter() < began + self._seconds:
            _LIBC.memchr(address, 2, self._size)
            read += self._size
        return read / (time.perf_counter() - began)
