"""How a process ends while it is asked: it says so first, then lets go of those that wait, then stops listening."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anyio import CancelScope


class Drain:
    """The way out of one process, which only goes forward. For the event loop's thread.

    `begun`: /ready says so, that nothing new is sent here; everything is answered as ever. `leaving`: event streams and
    held requests end, whose clients come again, to another process.
    """

    def __init__(self) -> None:
        self.begun = self.leaving = False
        self._waits: set[CancelScope] = set()

    def begin(self) -> None:
        """Have /ready answer 503 from now on."""
        self.begun = True

    def leave(self) -> None:
        """End what waits, and let nothing wait any more."""
        self.begun = self.leaving = True
        for scope in self._waits:
            scope.cancel()

    @contextmanager
    def cutting(self, scope: CancelScope) -> Iterator[None]:
        """Cancel `scope` when the process leaves while the block runs, at once where it does already."""
        self._waits.add(scope)
        if self.leaving:
            scope.cancel()
        try:
            yield
        finally:
            self._waits.discard(scope)
