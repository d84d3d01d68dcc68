"""A bound for published models: no placement that flags can express is faster.

An integer programme (HiGHS, by scipy) over the numbers of alike blocks: how many of a kind each card owns, with their
pieces where, and where the runs of the cards begin. It knows less than the flags do, so what it finds is a lower bound:
seconds are those of `Linear`, and compute buffers and overheads are the least that replays of the model needed on each
card: by whether it owns blocks, the head, or only holds others' pieces, and by the largest piece in RAM.

What it finds is also built, as near as runs of blocks allow, and priced by the functions that `check` uses: where that
fits, it is a placement that the planner could have found.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import NamedTuple

from bench.placing.linear import Choice, Linear, Where, owners_of
from bench.placing.written import written
from service.engine.planner.pricing.fit import Fitted, slack

_SECONDS = 20.0  # of one programme; the bound of one that is stopped holds, but is loose
_CLOSE = 5e-4  # of the bound, to which a programme is solved
_TRIES = 2  # random layouts of one set of runs that are replayed


class Bounded(NamedTuple):
    """What no placement is below; and the fastest of the programmes' own placements that fits, with its seconds."""

    least: float
    seconds: float
    fitted: Fitted | None


class Floors(NamedTuple):
    """Bytes beyond the sums on each card: that owns blocks, that also has the head, that only holds pieces; RAM's."""

    own: list[int]
    head: list[int]
    hold: list[int]
    ram: int


class Replayed(NamedTuple):
    """Flags with the memory that a replay gives, the bytes left on each card and of RAM, and the request's seconds."""

    fitted: Fitted
    left: list[int]
    seconds: float


def bounded(linear: Linear, seconds: float, starts: Sequence[int]) -> Bounded:
    """Return the bound of a problem for which a placement of `seconds` with runs from `starts` is known."""
    least, best, fitted = seconds, float("inf"), None
    for largest in linear.piece_sizes:
        floors = floors_of(linear, largest, starts)
        anyhow, _ = Programme(linear, largest, floors, in_runs=False).solved()
        if anyhow >= seconds:
            continue
        programme = Programme(linear, largest, floors)
        bound, taken = programme.solved()
        least = min(least, max(bound, anyhow))
        replayed = replay(linear, *programme.placed(taken)) if taken and bound < seconds else None
        if replayed is not None and min(replayed.left) >= 0 and replayed.seconds < best:
            best, fitted = replayed.seconds, replayed.fitted
    return Bounded(least, best, fitted)


def replay(linear: Linear, starts: Sequence[int], wheres: Sequence[Where]) -> Replayed | None:
    """Return what `check` says of a placement; None where no flags make it."""
    flags = written(linear.problem, linear.flags, starts, wheres)
    if flags is None:
        return None
    fitted = linear.problem.tried(flags)
    return Replayed(fitted, slack(linear.problem, fitted.memory), linear.priced(fitted))


def floors_of(linear: Linear, largest: int, starts: Sequence[int]) -> Floors:
    """Return the least that replays needed, over runs like `starts` and runs that leave cards out."""
    n, most = linear.n_cards, 1 << 60
    own, head, hold, ram = [most] * n, [most] * n, [most] * n, most
    for tried in dict.fromkeys(_runs(n, linear.problem.model.n_layer + 1, tuple(starts))):
        owners = owners_of(tried)
        rest = _least_rest(linear, tried, owners, largest)
        if not rest:
            continue
        ram = min(ram, rest[-1])
        for card in range(n):
            kind = hold if card not in owners else head if owners[-1] == card else own
            kind[card] = min(kind[card], rest[card])
    own = [min(a, b) for a, b in zip(own, head, strict=True)]
    head = [max(h - o, 0) if h < most else 0 for h, o in zip(head, own, strict=True)]
    hold = [min(a, b) for a, b in zip(hold, own, strict=True)]
    return Floors(own, head, hold, ram)


def _least_rest(linear: Linear, starts: Sequence[int], owners: Sequence[int], largest: int) -> list[int]:
    """Return the least that replays want beyond the sums, over layouts that need little; none if no flags do it."""
    rests = []
    for wheres in _layouts(linear, owners, largest):
        replayed = replay(linear, starts, wheres)
        if replayed is not None:
            rests.append(linear.rest(starts, wheres, replayed.fitted.memory))
    return [min(values) for values in zip(*rests, strict=True)]


def _layouts(linear: Linear, owners: Sequence[int], largest: int) -> Iterator[list[Where]]:
    """Yield layouts whose buffers are small: pieces with their owners, one on every card that owns no block.

    In RAM is a piece of the `largest` size, or every piece up to that size but one a card.
    """
    rng, host, sizes = random.Random(0), linear.n_cards, linear.piece_sizes_of
    for _ in range(_TRIES):
        wheres = [(owner,) * len(b.pieces) for b, owner in zip(linear.blocks, owners, strict=False)]
        with_pieces = [i for i, where in enumerate(wheres) if where]
        for card in sorted(set(range(host)) - set(owners)) if with_pieces else ():
            i = rng.choice(with_pieces)
            part = rng.randrange(len(wheres[i]))
            wheres[i] = tuple(card if p == part else device for p, device in enumerate(wheres[i]))
        places = [(i, part) for i, each in enumerate(sizes) for part, size in enumerate(each) if size == largest]
        owned = [(i, part) for i, where in enumerate(wheres) for part, d in enumerate(where) if d == owners[i]]
        last = {owners[i]: (i, part) for i, part in owned}
        fewer = {(i, part) for i, part in owned if sizes[i][part] <= largest} - set(last.values())
        for away in ({*places[:1]}, {*places[-1:]}, fewer) if places else (set[tuple[int, int]](),):
            yield [
                tuple(host if (i, part) in away else d for part, d in enumerate(where))
                for i, where in enumerate(wheres)
            ]


def _runs(n_cards: int, n_slots: int, starts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the runs, even ones, and for each card: the runs without it, and all blocks on it."""
    yield starts
    yield tuple(round(n_slots * i / n_cards) for i in range(n_cards + 1))
    for card in range(n_cards if n_cards > 1 else 0):
        yield (0,) * (card + 1) + (n_slots,) * (n_cards - card)
        if card:
            yield (0,) * card + (n_slots - 1,) + (n_slots,) * (n_cards - card)
        lengths = [end - start for start, end in pairwise(starts)]
        lengths[(card + 1) % n_cards] += lengths[card]
        lengths[card] = 0
        yield tuple(sum(lengths[:i]) for i in range(n_cards + 1))


class Programme:
    """The integer programme of one largest piece in RAM.

    Variables: the number of blocks of each (card, kind, way to lie); for each card whether it owns anything, has the
    head, and holds anything; for each block and card but the first, whether the block's card is that one or a later.
    Without the last (not `in_runs`) a card owns any blocks: a lower bound, too, and soon found.
    """

    def __init__(self, linear: Linear, largest: int, floors: Floors, *, in_runs: bool = True) -> None:
        self.linear, self.floors, self.n, self.in_runs = linear, floors, linear.n_cards, in_runs
        self.kinds = {block.kind: block for block in linear.blocks}
        self.fixed_bytes = {b.kind: number for b, number in zip(linear.blocks, linear.fixed_bytes, strict=True)}
        self.ways: list[tuple[int, int, Choice]] = [
            (card, kind, choice)
            for card in range(self.n)
            for kind, block in self.kinds.items()
            for choice in linear.best_choices(block, card, card, largest)
        ]
        self.n_blocks = len(linear.blocks)
        self.rows: list[dict[int, float]] = []
        self.low: list[float] = []
        self.high: list[float] = []

    # -- variables -----------------------------------------------------------------------------------------------

    def _owns(self, card: int) -> int:
        return len(self.ways) + card

    def _head(self, card: int) -> int:
        return len(self.ways) + self.n + card

    def _holds(self, card: int) -> int:
        return len(self.ways) + 2 * self.n + card

    def _from(self, block: int, card: int) -> int:
        return len(self.ways) + 3 * self.n + block * (self.n - 1) + card - 1

    @property
    def _n_variables(self) -> int:
        return len(self.ways) + 3 * self.n + self.n_blocks * (self.n - 1)

    # -- solving -------------------------------------------------------------------------------------------------

    def solved(self) -> tuple[float, list[tuple[int, int, Choice, int]]]:
        """Return the bound (infinite: nothing fits) and the blocks of each way that are taken."""
        linear, n_ways, n = self.linear, len(self.ways), self.n
        change, ends = linear.card_change, linear.ends_on_its_card
        costs = [linear.fixed(self.kinds[kind], card) + c.seconds for card, kind, c in self.ways]
        costs += [change if ends else 0.0] * n + [linear.head(card) for card in range(n)]
        costs += [0.0] * (self._n_variables - len(costs))
        self._room()
        self._numbers()
        if self.in_runs:
            self._runs()
        from scipy.optimize import Bounds, LinearConstraint, milp  # takes seconds, and few who import this solve
        from scipy.sparse import csr_array

        most = [math.inf] * n_ways + [1] * (self._n_variables - n_ways)
        matrix = csr_array(self._entries(), (len(self.rows), self._n_variables))
        found = milp(
            costs, integrality=[1] * len(costs), bounds=Bounds(0, most),
            constraints=LinearConstraint(matrix, self.low, self.high),
            options={"mip_rel_gap": _CLOSE, "time_limit": _SECONDS},
        )  # fmt: skip
        if found.status == 2:
            return float("inf"), []
        base = linear.constant - (change if ends else (n - 1) * change)
        values = [] if found.x is None else [round(x) for x in found.x[:n_ways]]
        taken = [(*way, count) for way, count in zip(self.ways, values, strict=False) if count]
        return base + (found.mip_dual_bound or 0.0), taken

    def _entries(self) -> tuple[Sequence[float], tuple[Sequence[int], Sequence[int]]]:
        entries = [(i, j, value) for i, row in enumerate(self.rows) for j, value in row.items()]
        i, j, values = zip(*entries, strict=True)
        return values, (i, j)

    def _add(self, row: dict[int, float], least: float, most: float) -> None:
        self.rows.append(row)
        self.low.append(least)
        self.high.append(most)

    def _room(self) -> None:
        """Bytes on every card and in RAM, in units of 64 MiB; a card that holds anything needs what replays showed."""
        capacity, floors, unit = self.linear.capacity, self.floors, float(1 << 26)
        for card in range(self.n):
            row = {
                i: (c.n_bytes[card] + (self.fixed_bytes[kind] if owner == card else 0)) / unit
                for i, (owner, kind, c) in enumerate(self.ways)
            }
            row[self._owns(card)] = (floors.own[card] - floors.hold[card]) / unit
            row[self._head(card)] = (self.linear.head_bytes + floors.head[card]) / unit
            row[self._holds(card)] = -(capacity[card] - floors.hold[card]) / unit
            self._add(row, -math.inf, 0)
            self._add({self._owns(card): 1, self._holds(card): -1}, -math.inf, 0)
            self._add({self._head(card): 1, self._owns(card): -1}, -math.inf, 0)
        self._add({self._head(card): 1 for card in range(self.n)}, 1, 1)
        ram = {i: c.n_bytes[-1] / unit for i, (_, _, c) in enumerate(self.ways)}
        self._add(ram, -math.inf, (capacity[-1] - floors.ram) / unit)

    def _runs(self) -> None:
        """Cards own runs of blocks, in their order; the head comes after the last one."""
        for block, card in product(range(self.n_blocks), range(1, self.n)):
            here = self._from(block, card)
            if block + 1 < self.n_blocks:
                self._add({here: 1, self._from(block + 1, card): -1}, -math.inf, 0)
            if card + 1 < self.n:
                self._add({here: 1, self._from(block, card + 1): -1}, 0, math.inf)
        for card in range(1, self.n):
            later = {self._head(other): -1.0 for other in range(card, self.n)}
            self._add({self._from(self.n_blocks - 1, card): 1, **later}, -math.inf, 0)
        for card, kind in product(range(self.n), self.kinds):
            row = {i: 1.0 for i, way in enumerate(self.ways) if way[:2] == (card, kind)}
            alike = [b.index for b in self.linear.blocks if b.kind == kind]
            for block in alike:
                if card:
                    row[self._from(block, card)] = -1.0
                if card + 1 < self.n:
                    row[self._from(block, card + 1)] = 1.0
            self._add(row, 0 if card else len(alike), 0 if card else len(alike))

    def _numbers(self) -> None:
        """Every block has one card, and only cards that own blocks have any."""
        for kind in self.kinds:
            number = sum(block.kind == kind for block in self.linear.blocks)
            self._add({i: 1.0 for i, way in enumerate(self.ways) if way[1] == kind}, number, number)
        for card in range(self.n):
            row = {i: 1.0 for i, way in enumerate(self.ways) if way[0] == card}
            self._add({**row, self._owns(card): -float(self.n_blocks)}, -math.inf, 0)

    def placed(self, taken: Sequence[tuple[int, int, Choice, int]]) -> tuple[tuple[int, ...], list[Where]]:
        """Return the runs, and for each block one of the ways of its card and kind."""
        lengths, waiting = [0] * self.n, dict[tuple[int, int], list[Where]]()
        for card, kind, choice, number in taken:
            lengths[card] += number
            waiting.setdefault((card, kind), []).extend([choice.where] * number)
        last = max(card for card in range(self.n) if lengths[card])
        n_slots = self.linear.problem.model.n_layer + 1
        starts = [sum(lengths[:card]) if card <= last else n_slots for card in range(self.n)] + [n_slots]
        owners = owners_of(starts)
        return tuple(starts), [waiting[owners[block.index], block.kind].pop() for block in self.linear.blocks]
