"""The buffers of cards that share every layer, as replays found them: a lower bound for variants not yet placed.

Variants of a repo differ in the types of their weights only, so with the same number of cards, micro-batch and cache
their buffers are nearly the same. A replay takes seconds; one variant's rules out others without any.
"""

from __future__ import annotations

from typing import TypeAlias

from service.engine.config import Engine, Flags

_Shape: TypeAlias = tuple[Engine, str, int, str, str]


class KnownBuffers:
    """Bytes that all cards together need beyond weights, cache and reserve: the least that replays found.

    `n_known` counts up whenever something was learned.
    """

    def __init__(self) -> None:
        self._found: dict[_Shape, dict[tuple[int, int], float]] = {}
        self.n_known = 0

    def note(self, engine: Engine, flags: Flags, n_cards: int, n_bytes: float) -> None:
        """Note the bytes that a replay found."""
        found, size = self._found.setdefault(_shape(engine, flags), {}), (n_cards, flags.n_ubatch)
        if size not in found or n_bytes < found[size]:
            found[size], self.n_known = n_bytes, self.n_known + 1

    def least(self, engine: Engine, flags: Flags, n_cards: int) -> float:
        """Return the bytes needed at least: as much as fewer cards with smaller micro-batches needed, 0 if unknown."""
        found = self._found.get(_shape(engine, flags), {})
        alike = (n for (cards, batch), n in found.items() if cards <= n_cards and batch <= flags.n_ubatch)
        return max(alike, default=0.0)


def _shape(engine: Engine, flags: Flags) -> _Shape:
    return engine, flags.split_mode, flags.n_ctx, flags.cache_type_k, flags.cache_type_v
