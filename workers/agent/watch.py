"""Tells whether the machine is free for a run, and whether a run must end: its owner and other programs come first."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, Self

import msgspec
import psutil

from service.wire.measuring.runs import DeviceUse
from workers.agent.policy import Policy, is_within_hours
from workers.agent.probe import GpuNow, Gpus

# Drivers and displays use some MiB on every card.
_SMALL_BYTES = 64 << 20


class Halt(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing may start or continue. `gave_way`: to the owner or another program, so the run is not to blame.
    `stopped`: the run reached one of the owner's limits, and would again."""

    kind: Literal["gave_way", "stopped"]
    why: str


class Watch:
    """Watches the cards `indices` (all that the policy allows, not only those of a run), the clock and the pause file.

    A process on a card is foreign unless it is this program or a descendant. Foreign CUDA programs always count;
    displays and games only if they use more than the policy's share of a card.
    """

    def __init__(
        self,
        gpus: Gpus,
        indices: Sequence[int],
        policy: Policy,
        pause: Path,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._gpus, self._indices, self._policy, self._pause, self._clock = gpus, tuple(indices), policy, pause, now
        self._present: frozenset[int] = frozenset()

    def before(self) -> Halt | None:
        """Return why no run may start now, and remember which processes are on the cards."""
        seen = self._gpus.now(self._indices)
        self._present = frozenset(process.pid for now in seen for process in now.processes)
        return self._of_owner() or _first(self._is_taken(now) for now in seen)

    def during(self, seen: Sequence[GpuNow] | None = None) -> Halt | None:
        """Return why the run must end. `seen`: the cards as just sampled; None: look now."""
        seen = self._gpus.now(self._indices) if seen is None else seen
        return self._of_owner() or _first(self._is_disturbed(now) or self._is_over(now) for now in seen)

    def _of_owner(self) -> Halt | None:
        if self._pause.exists():
            return Halt(kind="gave_way", why="this host is paused by its owner")
        if not is_within_hours(self._policy, self._clock().time()):
            return Halt(kind="gave_way", why=f"outside the hours of this host ({', '.join(self._policy.hours)})")
        return None

    def _is_taken(self, now: GpuNow) -> Halt | None:
        foreign = [process for process in now.processes if not _is_ours(process.pid)]
        if any(process.is_compute for process in foreign):
            return Halt(kind="gave_way", why=f"another program uses GPU {now.index}")
        return self._is_full(now, now.used)

    def _is_disturbed(self, now: GpuNow) -> Halt | None:
        """Ignore unknown pids: they are in another container, or this container's own as numbered outside it."""
        foreign = [one for one in now.processes if psutil.pid_exists(one.pid) and not _is_ours(one.pid)]
        if any(process.is_compute and process.pid not in self._present for process in foreign):
            return Halt(kind="gave_way", why=f"another program began to use GPU {now.index}")
        once = {process.pid: process.used or 0 for process in foreign}  # who computes and draws is listed twice
        return self._is_full(now, sum(once.values()))

    def _is_full(self, now: GpuNow, used: int) -> Halt | None:
        most = max(now.total * self._policy.foreign_mib_percent / 100, _SMALL_BYTES)
        if used <= most:
            return None
        share = self._policy.foreign_mib_percent
        return Halt(kind="gave_way", why=f"other programs hold {used >> 20} MiB of GPU {now.index}, over {share:g} %")

    def _is_over(self, now: GpuNow) -> Halt | None:
        hottest, most = self._policy.max_temperature, self._policy.max_watts
        if now.temperature is not None and now.temperature > hottest:
            return Halt(kind="stopped", why=f"GPU {now.index} has {now.temperature} °C, over the owner's {hottest}")
        if most is not None and now.watts is not None and now.watts > most:
            return Halt(kind="stopped", why=f"GPU {now.index} takes {now.watts:.0f} W, over the owner's {most}")
        return None


def _first(found: Iterable[Halt | None]) -> Halt | None:
    return next((halt for halt in found if halt is not None), None)


def _is_ours(pid: int) -> bool:
    try:
        return pid == os.getpid() or any(parent.pid == os.getpid() for parent in psutil.Process(pid).parents())
    except psutil.Error:
        return False


PERIOD_SECONDS = 1.0


class Sampler:
    """Samples cards in a thread while its `with` block lasts. `latest`: the last sample."""

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

    def __exit__(self, *_: object) -> None:
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
        """Return what each card of a run used beyond what it held before, under the engine's names; nothing for a card
        that was never sampled."""
        return tuple(
            DeviceUse(device=name, peak_mib=self._peak[card] >> 20, watts=self._mean(card))
            for card, name in zip(cards, names, strict=True)
            if card in self._peak
        )

    def joules(self, cards: Sequence[int]) -> float:
        """Return the energy cards have used so far, by the power of each sample; 0 for cards that do not report
        power."""
        return self._period * sum(self._watts.get(card, (0.0, 0.0))[0] for card in cards)

    def _mean(self, card: int) -> float | None:
        total, count = self._watts.get(card, (0.0, 0.0))
        return round(total / count, 1) if count else None
