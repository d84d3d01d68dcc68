"""Questions to parts that may hang: each is given up after ASK_SECONDS, and asked once at a time.

Threads of their own: those of the flows may all hang in the very part that is asked about. A thread that hangs keeps no
process from ending.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from service.engine.errors import AdvisorError

ASK_SECONDS = 1.5
T = TypeVar("T")


class ProbeResult(NamedTuple, Generic[T]):
    """What a part said (None: nothing good), why not, and after how many seconds."""

    value: T | None
    error: str | None
    seconds: float


class ComponentProbe(Generic[T]):
    """One question, which many may ask at once. For the event loop's thread."""

    def __init__(self, ask: Callable[[], T], *, keep_seconds: float = 0.0) -> None:
        """`keep_seconds`: how long an answer is good for the next caller."""
        self._ask, self._keep = ask, keep_seconds
        self._asked: asyncio.Future[ProbeResult[T]] | None = None
        self._began = self._ended = 0.0

    async def answer(self) -> ProbeResult[T]:
        """Return the answer, after ASK_SECONDS at most. Raises nothing."""
        asked = self._asked
        if asked is None or (asked.done() and time.monotonic() - self._ended >= self._keep):
            asked = self._asked = self._begin()
        left = self._began + ASK_SECONDS - time.monotonic()
        await asyncio.wait({asked}, timeout=max(left, 0.0))
        if asked.done():
            return asked.result()
        waited = time.monotonic() - self._began
        return ProbeResult(None, "does not answer in time", waited)

    def _begin(self) -> asyncio.Future[ProbeResult[T]]:
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[ProbeResult[T]] = loop.create_future()
        self._began = time.monotonic()

        def done(answer: ProbeResult[T]) -> None:
            self._ended = time.monotonic()
            asked.set_result(answer)

        def run() -> None:
            answer = self._answered()
            with suppress(RuntimeError):  # the loop is over
                loop.call_soon_threadsafe(done, answer)

        threading.Thread(target=run, name="part", daemon=True).start()
        return asked

    def _answered(self) -> ProbeResult[T]:
        began = time.monotonic()
        try:
            value = self._ask()
        except AdvisorError as error:
            return ProbeResult(None, error.detail, time.monotonic() - began)
        except Exception as error:  # a part that fails in a way nobody planned is not good
            return ProbeResult(None, f"fails: {type(error).__name__}", time.monotonic() - began)
        return ProbeResult(value, None, time.monotonic() - began)
