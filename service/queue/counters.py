"""Counters of all processes, summed in Redis: each process adds its own increments, and any can read the sums.

Nothing depends on them. A count that Redis did not accept is sent next time, or lost with its process.
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
    """One process's shared counters, and how much of them Redis has already. Thread-safe."""

    def __init__(self, registry: CollectorRegistry = REGISTRIES["shared"]) -> None:
        self._registry, self._sent, self._lock = registry, dict[str, float](), Lock()

    def send(self, redis: Redis) -> None:
        """Send new increments to Redis. Raises RedisError, OSError, and then they are kept for the next time."""
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
        """Return the sums in Prometheus' format, including increments not sent yet. Raises RedisError, OSError."""
        return generate_latest(_Sums(self, kept(redis)))

    def families(self, known: dict[str, float]) -> Iterator[Metric]:
        """Yield the metrics with Redis's values in place of this process's own."""
        for family in self._registry.collect():
            found = Metric(family.name, family.documentation, family.type, family.unit)
            for sample in family.samples:
                value = self._value(family.type, _field(sample.name, sample.labels), sample.value, known)
                if value is not None and not sample.name.endswith("_created"):
                    found.add_sample(sample.name, sample.labels, value)
            yield found

    def _value(self, kind: str, field: str, own: float, known: dict[str, float]) -> float | None:
        if kind == "gauge":  # a gauge that was never set has no value
            return own if own != self._sent.get(field, 0.0) else known.get(field)
        return known.get(field, 0.0) + own - self._sent.get(field, 0.0)

    def _samples(self) -> Iterator[tuple[str, str, float]]:
        for family in self._registry.collect():
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    yield _field(sample.name, sample.labels), family.type, sample.value


class _Sums:
    """The part of a registry that `generate_latest` needs."""

    def __init__(self, counters: Counters, known: dict[str, float]) -> None:
        self._counters, self._known = counters, known

    def collect(self) -> Iterable[Metric]:
        return self._counters.families(self._known)


def kept(redis: Redis) -> dict[str, float]:
    """Return the sums in Redis, by field. Raises RedisError, OSError."""
    if redis.hlen(KEY) > _MOST_FIELDS:
        redis.delete(KEY)  # cannot be ours, which has a few hundred fields
    found: dict[Any, Any] = redis.hgetall(KEY)
    return {str(field, "utf-8"): float(value) for field, value in found.items()}


def last(redis: Redis, name: str) -> float | None:
    """Return the last value that any process set of a gauge without labels. Raises RedisError, OSError."""
    found: Any = redis.hget(KEY, _field(name, {}))
    return None if found is None else float(found)


def _field(name: str, labels: dict[str, str]) -> str:
    return f"{name}{msgspec.json.encode(labels, order='sorted').decode()}"


COUNTERS = Counters()
