"""The placement of a model of few blocks, in which each piece is a large share of a card.

There compute buffers, which no sum gives, decide what fits: they change with the runs, with what lies in RAM, and with
the copy of that for which the first card has room. So runs are tried one by one, each for every size of copy; all cards
are dealt at once; and the fastest deals are replayed that would fit if a buffer were some MiB smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from operator import add, sub
from typing import NamedTuple

from service.engine.config import Flags
from service.engine.memory import Memory
from service.engine.planner.deals import Alike, Dealt, deals
from service.engine.planner.exchanges import exchanged
from service.engine.planner.fit import Fitted, Placed, Problem, slack
from service.engine.planner.layout_flags import away_from, flags_with
from service.engine.planner.owners import Starts
from service.engine.planner.sums import Arrangement, Group, Sums, Where
from service.engine.units import MIB

SHORT = 16  # blocks and head
_MOST_SPLITS = 24
_ALL_SPLITS = 40  # so few are all tried
_ROUNDS = 2  # of replays that correct the rooms of a deal
_NEAR = 1.03  # of the best: deals above that are not looked for
_REFINED = 3
_LOOSE = ((32 * MIB, 6), (128 * MIB, 8), (256 * MIB, 8))  # bytes that a buffer may turn out smaller, deals replayed
_LOOSE_ROUNDS = 3
_LEAST_GAIN = 2e-4  # of the request
_MOST_EXCHANGES = 20


class Runs(NamedTuple):
    """Runs of blocks: the ways of alike ones to lie, the seconds of what is fixed, and the room for pieces."""

    starts: Starts
    groups: dict[Group, list[int]]
    alike: list[Alike]
    fixed: float
    room: list[int]


class Short:
    """One search. `priced` gives the seconds of flags with their memory."""

    def __init__(self, problem: Problem, flags: Flags, sums: Sums, priced: Callable[[Flags, Memory], float]) -> None:
        self.problem, self.flags, self.sums, self.priced = problem, flags, sums, priced
        self.n_slots = problem.model.n_layer + 1
        self.known: dict[Arrangement, list[int]] = {}
        self.found: dict[Arrangement, Placed] = {}
        self.excess = 0.0  # seconds of sums above those of the best

    @property
    def best(self) -> float:
        """The least seconds so far."""
        return min((placed.seconds for placed in self.found.values()), default=math.inf)

    def run(self, found: Sequence[Placed]) -> Placed | None:
        """Return the fastest placement; `found`: what is known to fit. None: nothing does."""
        for placed in found:
            self._keep(self.sums.read(placed.fitted.memory.placement), placed)
        settled = sorted(self._settled(), key=lambda one: one[0])
        for _, runs in settled[:_REFINED]:
            for loose, most in _LOOSE:
                for _ in range(_LOOSE_ROUNDS):
                    if not self._dealt(runs, [n + loose for n in runs.room], most):
                        break
        for one in sorted(self.found, key=lambda one: self.found[one].seconds)[:_REFINED]:
            self._exchanged(one)
        return min(self.found.values(), key=lambda placed: placed.seconds, default=None)

    # -- runs ----------------------------------------------------------------------------------------------------

    def _settled(self) -> Iterator[tuple[float, Runs]]:
        """Yield the seconds of what is dealt to runs, of those that a step leads to from better ones."""
        openings, seen = self._openings(), set[Starts]()
        while openings and len(seen) < _MOST_SPLITS:
            starts, before = openings.pop(0), self.best
            if starts in seen:
                continue
            seen.add(starts)
            for copied in (*reversed(self.sums.copies()), 0):
                seconds, runs = self._settle(starts, copied)
                if runs is not None:
                    yield seconds, runs
            if self.best < before:
                openings = [*self._near(starts), *openings]

    def _openings(self) -> list[Starts]:
        """The runs that are known, those a step away, all blocks on one card, or spread over the first cards."""
        n, n_slots = self.sums.n_cards, self.n_slots
        known = [one.starts for one in self.found]
        one_card = [tuple(0 if card <= owner else n_slots for card in range(n + 1)) for owner in range(n)]
        spread = [tuple(min(round(n_slots * i / used), n_slots) for i in range(n + 1)) for used in range(2, n + 1)]
        near = [other for starts in known for other in self._near(starts)]
        inner = combinations(range(n_slots + n - 1), n - 1) if math.comb(n_slots + n - 1, n - 1) < _ALL_SPLITS else ()
        every = [(0, *(at - i for i, at in enumerate(marks)), n_slots) for marks in inner]
        return [*known, *near, *one_card, *spread, *every]

    def _near(self, starts: Starts) -> Iterator[Starts]:
        """Yield the runs in which one boundary, or one and all after it, is moved by a block."""
        for first in range(1, self.sums.n_cards):
            for last in {first, self.sums.n_cards - 1}:
                for step in (1, -1):
                    moved = [start + step for start in starts[first : last + 1]]
                    if starts[first - 1] <= moved[0] and moved[-1] <= starts[last + 1]:
                        yield (*starts[:first], *moved, *starts[last + 1 :])

    def _settle(self, starts: Starts, copied: int) -> tuple[float, Runs | None]:
        runs = self._runs(starts, copied)
        if runs is None:
            return math.inf, None
        best = math.inf
        for _ in range(_ROUNDS):
            tried = self._dealt(runs, runs.room, 1, self.best * _NEAR)
            if not tried:
                break
            one, left = tried[-1]
            if min(left) >= 0:
                best = min(best, self.found[one].seconds)
            room = list(map(add, left, self._moved_bytes(one)))
            runs = runs._replace(
                room=[min(a, b) if n < 0 else b for a, b, n in zip(runs.room, room, left, strict=True)]
            )
        return best, runs if best < math.inf else None

    def _runs(self, starts: Starts, copied: int) -> Runs | None:
        """The runs with the room that a replay shows in which all is in RAM whose copy is not larger."""
        groups, n = self.sums.groups(starts), self.sums.n_cards
        alike = [Alike(len(indices), self.sums.ways(group, copied)) for group, indices in groups.items()]
        base = Arrangement(starts, ())
        wheres = tuple(
            tuple(n if piece.copied <= copied else owner for piece in block.pieces)
            for block, owner in zip(self.sums.blocks, base.owners, strict=False)
        )
        base = Arrangement(starts, wheres)
        left = self._replayed(base)
        moved = sum(self.sums.way(group, base.wheres[i]).seconds for group, each in groups.items() for i in each)
        room = list(map(add, left, self._moved_bytes(base)))
        return Runs(starts, groups, alike, self.sums.seconds(base) - moved, room) if min(room) >= 0 else None

    def _moved_bytes(self, one: Arrangement) -> list[int]:
        """The bytes of pieces on each device."""
        fixed = one._replace(wheres=((),) * len(one.wheres))
        return list(map(sub, self.sums.n_bytes(one), self.sums.n_bytes(fixed)))

    # -- pieces --------------------------------------------------------------------------------------------------

    def _dealt(
        self, runs: Runs, room: Sequence[int], most: int, to_beat: float | None = None
    ) -> list[tuple[Arrangement, list[int]]]:
        """Replay deals in less than `to_beat` seconds that were not yet, up to the first that fits."""
        to_beat = self.best * (1 - _LEAST_GAIN) if to_beat is None else to_beat
        slowest = sum(one.number * max(way.seconds for way in one.ways) for one in runs.alike) + 1
        limit = min(to_beat + self.excess - runs.fixed, slowest)
        tried = []
        for dealt in deals(runs.alike, room, limit, most):
            one = self._arranged(runs, dealt)
            if one not in self.known:
                tried.append((one, self._replayed(one)))
                if min(self.known[one]) >= 0:
                    break
        return tried

    def _arranged(self, runs: Runs, dealt: Dealt) -> Arrangement:
        wheres: list[Where] = [()] * len(self.sums.blocks)
        for indices, ways in zip(runs.groups.values(), dealt.ways, strict=True):
            for i, way in zip(indices, ways, strict=True):
                wheres[i] = way.where
        return Arrangement(runs.starts, tuple(wheres))

    def _exchanged(self, one: Arrangement) -> None:
        """Follow exchanges as long as replays confirm them."""
        n_left, moved = _MOST_EXCHANGES, True
        while moved and n_left > 0:
            moved = False
            for other in exchanged(self.sums, one, self.known[one], self.best * _LEAST_GAIN):
                if other not in self.known and n_left > 0:
                    n_left -= 1
                    if min(self._replayed(other)) >= 0 and self.found[other].seconds < self.found[one].seconds:
                        one, moved = other, True
                        break

    def _replayed(self, one: Arrangement) -> list[int]:
        """Return what a placement leaves on each device."""
        if one not in self.known:
            flags = flags_with(self.problem, self.flags, one.starts, away_from(self.problem, self.sums.blocks, one))
            memory = self.problem.memory(flags)
            self.known[one] = slack(self.problem, memory)
            if min(self.known[one]) >= 0:
                self._keep(one, Placed(Fitted(flags, memory), self.priced(flags, memory)))
        return self.known[one]

    def _keep(self, one: Arrangement, placed: Placed) -> None:
        if placed.seconds < self.best:
            self.excess = self.sums.seconds(one) - placed.seconds
        self.found[one] = placed
        self.known.setdefault(one, slack(self.problem, placed.fitted.memory))
