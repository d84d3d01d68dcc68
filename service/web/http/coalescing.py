"""Many who wait for the same kind of thing look at the database together: one query for all who ask within a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from anyio import CapacityLimiter, to_thread

GATHER_SECONDS = 0.02  # that the first waits for others to ask with him
_MOST_KNOWN = 10_000
T = TypeVar("T")


class Coalescer(Generic[T]):
    """One question about many keys, for the event loop's thread. `ask` is called in a thread of `limiter`."""

    def __init__(self, ask: Callable[[list[str]], Mapping[str, T]], limiter: CapacityLimiter) -> None:
        self._ask, self._limiter = ask, limiter
        self._wanted = set[str]()
        self._next: asyncio.Task[Mapping[str, T]] | None = None
        self._known: dict[str, tuple[float, T | None]] = {}

    async def of(self, key: str, max_age: float = 0.0) -> T | None:
        """Return the answer for a key, None where there is none: looked up after this was called, or at most
        `max_age` seconds before. Raises what `ask` raises."""
        known = self._known.get(key)
        if known is not None and time.monotonic() - known[0] <= max_age:
            return known[1]
        self._wanted.add(key)
        if self._next is None:
            self._next = asyncio.create_task(self._look())
        found = await asyncio.shield(self._next)  # the first caller may leave before it is answered
        return found.get(key)

    async def _look(self) -> Mapping[str, T]:
        await asyncio.sleep(GATHER_SECONDS)
        keys, self._wanted, self._next = list(self._wanted), set(), None
        began = time.monotonic()
        found = await to_thread.run_sync(self._ask, keys, limiter=self._limiter)
        if len(self._known) + len(keys) > _MOST_KNOWN:
            self._known.clear()
        self._known.update((key, (began, found.get(key))) for key in keys)
        return found
