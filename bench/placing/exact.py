"""The exact optimum of a short problem: every run of blocks a card, every device for every piece.

**What is searched.** All ways to deal the blocks and the head to the cards in runs (`-ts`), and for each of them all
ways to put the up and gate, and the down of each block on any card or in RAM (`-ot`). Up and gate are never apart.

**Why nothing is missed.** A branch of the search is left for one of four reasons only:

1. *Alike blocks.* Blocks of one kind on one card that lie between blocks of this card are interchangeable in seconds
   and in sums of bytes, so only their numbers are enumerated. Where a replay refuses one arrangement, others are tried.
   A way for a block to lie that another way beats in seconds and in bytes on every card is left out.
2. *Seconds.* `Linear` is a lower bound of the seconds, equal to them at the placement that is to be beaten. A deal
   whose integer programme (HiGHS) has a bound that is not below the best known seconds by `RESOLUTION` is left whole.
   In the others, for any price a byte on each device, the least sum of seconds and prices over the blocks left, less
   the prices of all room left, is a lower bound of what is to come (Lagrange; prices of the linear programme).
3. *Bytes.* The sums of weights and caches and the least `rest` (compute buffer, overhead, reserve) exceed the room. The
   least rest is that of replays of layouts that need little, of the deal and then of its cases: which cards hold pieces
   of others' blocks and of their own, and the largest piece in RAM (the first card has room for a copy of it). It is
   watched in every further replay; should one need less, the case is searched again with that (`n_corrected`).
4. *The replay* of the flags themselves, by `check`'s functions.

`everything` replays all placements, with none of these reasons: on the smallest problems both find the same optimum.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations, count, pairwise, product
from typing import NamedTuple

import numpy as np
from scipy.optimize import LinearConstraint, linprog, milp

from bench.placing.linear import Choice, Linear, Where, all_starts, owners_of
from bench.placing.written import written
from service.engine.planner.fit import Fitted, slack

RESOLUTION = 1e-3  # of the best known seconds: gains below that are not looked for
_MOST_NODES = 30_000  # of one problem, then it is given up: what is left has a bound
_NODES_OF_A_BOUND = 20  # a linear programme takes as long
_ARRANGEMENTS = 3  # of alike blocks that are replayed before a placement is given up
_HOSTED = 2


class Optimum(NamedTuple):
    """The fastest placement that fits (None: none does), its seconds, and what no placement is below."""

    seconds: float
    fitted: Fitted | None
    least: float
    n_replays: int
    n_nodes: int
    n_corrected: int


def _subsets(cards: Sequence[int]) -> Iterator[frozenset[int]]:
    return map(frozenset, chain.from_iterable(combinations(cards, n) for n in range(len(cards) + 1)))


def optimum(linear: Linear, seconds: float, fitted: Fitted | None) -> Optimum:
    """Return the exact optimum. `seconds` and `fitted`: a placement that is known, to be beaten."""
    return Search(linear, seconds, fitted).run()


def everything(linear: Linear) -> float:
    """Return the seconds of the fastest placement that fits, by replaying all of them (infinite: none fits)."""
    search, best = Search(linear, float("inf"), None), float("inf")
    devices = range(linear.n_cards + 1)
    ways = [list(product(devices, repeat=len(block.pieces))) for block in linear.blocks]
    for starts in all_starts(linear.n_cards, linear.problem.model.n_layer + 1):
        for wheres in product(*ways):
            replayed = search.replay(starts, wheres)
            if replayed is not None and min(replayed.left) >= 0:
                best = min(best, replayed.seconds)
    return best


class _Replayed(NamedTuple):
    fitted: Fitted
    left: list[int]
    seconds: float


class _Replayed(NamedTuple):
    fitted: Fitted
    left: list[int]
    seconds: float


class Search:
    """What the searches of all deals share: the best that is known, and what it took."""

    def __init__(self, linear: Linear, seconds: float, fitted: Fitted | None) -> None:
        self.linear, self.problem = linear, linear.problem
        self.best, self.fitted = seconds, fitted
        self.n_replays = self.n_nodes = self.n_corrected = 0
        self.rng = random.Random(0)

    def run(self) -> Optimum:
        """Follow what has the lowest bound: a deal to its cases, a case to its placements."""
        numbers = count()
        waiting: list[tuple[float, int, Part]] = []

        def add(parts: Iterable[Part], above: float) -> None:
            for part in parts:
                if self.n_nodes >= _MOST_NODES:
                    heapq.heappush(waiting, (above, next(numbers), part))
                elif (bound := part.bound()) < self.to_beat:
                    heapq.heappush(waiting, (bound, next(numbers), part))

        add((Part(self, deal) for deal in self._deals()), 0.0)
        while waiting and waiting[0][0] < self.to_beat and self.n_nodes < _MOST_NODES:
            bound, _, part = heapq.heappop(waiting)
            if part.case is None:
                add((Part(self, part.deal, case) for case in part.cases()), bound)
            elif not part.search():
                heapq.heappush(waiting, (bound, next(numbers), part))
        least = min(waiting[0][0] if waiting else self.best, self.to_beat)
        return Optimum(self.best, self.fitted, least, self.n_replays, self.n_nodes, self.n_corrected)

    def _deals(self) -> Iterator[Deal]:
        for starts in all_starts(self.linear.n_cards, self.problem.model.n_layer + 1):
            deal = Deal(self.linear, starts)
            if all(a <= b for a, b in zip(deal.fixed_bytes, self.linear.capacity, strict=True)):
                yield deal

    @property
    def to_beat(self) -> float:
        return self.best * (1 - RESOLUTION)

    def replay(self, starts: Sequence[int], wheres: Sequence[Where]) -> _Replayed | None:
        """Return what `check` says of a placement; None where no flags make it."""
        flags = written(self.problem, self.linear.flags, starts, wheres)
        if flags is None:
            return None
        memory = self.problem.memory(flags)
        self.n_replays += 1
        fitted = Fitted(flags, memory)
        return _Replayed(fitted, slack(self.problem, memory), self.linear.priced(fitted))


class Case(NamedTuple):
    """The bytes of the largest piece in RAM, the cards that hold pieces of others' blocks, and those with their own."""

    largest: int
    hosts: frozenset[int]
    keepers: frozenset[int]


class Deal:
    """Blocks dealt to cards in runs: what follows of that alone."""

    def __init__(self, linear: Linear, starts: tuple[int, ...]) -> None:
        self.linear, self.starts, self.owners = linear, starts, owners_of(starts)
        blocks = list(zip(linear.blocks, pairwise(self.owners), strict=False))
        self.seconds = linear.constant + linear.head(self.owners[-1]) + linear.trailing(self.owners)
        self.seconds += sum(linear.fixed(block, owner) for block, (owner, _) in blocks)
        self.alike: dict[tuple[int, int, int], list[int]] = {}
        for block, (owner, following) in blocks:
            self.alike.setdefault((block.kind, owner, following), []).append(block.index)
        self.own = [(owner,) * len(block.pieces) for block, (owner, _) in blocks]
        self.fixed_bytes = linear.fixed_sums(starts)

    def groups(self, case: Case) -> list[tuple[list[int], list[Choice]]]:
        """Return alike blocks with their ways to lie, without those that another beats in seconds and in bytes."""
        return [
            (indices, self.linear.best_choices(self.linear.blocks[indices[0]], owner, following, *case))
            for (_, owner, following), indices in self.alike.items()
        ]

    def case_of(self, wheres: Sequence[Where]) -> Case:
        """Return the case that a placement belongs to."""
        host = self.linear.n_cards
        pairs = {(owner, device) for owner, where in zip(self.owners, wheres, strict=False) for device in where}
        hosts = frozenset(device for owner, device in pairs if device not in (owner, host))
        keepers = frozenset(device for owner, device in pairs if device == owner)
        return Case(self.linear.largest_in_ram(wheres), hosts, keepers)


class Part:
    """The search of one deal of blocks to cards, in one case (None: in all)."""

    def __init__(self, search: Search, deal: Deal, case: Case | None = None) -> None:
        self.search_of, self.deal, self.linear, self.case = search, deal, search.linear, case
        cards = frozenset(range(self.linear.n_cards))
        everything = Case(self.linear.piece_sizes[-1], cards, cards)
        self.groups = deal.groups(case or everything)
        self.rest: list[int] = []

    def cases(self) -> Iterator[Case]:
        """Yield all cases of this deal."""
        cards, sizes = range(self.linear.n_cards), self.linear.piece_sizes
        owning = {where[0] for where in self.deal.own if where}
        for hosts, keepers in product(_subsets(cards), _subsets(sorted(owning))):
            if all(owning - {card} for card in hosts):
                yield from (Case(largest, hosts, keepers) for largest in sizes)

    # -- bounds --------------------------------------------------------------------------------------------------

    @property
    def _room(self) -> list[int]:
        return [c - f - r for c, f, r in zip(self.linear.capacity, self.deal.fixed_bytes, self.rest, strict=True)]

    def bound(self) -> float:
        """Return a lower bound of the seconds; infinite where nothing fits, or no flags do it."""
        self.search_of.n_nodes += _NODES_OF_A_BOUND
        self.rest = [0] * (self.linear.n_cards + 1)
        if self._relaxed()[0] >= self.search_of.to_beat:
            return float("inf")
        self.rest = self.least_rest()
        if not self.rest or self._relaxed()[0] >= self.search_of.to_beat:
            return float("inf")
        return self._whole()

    def _programme(self) -> tuple[list[float], np.ndarray, np.ndarray, np.ndarray, list[int]]:
        """Return seconds, bytes and room in units of the largest piece, blocks of each group, and their numbers."""
        costs = [choice.seconds for _, choices in self.groups for choice in choices]
        weights = np.array([choice.n_bytes for _, choices in self.groups for choice in choices], dtype=float).T
        counts, at = np.zeros((len(self.groups), len(costs))), 0
        for i, (_, choices) in enumerate(self.groups):
            counts[i, at : at + len(choices)] = 1
            at += len(choices)
        scale = self._scale
        return costs, weights / scale, np.array(self._room) / scale, counts, [len(i) for i, _ in self.groups]

    @property
    def _scale(self) -> float:
        return float(max(1, *(n for _, choices in self.groups for choice in choices for n in choice.n_bytes)))

    def _relaxed(self) -> tuple[float, list[float]]:
        """Return the bound of the linear programme and its price of a byte on each device."""
        if min(self._room) < 0 or not all(choices for _, choices in self.groups):
            return float("inf"), []
        costs, weights, room, counts, numbers = self._programme()
        found = linprog(costs, A_ub=weights, b_ub=room, A_eq=counts, b_eq=numbers, method="highs")
        if found.status != 0:
            return float("inf"), []
        return self.deal.seconds + found.fun, [max(-float(m) / self._scale, 0.0) for m in found.ineqlin.marginals]

    def _whole(self) -> float:
        """Return the bound of the integer programme."""
        costs, weights, room, counts, numbers = self._programme()
        found = milp(
            costs, integrality=np.ones(len(costs)),
            constraints=(LinearConstraint(weights, ub=room), LinearConstraint(counts, numbers, numbers)),
            options={"mip_rel_gap": 1e-6, "time_limit": 5},
        )  # fmt: skip
        return float("inf") if found.status == 2 else self.deal.seconds + (found.mip_dual_bound or 0.0)

    def least_rest(self) -> list[int]:
        """Return the least that replays want beyond the sums, over layouts that need little; none if no flags do it."""
        rests = []
        for wheres in self._layouts():
            replayed = self.search_of.replay(self.deal.starts, wheres)
            if replayed is not None:
                rests.append(self.linear.rest(self.deal.starts, wheres, replayed.fitted.memory))
        return [min(values) for values in zip(*rests, strict=True)]

    def _layouts(self) -> Iterator[list[Where]]:
        """Layouts of the case that need little; of a deal as a whole: all pieces owned, or some of them in RAM."""
        linear, own, host = self.linear, self.deal.own, self.linear.n_cards
        if self.case is None:
            for largest in linear.piece_sizes[:2]:
                yield from self._in_ram(own, largest)
            yield [(host,) * len(where) for where in own]
            return
        for _ in range(_HOSTED):
            lying = self._hosted(self.case)
            if lying is not None:
                yield from self._in_ram(lying, self.case.largest)

    def _hosted(self, case: Case) -> list[Where] | None:
        """Pieces with their owners, where these keep any, else in RAM or on a host; one of others' on each host."""
        rng, host, wheres = self.search_of.rng, self.linear.n_cards, []
        for own, sizes in zip(self.deal.own, self.linear.piece_sizes_of, strict=True):
            hosts = sorted(case.hosts - set(own))
            if any(size > case.largest for size in sizes) and own[0] not in case.keepers and not hosts:
                return None
            wheres.append(
                tuple(
                    d if d in case.keepers else host if size <= case.largest else rng.choice(hosts)
                    for d, size in zip(own, sizes, strict=True)
                )
            )
        for card in sorted(case.hosts):
            others = [i for i, own in enumerate(self.deal.own) if own and own[0] != card]
            i = rng.choice(others)
            part = rng.randrange(len(wheres[i]))
            wheres[i] = tuple(card if p == part else device for p, device in enumerate(wheres[i]))
        return wheres

    def _in_ram(self, lying: Sequence[Where], largest: int) -> Iterator[list[Where]]:
        """Put into RAM one piece of the largest size, or all that may be there but one a card that keeps its own."""
        host, sizes, owners = self.linear.n_cards, self.linear.piece_sizes_of, self.deal.owners
        places = [(i, part) for i, each in enumerate(sizes) for part, size in enumerate(each) if size == largest]
        owned = [(i, part) for i, where in enumerate(lying) for part, d in enumerate(where) if d == owners[i]]
        last = {owners[i]: (i, part) for i, part in owned if self.case}
        fewer = {(i, part) for i, part in owned if sizes[i][part] <= largest} - set(last.values())
        for away in ({*places[:1]}, {*places[-1:]}, fewer):
            yield [
                tuple(host if (i, part) in away else d for part, d in enumerate(where)) for i, where in enumerate(lying)
            ]
            if not places:
                return

    # -- the search ----------------------------------------------------------------------------------------------

    def search(self) -> bool:
        """Search this case; False where a replay needed less than was thought, or it was given up: then again."""
        before, prices = list(self.rest), self._relaxed()[1]
        if prices:
            self._descend(prices)
        self.search_of.n_corrected += before != self.rest
        return before == self.rest and self.search_of.n_nodes < _MOST_NODES

    def _descend(self, prices: list[float]) -> None:
        ways = [
            sorted((c.seconds + sum(p * b for p, b in zip(prices, c.n_bytes, strict=True)), c) for c in choices)
            for _, choices in self.groups
        ]
        steps = [(group, i) for group, (indices, _) in enumerate(self.groups) for i in range(len(indices))]
        after = [0.0] * (len(steps) + 1)
        for n in range(len(steps) - 1, -1, -1):
            after[n] = after[n + 1] + ways[steps[n][0]][0][0]
        taken, search = [0] * len(steps), self.search_of

        def step(n: int, priced: float, left: tuple[int, ...]) -> None:
            """`priced`: seconds and prices so far, less the prices of all room."""
            search.n_nodes += 1
            if n == len(steps):
                self._leaf([ways[group][way][1].where for (group, _), way in zip(steps, taken, strict=True)])
                return
            group, i = steps[n]
            for way in range(taken[n - 1] if i else 0, len(ways[group])):
                value, choice = ways[group][way]
                if priced + value + after[n + 1] >= search.to_beat or search.n_nodes >= _MOST_NODES:
                    break
                rest = tuple(a - b for a, b in zip(left, choice.n_bytes, strict=True))
                if min(rest) >= 0:
                    taken[n] = way
                    step(n + 1, priced + value, rest)

        room = self._room
        step(0, self.deal.seconds - sum(p * r for p, r in zip(prices, room, strict=True)), tuple(room))

    def _leaf(self, flat: list[Where]) -> None:
        """Replay a placement of this case that could be the best, in some arrangements of its alike blocks."""
        wheres, at = [], 0
        for indices, _ in self.groups:
            wheres.append(flat[at : at + len(indices)])
            at += len(indices)
        seen: set[tuple[Where, ...]] = set()
        for _ in range(_ARRANGEMENTS):
            dealt = self._dealt(wheres)
            if self.deal.case_of(dealt) != self.case:
                return
            if dealt not in seen:
                if self.linear.seconds(self.deal.starts, dealt) >= self.search_of.to_beat or self._try(dealt):
                    return
                seen.add(dealt)
            wheres = [self.search_of.rng.sample(ways, len(ways)) for ways in wheres]

    def _dealt(self, wheres: list[list[Where]]) -> tuple[Where, ...]:
        found: dict[int, Where] = {}
        for (indices, _), ways in zip(self.groups, wheres, strict=True):
            found.update(zip(indices, ways, strict=True))
        return tuple(found[i] for i in range(len(self.linear.blocks)))

    def _try(self, wheres: tuple[Where, ...]) -> bool:
        """Replay; whether it fits, or is not faster in truth."""
        search = self.search_of
        replayed = search.replay(self.deal.starts, wheres)
        if replayed is None:
            return False
        rest = self.linear.rest(self.deal.starts, wheres, replayed.fitted.memory)
        self.rest = [min(a, b) for a, b in zip(rest, self.rest, strict=True)]
        if replayed.seconds >= search.to_beat:
            return True
        if min(replayed.left) < 0:
            return False
        search.best, search.fitted = replayed.seconds, replayed.fitted
        return True
