"""Which pieces lie where, for all cards at once: the fastest deal of alike blocks' ways to lie within the rooms.

Lagrange's prices of a byte on every card say which way of a block is cheapest, and bound what any deal can reach;
branch and bound in the order of priced seconds then finds the deal.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from operator import mul, sub
from typing import NamedTuple

from service.engine.planner.sums import Way

_PRICINGS = 15
_MOST_NODES = 200
_EQUAL = 1e-9  # seconds


class Alike(NamedTuple):
    """A number of alike blocks and their ways to lie."""

    number: int
    ways: Sequence[Way]


class Priced(NamedTuple):
    """Seconds that no deal is below, and the prices of a byte on each device that show it."""

    bound: float
    prices: tuple[float, ...]


def priced(alike: Sequence[Alike], room: Sequence[int], to_beat: float) -> Priced:
    """Return the best prices that subgradient steps towards `to_beat` (Polyak's) find; they stop where it is passed."""
    scale = float(max(1, *room))
    prices, best = [0.0] * len(room), Priced(float("-inf"), (0.0,) * len(room))
    share = 1.0
    for _ in range(_PRICINGS):
        bound, short = -sum(map(mul, prices, room)), [-float(n) for n in room]
        for number, ways in alike:
            cheapest, n_bytes = min((w.seconds + sum(map(mul, prices, w.n_bytes)), w.n_bytes) for w in ways)
            bound += number * cheapest
            short = [s + number * n for s, n in zip(short, n_bytes, strict=True)]
        if bound > best.bound:
            best = Priced(bound, tuple(prices))
        else:
            share *= 0.7
        steps = [s / scale if s > 0 or p > 0 else 0.0 for s, p in zip(short, prices, strict=True)]
        square = sum(s * s for s in steps)
        if bound >= to_beat or not square:
            break
        step = share * (to_beat - bound) / square / scale
        prices = [max(0.0, p + step * s) for p, s in zip(prices, steps, strict=True)]
    return best


def deals(alike: Sequence[Alike], room: Sequence[int], to_beat: float, most: int = 1) -> list[Dealt]:
    """Return at most `most` deals in less than `to_beat` seconds, the fastest first."""
    if min(room) < 0:
        return []
    found = priced(alike, room, to_beat)
    if found.bound >= to_beat:
        return []
    search = _Search(alike, found.prices, to_beat, most)
    search.step(0, 0, -sum(map(mul, found.prices, room)), 0.0, tuple(room))
    return search.found


class Dealt(NamedTuple):
    """The seconds of a deal and, for each of the alike, the ways of its blocks."""

    seconds: float
    ways: list[list[Way]]


class _Search:
    """The state of one branch and bound."""

    def __init__(self, alike: Sequence[Alike], prices: Sequence[float], to_beat: float, most: int) -> None:
        self.ways = [
            sorted((way.seconds + sum(map(mul, prices, way.n_bytes)), way) for way in one.ways) for one in alike
        ]
        self.steps = [group for group, one in enumerate(alike) for _ in range(one.number)]
        self.after = [0.0]
        for group in reversed(self.steps):
            self.after.append(self.after[-1] + self.ways[group][0][0])
        self.after.reverse()
        self.to_beat, self.most, self.n_nodes = to_beat, most, 0
        self.taken = [0] * len(self.steps)
        self.found: list[Dealt] = []

    def step(self, n: int, first: int, value: float, seconds: float, left: tuple[int, ...]) -> None:
        """Deal block `n` in every way from `first` on. `value`: seconds and prices so far, less those of all room."""
        self.n_nodes += 1
        if n == len(self.steps):
            if len(self.found) < self.most or seconds < self.found[-1].seconds:
                self._keep(Dealt(seconds, self._read()))
            return
        group = self.steps[n]
        ways = self.ways[group]
        same = n + 1 < len(self.steps) and self.steps[n + 1] == group
        for i in range(first, len(ways)):
            more, way = ways[i]
            if value + more + self.after[n + 1] >= self.to_beat - _EQUAL or self.n_nodes >= _MOST_NODES:
                break
            rest = tuple(map(sub, left, way.n_bytes))
            if min(rest) >= 0:
                self.taken[n] = i
                self.step(n + 1, i if same else 0, value + more, seconds + way.seconds, rest)

    def _keep(self, dealt: Dealt) -> None:
        insort(self.found, dealt, key=_seconds)
        del self.found[self.most :]
        if len(self.found) == self.most:
            self.to_beat = min(self.to_beat, self.found[-1].seconds)

    def _read(self) -> list[list[Way]]:
        chosen: list[list[Way]] = [[] for _ in self.ways]
        for group, i in zip(self.steps, self.taken, strict=True):
            chosen[group].append(self.ways[group][i][1])
        return chosen


def _seconds(dealt: Dealt) -> float:
    return dealt.seconds
