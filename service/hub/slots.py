"""How many repos one process reads from the Hub at a time: others wait a few seconds, and are then sent away."""

from __future__ import annotations

from threading import BoundedSemaphore, Lock

from service.hub.errors import HubBusy

READS = 4
WAIT_SECONDS = 5.0


class ReadSlots:
    """So many reads at once. What is answered from the cache takes no slot."""

    def __init__(self, n: int = READS, wait_seconds: float = WAIT_SECONDS) -> None:
        self._n, self._wait, self._free = n, wait_seconds, BoundedSemaphore(n)

    def take(self) -> None:
        """Take a slot, as soon as one is free. Raises HubBusy after a few seconds."""
        if not self._free.acquire(timeout=self._wait):
            raise HubBusy(f"{self._n} repos are being read at this moment; ask again in a few seconds", retry_after=3)

    def give_back(self) -> None:
        """Give a slot back."""
        self._free.release()


class ReadSlot:
    """One slot for everything in a block, taken when the block first asks for it. Safe to use from several threads."""

    def __init__(self, slots: ReadSlots) -> None:
        self._slots, self._lock, self._taken = slots, Lock(), False

    def take(self) -> None:
        """Take the slot, unless that was done. Raises HubBusy."""
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
