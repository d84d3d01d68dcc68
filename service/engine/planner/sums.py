"""Seconds and bytes of whole placements as sums over blocks, and the ways in which the pieces of a block may lie."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import NamedTuple, TypeAlias

from service.engine.config import Placement
from service.engine.planner.blocks import Block
from service.engine.planner.costs import Costs
from service.engine.planner.owners import Starts

Where: TypeAlias = tuple[int, ...]  # the device of each piece of a block; the number of cards is RAM


class Arrangement(NamedTuple):
    """A placement: the first slot of every card, and where the pieces of every block are."""

    starts: Starts
    wheres: tuple[Where, ...]

    @property
    def owners(self) -> list[int]:
        """The card of each block and, last, of the head."""
        return owners_of(self.starts)


class Group(NamedTuple):
    """Blocks that are alike: of one kind, with one owner, and the same owner of what follows."""

    kind: int
    owner: int
    following: int


class Way(NamedTuple):
    """One way for the pieces of a block to lie: its seconds, and the bytes on each card and in RAM."""

    where: Where
    seconds: float
    n_bytes: tuple[int, ...]


class Sums:
    """The sums of one model under given flags. `fixed`, `head`: bytes of each block and the head on their card."""

    def __init__(self, blocks: Sequence[Block], costs: Costs, fixed: Sequence[int], head: int, n_cards: int) -> None:
        self.blocks, self.costs, self.fixed, self.head, self.n_cards = blocks, costs, fixed, head, n_cards
        self._members = {block.kind: block for block in blocks}
        self._ways: dict[tuple[Group, int], list[Way]] = {}

    def read(self, placement: Placement) -> Arrangement:
        """Return what a placement is, as runs and pieces."""
        owners = (*placement.layers, placement.head)
        starts = tuple(sum(owner < card for owner in owners) for card in range(self.n_cards + 1))
        tensors = placement.tensors
        return Arrangement(starts, tuple(tuple(tensors[p.names[0]] for p in b.pieces) for b in self.blocks))

    def seconds(self, arrangement: Arrangement) -> float:
        """Return the seconds of a request, by costs alone: the CPU's overlap is that of all pieces in RAM."""
        owners, costs = arrangement.owners, self.costs
        changes = sum(a != b for a, b in pairwise(owners[len(self.blocks) :]))
        total = costs.base + costs.head[owners[-1]] + changes * costs.card_change
        for block, where, (owner, following) in zip(self.blocks, arrangement.wheres, pairwise(owners), strict=False):
            total += costs.fixed[block.kind][owner]
            total += self.way(Group(block.kind, owner, following), where).seconds
        return total

    def n_bytes(self, arrangement: Arrangement) -> list[int]:
        """Return the bytes of blocks, head and pieces on each device."""
        owners, total = arrangement.owners, [0] * (self.n_cards + 1)
        total[owners[-1]] += self.head
        for block, where, owner, n_bytes in zip(self.blocks, arrangement.wheres, owners, self.fixed, strict=False):
            total[owner] += n_bytes
            for piece, device in zip(block.pieces, where, strict=False):
                total[device] += piece.n_bytes
        return total

    def copied(self, arrangement: Arrangement) -> int:
        """Return the bytes of the largest copy that the first card takes of what is in RAM; 0: of nothing."""
        pairs = zip(self.blocks, arrangement.wheres, strict=True)
        copies = (p.copied for b, where in pairs for p, d in zip(b.pieces, where, strict=True) if d == self.n_cards)
        return max(copies, default=0)

    def copies(self) -> list[int]:
        """Return all sizes of copies."""
        return sorted({piece.copied for block in self.blocks for piece in block.pieces})

    def groups(self, starts: Starts) -> dict[Group, list[int]]:
        """Return the numbers of the blocks that have pieces, by what they have in common."""
        found: dict[Group, list[int]] = {}
        for block, (owner, following) in zip(self.blocks, pairwise(owners_of(starts)), strict=False):
            if block.pieces:
                found.setdefault(Group(block.kind, owner, following), []).append(block.index)
        return found

    def ways(self, group: Group, copied: int) -> list[Way]:
        """Return the ways that no other beats in seconds and in bytes on every card.

        Nothing that takes a copy of more than `copied` bytes is in RAM.
        """
        key = (group, copied)
        if key not in self._ways:
            n, kept, pieces = self.n_cards, list[Way](), self._members[group.kind].pieces
            places = product(*(range(n + (piece.copied <= copied)) for piece in pieces))
            for way in sorted((self.way(group, where) for where in places), key=_seconds):
                if not any(all(a <= b for a, b in zip(k.n_bytes[:n], way.n_bytes, strict=False)) for k in kept):
                    kept.append(way)
            self._ways[key] = kept
        return self._ways[key]

    def way(self, group: Group, where: Where) -> Way:
        """Return the seconds of pieces, of the CPU's part and of the changes of device, and the bytes of the pieces."""
        costs, host, block = self.costs, self.n_cards, self._members[group.kind]
        total, seconds = [0] * (host + 1), costs.host_layer if host in where or block.stuck else 0.0
        for piece, cost, device in zip(block.pieces, costs.pieces[group.kind], where, strict=True):
            total[device] += piece.n_bytes
            seconds += cost[device] if device < host else 0.0
        stuck = (host,) if block.stuck else ()
        passed = pairwise((group.owner, *where, *stuck, *([group.owner] * block.returns), group.following))
        changes = [host in pair for pair in passed if pair[0] != pair[1]]
        seconds += sum(costs.host_change if with_host else costs.card_change for with_host in changes)
        return Way(where, seconds, tuple(total))


def owners_of(starts: Sequence[int]) -> list[int]:
    """Return the card of each block and, last, of the head."""
    return [card for card, (start, end) in enumerate(pairwise(starts)) for _ in range(start, end)]


def _seconds(way: Way) -> float:
    return way.seconds
