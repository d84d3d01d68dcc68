"""How far away the local Hub seems: a delay for every request, and a line that all replies share."""

from __future__ import annotations

import time
from threading import Lock


class Distance:
    """`seconds` before each reply begins; `bytes_per_second` of all bodies together (None: as fast as it goes)."""

    def __init__(self, seconds: float = 0.0, bytes_per_second: float | None = None) -> None:
        self.seconds, self.bytes_per_second = seconds, bytes_per_second
        self._free_at = 0.0
        self._lock = Lock()

    def wait_for_request(self) -> None:
        """Wait as long as a request is under way."""
        if self.seconds:
            time.sleep(self.seconds)

    def wait_for_line(self, n_bytes: int) -> None:
        """Wait until the line has carried `n_bytes` after all that was sent before."""
        if self.bytes_per_second is None:
            return
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + n_bytes / self.bytes_per_second
            pause = self._free_at - time.monotonic()
        if pause > 0:
            time.sleep(pause)
