"""What this host spent within a day: GPU time, the cards' energy, downloaded bytes. Kept by the hour on disk.

A day is the last 24 hours. Usage is noted as it happens: an agent that is killed loses only seconds of it.
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
    """Cards times seconds, joules that the cards of runs used, and bytes downloaded."""

    gpu_seconds: float = 0
    joules: float = 0
    fetched_bytes: int = 0


class UsageOfDay:
    """The usage of the last 24 hours, by hour. For one thread at a time."""

    def __init__(self, state: State, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Raises HostError if the file cannot be read, rather than resetting what counts towards the owner's limits."""
        self._state, self._clock = state, clock
        self._noted = time.monotonic()
        self._hours = state.decoded(USAGE, dict[datetime, Usage]) or {}

    def add(self, unit: Unit, amount: float) -> None:
        """Add to the usage; it is saved every ten seconds."""
        hour = self._clock().replace(minute=0, second=0, microsecond=0)
        used = self._hours.setdefault(hour, Usage())
        setattr(used, unit, getattr(used, unit) + (int(amount) if unit == "fetched_bytes" else amount))
        if time.monotonic() > self._noted + _NOTED_SECONDS:
            self.save()

    def save(self) -> None:
        """Save it, dropping what is older than a day."""
        self._noted = time.monotonic()
        self._hours = {hour: used for hour, used in self._hours.items() if self._counts(hour)}
        self._state.write(USAGE, msgspec.json.encode(self._hours))

    def total(self) -> Usage:
        """Return the sum of the last 24 hours; an hour counts in full until its last minute is a day old."""
        counted = [used for hour, used in self._hours.items() if self._counts(hour)]
        return Usage(
            gpu_seconds=sum(used.gpu_seconds for used in counted),
            joules=sum(used.joules for used in counted),
            fetched_bytes=sum(used.fetched_bytes for used in counted),
        )

    def _counts(self, hour: datetime) -> bool:
        """Hours a day ahead are of a clock that was set right since: until then they would count for ever."""
        return hour - _DAY < self._clock() < hour + timedelta(hours=1) + _DAY

    def why_over(self, policy: Policy) -> str | None:
        """Return which of the owner's daily limits is reached, None if none is."""
        used = self.total()
        hours, kwh = used.gpu_seconds / 3600, used.joules / _JOULES_PER_KWH
        if policy.max_gpu_hours_per_day is not None and hours >= policy.max_gpu_hours_per_day:
            return f"its {policy.max_gpu_hours_per_day:g} GPU-hours for a day are used up"
        if policy.max_kwh_per_day is not None and kwh >= policy.max_kwh_per_day:
            return f"its {policy.max_kwh_per_day:g} kWh for a day are used up"
        return None


class Meter:
    """Records what a run uses as it goes, and tells when a daily limit is reached."""

    def __init__(self, usage: UsageOfDay, policy: Policy, n_gpus: int, joules: Callable[[], float]) -> None:
        """`joules`: returns what the run's cards have used since it began."""
        self._usage, self._policy, self._n_gpus, self._joules = usage, policy, n_gpus, joules
        self._at, self._energy = time.monotonic(), 0.0

    def why_over(self) -> str | None:
        """Record what was used since the last call; return which limit is reached, None if none is."""
        now, energy = time.monotonic(), self._joules()
        self._usage.add("gpu_seconds", self._n_gpus * (now - self._at))
        self._usage.add("joules", energy - self._energy)
        self._at, self._energy = now, energy
        return self._usage.why_over(self._policy)

    def close(self) -> None:
        """Record the rest and save it."""
        self.why_over()
        self._usage.save()
