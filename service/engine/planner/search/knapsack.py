"""Which pieces to put into a card's free memory: a knapsack whose items are kinds of interchangeable blocks.

A whole block on a card also saves its changes of device and the CPU's part in it; a part saves its own time only. So
most blocks are moved whole, and parts fill what is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

Option: TypeAlias = Literal["whole", "up and gate", "down"]
OPTIONS: tuple[Option, ...] = ("whole", "up and gate", "down")
_FEWER = 2  # whole blocks given up at most, so that parts fill the room better
_MOST_PARTS = 8  # of one kind
_MOST_STEPS = 2_000  # of a branch and bound
_MOST_ADDED = 2  # parts that `pack_greedily` adds to whole blocks


class Item(NamedTuple):
    """`n_blocks` blocks of one kind, with the bytes and the seconds saved of each option, in the order of OPTIONS.

    Bytes 0: the option does not exist. `rate`: seconds saved a byte by the best option.
    """

    kind: int
    n_blocks: int
    n_bytes: tuple[int, ...]
    saved: tuple[float, ...]
    rate: float

    def times(self, n_blocks: int) -> Item:
        return Item(self.kind, n_blocks, self.n_bytes, self.saved, self.rate)

    @property
    def least_bytes(self) -> float:
        """Bytes of the smallest option that saves time, infinite where none does."""
        useful = (b for b, s in zip(self.n_bytes, self.saved, strict=True) if b and s > 0)
        return min(useful, default=math.inf)

    @property
    def all_bytes(self) -> int:
        return self.n_blocks * self.n_bytes[0]


def one_block(kind: int, n_bytes: tuple[int, ...], saved: tuple[float, ...]) -> Item:
    """Return the item of one block."""
    rates = [s / b for b, s in zip(n_bytes, saved, strict=True) if b]
    return Item(kind, 1, n_bytes, saved, max(rates, default=0.0))


class Packed(NamedTuple):
    """What was taken: the number of blocks of each item by option, the bytes, and the seconds saved."""

    counts: tuple[tuple[int, int, int], ...]
    n_bytes: int
    saved: float


def pack_greedily(items: Sequence[Item], room: int) -> Packed:
    """Return a good packing of `room` bytes: whole blocks by seconds saved a byte, then the best parts that fit."""
    counts, left, saved = [[0, 0, 0] for _ in items], room, 0.0
    for i in sorted(range(len(items)), key=lambda i: -items[i].rate):
        n_bytes, gain = items[i].n_bytes[0], items[i].saved[0]
        if n_bytes and gain > 0 and n_bytes <= left:
            n = min(items[i].n_blocks, left // n_bytes)
            counts[i][0], left, saved = n, left - n * n_bytes, saved + n * gain
    for _ in range(_MOST_ADDED):
        gain, best, part = 0.0, -1, 0
        for i, item in enumerate(items):
            if sum(counts[i]) < item.n_blocks:
                for option in (1, 2):
                    if gain <= item.saved[option] and item.saved[option] > 0 and 0 < item.n_bytes[option] <= left:
                        gain, best, part = item.saved[option], i, option
        if best < 0:
            break
        counts[best][part] += 1
        left, saved = left - items[best].n_bytes[part], saved + gain
    taken = tuple((whole, pairs, downs) for whole, pairs, downs in counts)
    return Packed(taken, room - left, saved)


def pack(items: Sequence[Item], room: int) -> Packed:
    """Return the packing of `room` bytes that saves most.

    Branch and bound over the items, the best seconds a byte first, with the fractional knapsack as the bound; after
    2,000 steps the best found so far is taken. The first descent is the greedy one.
    """
    order = sorted(range(len(items)), key=lambda i: -items[i].rate)
    search = _Search([items[i] for i in order])
    search.descend(0, room, 0.0, ())
    counts = dict(zip(order, search.best_counts, strict=True))
    taken = tuple(counts[i] for i in range(len(items)))
    used = sum(n * b for item, by in zip(items, taken, strict=True) for n, b in zip(by, item.n_bytes, strict=True))
    return Packed(taken, used, search.best)


class _Search:
    def __init__(self, items: list[Item]) -> None:
        self.items, self.steps_left = items, _MOST_STEPS
        self.best, self.best_counts = 0.0, ((0, 0, 0),) * len(items)

    def bound(self, start: int, room: int) -> float:
        """Return what the items from `start` on can save at most."""
        most = 0.0
        for item in self.items[start:]:
            if room <= 0 or item.rate <= 0:
                break
            n_bytes = min(room, item.all_bytes)
            most += n_bytes * item.rate
            room -= n_bytes
        return most

    def descend(self, i: int, room: int, saved: float, counts: tuple[tuple[int, int, int], ...]) -> None:
        """Try every sensible number of blocks of item `i`, then of those after it."""
        self.steps_left -= 1
        if saved > self.best:
            self.best, self.best_counts = saved, counts + ((0, 0, 0),) * (len(self.items) - i)
        if i == len(self.items) or self.steps_left <= 0:
            return
        if saved + self.bound(i, room) <= self.best * (1 + 1e-9):
            return
        for taken, n_bytes, more in _choices(self.items[i], room):
            self.descend(i + 1, room - n_bytes, saved + more, (*counts, taken))


def _choices(item: Item, room: int) -> list[tuple[tuple[int, int, int], int, float]]:
    """Numbers of blocks by option that fit, with their bytes and seconds saved, those that save most first.

    Parts are of one option only: the up and gate of one block and the down of another are worth less than a whole one.
    """
    whole_bytes, whole_saved = item.n_bytes[0], item.saved[0]
    most = min(item.n_blocks, room // whole_bytes) if whole_bytes and whole_saved > 0 else 0
    found = []
    for whole in range(most, max(most - _FEWER, 0) - 1, -1):
        left, n_left = room - whole * whole_bytes, item.n_blocks - whole
        base = (whole * whole_bytes, whole * whole_saved)
        for option in (1, 2):
            size, gain = item.n_bytes[option], item.saved[option]
            parts = min(n_left, left // size, _MOST_PARTS) if size and gain > 0 else 0
            for n in range(parts, 0, -1):
                taken = (whole, n, 0) if option == 1 else (whole, 0, n)
                found.append((taken, base[0] + n * size, base[1] + n * gain))
        found.append(((whole, 0, 0), *base))
    return sorted(found, key=lambda one: -one[2])
