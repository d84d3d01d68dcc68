"""What cards that share every layer were found to need beyond weights and cache, for the candidates still to be placed.

Variants of a repo differ in the types of their weights only, so with as many cards, the same batch and cache their
buffers are nearly the same. They are replayed for one variant, and bound what the others may hope for.
"""

from __future__ import annotations

from typing import TypeAlias

from service.engine.config import Engine, Flags

_Shape: TypeAlias = tuple[Engine, str, int, str, str]


class KnownBuffers:
    """Bytes that all cards need beyond weights, cache and reserve: the least found of each number of cards and batch.

    `n_known`: how many replays were noted that found less than those before, or the first.
    """

    def __init__(self) -> None:
        self._found: dict[_Shape, dict[tuple[int, int], float]] = {}
        self.n_known = 0

    def note(self, engine: Engine, flags: Flags, n_cards: int, n_bytes: float) -> None:
        """Note what a replay found."""
        found, size = self._found.setdefault(_shape(engine, flags), {}), (n_cards, flags.n_ubatch)
        if size not in found or n_bytes < found[size]:
            found[size], self.n_known = n_bytes, self.n_known + 1

    def least(self, engine: Engine, flags: Flags, n_cards: int) -> float:
        """Return what the cards need at least by the replays: no more of them and no larger batches need less."""
        found = self._found.get(_shape(engine, flags), {})
        alike = (n for (cards, batch), n in found.items() if cards <= n_cards and batch <= flags.n_ubatch)
        return max(alike, default=0.0)


def _shape(engine: Engine, flags: Flags) -> _Shape:
    return engine, flags.split_mode, flags.n_ctx, flags.cache_type_k, flags.cache_type_v
