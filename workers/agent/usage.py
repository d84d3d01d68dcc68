"""What this host gave within a day: GPU time, the cards' energy, bytes fetched. Kept by the hour in the state folder.

A day is the last 24 hours. What is used is noted as it is used: an agent that is killed forgets seconds only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

from workers.agent.policy import Policy
from workers.agent.state import State

USAGE = "usage.json"
_NOTED_SECONDS = 10.0
_DAY = timedelta(hours=24)
_JOULES_PER_KWH = 3.6e6
Unit: TypeAlias = Literal["gpu_seconds", "joules", "fetched_bytes"]


class Usage(msgspec.Struct, forbid_unknown_fields=True):
    """Cards times seconds, joules that the cards of runs took, bytes that were downloaded."""

    gpu_seconds: float = 0
    joules: float = 0
    fetched_bytes: int = 0


class UsageOfDay:
    """The usage of the last 24 hours, by the hour in which it was. Used by one thread at a time."""

    def __init__(self, state: State, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Raises HostError where what was noted cannot be read: an owner's limits are not begun again for that."""
        self._state, self._clock = state, clock
        self._noted = time.monotonic()
        self._hours = state.decoded(USAGE, dict[datetime, Usage]) or {}

    def add(self, unit: Unit, amount: float) -> None:
        """Note what was used, on the disk every ten seconds."""
        hour = self._clock().replace(minute=0, second=0, microsecond=0)
        used = self._hours.setdefault(hour, Usage())
        setattr(used, unit, getattr(used, unit) + (int(amount) if unit == "fetched_bytes" else amount))
        if time.monotonic() > self._noted + _NOTED_SECONDS:
            self.save()

    def save(self) -> None:
        """Put it on the disk, and forget what is older than a day."""
        self._noted = time.monotonic()
        self._hours = {hour: used for hour, used in self._hours.items() if self._counts(hour)}
        self._state.write(USAGE, msgspec.json.encode(self._hours))

    def total(self) -> Usage:
        """Return the sum of the last 24 hours; an hour counts whole until its last minute is a day ago."""
        counted = [used for hour, used in self._hours.items() if self._counts(hour)]
        return Usage(
            gpu_seconds=sum(used.gpu_seconds for used in counted),
            joules=sum(used.joules for used in counted),
            fetched_bytes=sum(used.fetched_bytes for used in counted),
        )

    def _counts(self, hour: datetime) -> bool:
        return self._clock() < hour + timedelta(hours=1) + _DAY

    def why_over(self, policy: Policy) -> str | None:
        """Return which of the owner's limits of a day is reached, None while none is."""
        used = self.total()
        hours, kwh = used.gpu_seconds / 3600, used.joules / _JOULES_PER_KWH
        if policy.max_gpu_hours_per_day is not None and hours >= policy.max_gpu_hours_per_day:
            return f"its {policy.max_gpu_hours_per_day:g} GPU-hours of a day are used"
        if policy.max_kwh_per_day is not None and kwh >= policy.max_kwh_per_day:
            return f"its {policy.max_kwh_per_day:g} kWh of a day are used"
        return None


class Meter:
    """Notes what a run takes as it goes, and says when the day's limit is reached."""

    def __init__(self, usage: UsageOfDay, policy: Policy, n_gpus: int, joules: Callable[[], float]) -> None:
        """`joules`: what the run's cards took since it began."""
        self._usage, self._policy, self._n_gpus, self._joules = usage, policy, n_gpus, joules
        self._at, self._energy = time.monotonic(), 0.0

    def why_over(self) -> str | None:
        """Note what was used since the last call; return which limit is reached, None while none is."""
        now, energy = time.monotonic(), self._joules()
        self._usage.add("gpu_seconds", self._n_gpus * (now - self._at))
        self._usage.add("joules", energy - self._energy)
        self._at, self._energy = now, energy
        return self._usage.why_over(self._policy)

    def close(self) -> None:
        """Note the rest, on the disk."""
        self.why_over()
        self._usage.save()
