"""Caches answers, each with the version of its content, so that a repeated request only looks up the version.

A change made by this service's code shows at once in every process, because the version is read from the database each
time. A change that nothing counts, such as a row edited by hand, shows after MOST_SECONDS.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

from anyio import to_thread

from service.web.http.conditional import etag_of

MOST_BYTES = 32 << 20
MOST_SECONDS = 10.0
_OF_AN_ENTRY = 500  # approximate bytes of an entry besides its body


class CachedResponse(NamedTuple):
    """A body with its ETag. `version` None: it changes too often to be cached."""

    body: bytes
    etag: str
    version: str | None


class ResponseCache:
    """Up to `most_bytes` of answers, least recently used dropped first. For the event loop's thread."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self.n_bytes = most_bytes, 0
        self._kept: OrderedDict[Hashable, tuple[float, CachedResponse]] = OrderedDict()
        self._making: dict[tuple[Hashable, str], asyncio.Task[CachedResponse]] = {}

    async def answer(self, key: Hashable, version: str | None, make: Callable[[], bytes]) -> CachedResponse:
        """Return what `make` returns, called in a thread, or what it returned before for this `version`.

        The version is read before calling this, so an answer is never older than the version it is cached under.
        Concurrent calls for the same answer share one `make`.
        """
        kept = self._kept.get(key)
        if kept and kept[1].version == version and time.monotonic() - kept[0] < MOST_SECONDS:
            self._kept.move_to_end(key)
            return kept[1]
        if version is None:
            self._forget(key)
            return await to_thread.run_sync(_made, make, version)
        making = self._making.get((key, version))
        if making is None:
            making = self._making[key, version] = asyncio.create_task(self._make(key, version, make))
        return await asyncio.shield(making)  # the first caller may be cancelled before it is made

    async def _make(self, key: Hashable, version: str, make: Callable[[], bytes]) -> CachedResponse:
        try:
            answer = await to_thread.run_sync(_made, make, version)
            self._keep(key, answer)
            return answer
        finally:
            del self._making[key, version]

    def _keep(self, key: Hashable, answer: CachedResponse) -> None:
        self._forget(key)
        self._kept[key] = (time.monotonic(), answer)
        self.n_bytes += len(answer.body) + _OF_AN_ENTRY
        while self.n_bytes > self._most:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: Hashable) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self.n_bytes -= len(found[1].body) + _OF_AN_ENTRY


def _made(make: Callable[[], bytes], version: str | None) -> CachedResponse:
    body = make()
    return CachedResponse(body, etag_of(body), version)
