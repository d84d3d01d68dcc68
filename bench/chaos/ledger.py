"""What clients were told, written down the moment they were told it; and when anything last went well."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import msgspec

_MOST_WRONG = 50


class Sent(msgspec.Struct, kw_only=True):
    """A result that a client sent, and what it was last told about it."""

    id: str
    rows: str
    edit_key: str | None = None
    remarks: str | None = None
    state: str | None = None


class Ledger:
    """The record of all clients; thread-safe."""

    def __init__(self) -> None:
        self.advices: dict[str, str] = {}  # id: the final state that somebody was told, "" where nobody was
        self.validations: dict[str, str] = {}  # id: the key it was asked for with
        self.cancelled: set[str] = set()
        self.sent: dict[str, Sent] = {}
        self.reports: set[str] = set()
        self.answers: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.went_well: dict[str, list[tuple[float, float]]] = {}  # by what: when each began and ended
        self._lock = threading.Lock()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the ledger for a block."""
        with self._lock:
            yield

    def is_wrong(self, text: str) -> None:
        """Record something that must never happen."""
        with self._lock:
            if len(self.wrong) < _MOST_WRONG:
                self.wrong.append(text)

    def accept(self, advice: str, state: str) -> None:
        """Record an advice that was promised or is there, with the `state` reported."""
        with self._lock:
            final = state if state in ("ready", "failed") else ""
            known = self.advices.get(advice, "")
            if known and final and known != final:
                self.wrong.append(f"advice {advice} was {known}, then {final}")
            self.advices[advice] = known or final

    def well(self, what: str, began: float) -> None:
        """Record that something went well just now."""
        with self._lock:
            self.went_well.setdefault(what, []).append((began, time.monotonic()))

    def longest_gap(self, what: str, first: float, last: float) -> float:
        """Return the longest time, in seconds, without anything going well, from `first` to `last`."""
        ends = sorted(end for _, end in self.went_well.get(what, []) if first <= end <= last)
        times = [first, *ends, last]
        return max(b - a for a, b in pairwise(times))

    def recovered(self, what: str, after: float) -> float | None:
        """Return the seconds from `after` until something that started later went well; None if nothing did."""
        ends = [end for began, end in self.went_well.get(what, []) if began >= after]
        return min(ends) - after if ends else None
