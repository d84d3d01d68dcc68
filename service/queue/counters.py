"""Counts of all processes, summed in Redis: each process adds its own increments, and any of them reads the sums.

Nothing depends on them. A count that Redis did not take is added the next time, and ends with its process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from redis import Redis

from service.metrics import REGISTRIES

KEY = "metrics"
_MOST_FIELDS = 5_000


class Counters:
    """What one process counted of the whole service, and how much of that Redis knows. Safe to use from threads."""

    def __init__(self, registry: CollectorRegistry = REGISTRIES["shared"]) -> None:
        self._registry, self._sent, self._lock = registry, dict[str, float](), Lock()

    def send(self, redis: Redis) -> None:
        """Add what is new to Redis. Raises RedisError, OSError, and then nothing is lost."""
        with self._lock:
            now = {field: (kind, value) for field, kind, value in self._samples()}
            new = {field: value for field, (_, value) in now.items() if value != self._sent.get(field, 0.0)}
            if not new:
                return
            with redis.pipeline(transaction=True) as pipeline:
                for field, value in new.items():
                    if now[field][0] == "gauge":
                        pipeline.hset(KEY, field, str(value))
                    else:
                        pipeline.hincrbyfloat(KEY, field, value - self._sent.get(field, 0.0))
                pipeline.execute()
            self._sent |= new

    def text(self, redis: Redis) -> bytes:
        """Return the sums in Prometheus' format, with what is not sent yet. Raises RedisError, OSError."""
        return generate_latest(_Sums(self, kept(redis)))

    def families(self, known: dict[str, float]) -> Iterator[Metric]:
        """Return the metrics with the values that Redis knows in place of this process' own."""
        for family in self._registry.collect():
            found = Metric(family.name, family.documentation, family.type, family.unit)
            for sample in family.samples:
                value = self._value(family.type, _field(sample.name, sample.labels), sample.value, known)
                if value is not None and not sample.name.endswith("_created"):
                    found.add_sample(sample.name, sample.labels, value)
            yield found

    def _value(self, kind: str, field: str, own: float, known: dict[str, float]) -> float | None:
        if kind == "gauge":  # one that was never set says nothing
            return own if own != self._sent.get(field, 0.0) else known.get(field)
        return known.get(field, 0.0) + own - self._sent.get(field, 0.0)

    def _samples(self) -> Iterator[tuple[str, str, float]]:
        for family in self._registry.collect():
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    yield _field(sample.name, sample.labels), family.type, sample.value


class _Sums:
    """What `generate_latest` takes."""

    def __init__(self, counters: Counters, known: dict[str, float]) -> None:
        self._counters, self._known = counters, known

    def collect(self) -> Iterable[Metric]:
        return self._counters.families(self._known)


def kept(redis: Redis) -> dict[str, float]:
    """Return what Redis knows, by field. Raises RedisError, OSError."""
    if redis.hlen(KEY) > _MOST_FIELDS:
        redis.delete(KEY)  # not of ours: what we write has a few hundred
    found: dict[Any, Any] = redis.hgetall(KEY)
    return {str(field, "utf-8"): float(value) for field, value in found.items()}


def last(redis: Redis, name: str) -> float | None:
    """Return the value of a gauge without labels, as some process set it last. Raises RedisError, OSError."""
    found: Any = redis.hget(KEY, _field(name, {}))
    return None if found is None else float(found)


def _field(name: str, labels: dict[str, str]) -> str:
    return f"{name}{msgspec.json.encode(labels, order='sorted').decode()}"


COUNTERS = Counters()
