"""What a run takes of its cards, seen once a second: the most memory, the mean power."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from service.wire.measuring.runs import DeviceUse
from workers.agent.gpus import GpuNow, Gpus

PERIOD_SECONDS = 1.0


class Sampler:
    """A thread that looks at cards as long as the `with` block lasts. `latest`: what it saw last."""

    def __init__(self, gpus: Gpus, indices: Sequence[int], period: float | None = None) -> None:
        self._gpus, self._indices, self._period = gpus, tuple(indices), period or PERIOD_SECONDS
        self._before = {now.index: now.used for now in gpus.now(self._indices)}
        self._peak: dict[int, int] = {}
        self._watts: dict[int, list[float]] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, name="telemetry", daemon=True)
        self.latest: tuple[GpuNow, ...] = ()

    def __enter__(self) -> Self:
        if self._before:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(self._period):
            self.latest = self._gpus.now(self._indices)
            for now in self.latest:
                taken = max(0, now.used - self._before.get(now.index, 0))
                self._peak[now.index] = max(self._peak.get(now.index, 0), taken)
                if now.watts is not None:
                    total = self._watts.setdefault(now.index, [0.0, 0.0])
                    total[0], total[1] = total[0] + now.watts, total[1] + 1

    def uses(self, cards: Sequence[int], names: Sequence[str]) -> tuple[DeviceUse, ...]:
        """Return what each card of a run was seen to take beyond what it held before, under the engine's own names;
        nothing for a card that was never seen."""
        return tuple(
            DeviceUse(device=name, peak_mib=self._peak[card] >> 20, watts=self._mean(card))
            for card, name in zip(cards, names, strict=True)
            if card in self._peak
        )

    def joules(self, cards: Sequence[int]) -> float:
        """Return the energy that cards took so far, by the power at each look; 0 of a card that does not say it."""
        return self._period * sum(self._watts.get(card, (0.0, 0.0))[0] for card in cards)

    def _mean(self, card: int) -> float | None:
        total, count = self._watts.get(card, (0.0, 0.0))
        return round(total / count, 1) if count else None
