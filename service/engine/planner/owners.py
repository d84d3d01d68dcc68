"""Which card owns which blocks, and what then lies where: the fastest layout that fits the cards' rooms.

A card owns a run of consecutive blocks (`-ts` says how many): their attention, what else is fixed, and their cache.
The output head counts as one more block at the end. What remains of a card's room holds pieces of its own blocks, then
of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import mul
from typing import NamedTuple

from service.engine.planner.blocks import Block, Part
from service.engine.planner.costs import Costs
from service.engine.planner.knapsack import OPTIONS, Filled, Offer, Option, fill, fill_greedily

_STEPS = (16, 8, 4, 2, 1)  # blocks by which a boundary moves
_TOO_FULL = 1e3  # seconds a byte beyond a card's room, so that the search leaves such layouts first
Starts = tuple[int, ...]  # the first slot of every card, and one after the last slot
Fill = Callable[[Sequence[Offer], int], Filled]


class Sizes(NamedTuple):
    """Bytes: of each block's fixed part and cache, of the head on each card, and each card's room for all."""

    fixed: tuple[int, ...]
    heads: tuple[int, ...]
    rooms: tuple[int, ...]


class Run(NamedTuple):
    """One card's run of blocks: its seconds against all fixed on the first card and all pieces in RAM."""

    seconds: float
    offers: tuple[Offer, ...]
    filled: Filled
    left: int


class Waiting(NamedTuple):
    """Blocks in RAM: their owner and kind; `rest`: the part that is in RAM where the other is with the owner."""

    owner: int
    kind: int
    rest: Option | None


class Guests(NamedTuple):
    """Blocks of another card that a card holds, or parts of them: their number by option, or of a rest in the first."""

    card: int
    what: Waiting
    counts: tuple[int, int, int]
    n_bytes: int


class Layout(NamedTuple):
    """The runs of all cards, what they hold of others' blocks, and the seconds of the request."""

    starts: Starts
    runs: tuple[Run, ...]
    guests: tuple[Guests, ...]
    seconds: float

    @property
    def pieces(self) -> tuple[int, ...]:
        """Bytes of pieces on each card."""
        held = [run.filled.n_bytes for run in self.runs]
        for guests in self.guests:
            held[guests.card] += guests.n_bytes
        return tuple(held)


class Owners:
    """The search for the best layout of one model.

    `ram_rate`: seconds that a byte in RAM costs beyond its time, of pieces whose copies take more than `largest` bytes.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        n_slots: int,
        costs: Costs,
        sizes: Sizes,
        ram_rate: float = 0.0,
        largest: int = 0,
    ) -> None:
        self.blocks, self.n_slots, self.costs, self.sizes = blocks, n_slots, costs, sizes
        self.ram_rate, self.largest = ram_rate, largest
        self.n_cards = len(sizes.rooms)
        self._runs: dict[tuple[int, int, int, Fill], Run] = {}
        self._layouts: dict[Starts, Layout] = {}
        self._visitors: dict[tuple[int, int, Option | None], Offer] = {}
        self._kinds = {block.kind: block for block in blocks}
        self._smallest = min((piece.n_bytes for block in blocks for piece in block.pieces), default=0)
        self._offers = [{k: self._offer(b, card) for k, b in self._kinds.items()} for card in range(self.n_cards)]

    def best(self, tried: Starts, *, widely: bool) -> Layout:
        """Return the fastest layout that steps of one boundary lead to from `tried`.

        `widely`: also from all blocks on the first card, on the first two, and so on.
        """
        fronts = self.fronts() if widely else ()
        found = [self._descend(starts) for starts in dict.fromkeys((tried, *fronts))]
        return self.filled(min(found, key=_seconds).starts)

    def filled(self, starts: Starts) -> Layout:
        """Return the layout with these runs, its pieces dealt as well as can be."""
        return self._layout(starts, fill)

    def fronts(self) -> Iterator[Starts]:
        """Yield every block on the first card, or on the first two, and so on: the others hold pieces only."""
        for n in range(1, self.n_cards):
            inner = tuple(round(self.n_slots * i / n) for i in range(1, n))
            yield (0, *inner, *[self.n_slots] * (self.n_cards - n + 1))

    def _descend(self, starts: Starts) -> Layout:
        best = self._known(starts)
        for size in _STEPS:
            moved = True
            while moved:
                found = min((self._known(near) for near in self.near(best.starts, size)), key=_seconds, default=best)
                moved = found.seconds < best.seconds - 1e-9 * abs(best.seconds)
                best = found if moved else best
        return best

    def near(self, starts: Starts, size: int) -> Iterator[Starts]:
        """Yield the splits in which one boundary moved by `size` blocks, or one and all after it."""
        for first in range(1, self.n_cards):
            for last in {first, self.n_cards - 1}:
                for step in (size, -size):
                    moved = [start + step for start in starts[first : last + 1]]
                    if starts[first - 1] <= moved[0] and moved[-1] <= starts[last + 1]:
                        yield (*starts[:first], *moved, *starts[last + 1 :])

    def _known(self, starts: Starts) -> Layout:
        if starts not in self._layouts:
            self._layouts[starts] = self._layout(starts, fill_greedily)
        return self._layouts[starts]

    def _layout(self, starts: Starts, how: Fill) -> Layout:
        runs = tuple(self._run(card, start, end, how) for card, (start, end) in enumerate(pairwise(starts)))
        used = sum(end > start for start, end in pairwise(starts))
        guests, saved = self._guests(runs, how)
        seconds = sum(run.seconds for run in runs) - saved + (used - 1) * self.costs.card_change
        return Layout(starts, runs, guests, self.costs.base + seconds)

    def _run(self, card: int, start: int, end: int, how: Fill) -> Run:
        key = (card, start, end, how)
        if key not in self._runs:
            self._runs[key] = self._new_run(card, start, end, how)
        return self._runs[key]

    def _new_run(self, card: int, start: int, end: int, how: Fill) -> Run:
        own = self.blocks[start:end]
        seconds = sum(self.costs.fixed[block.kind][card] for block in own)
        room = self.sizes.rooms[card] - sum(self.sizes.fixed[start : start + len(own)])
        if start < end == self.n_slots:
            seconds, room = seconds + self.costs.head[card], room - self.sizes.heads[card]
        counts: dict[int, int] = {}
        for block in own:
            counts[block.kind] = counts.get(block.kind, 0) + bool(block.pieces)
        offers = tuple(self._offers[card][kind]._replace(n_blocks=n) for kind, n in counts.items())
        filled = how(offers, room)
        if room < 0:
            seconds -= room * _TOO_FULL
        return Run(seconds - filled.saved, offers, filled, room - filled.n_bytes)

    def _offer(self, block: Block, card: int) -> Offer:
        """What a block of this kind saves on a card that owns it."""
        saved = {
            piece.part: (self.ram_rate * piece.n_bytes if piece.copied > self.largest else 0.0) - cost[card]
            for piece, cost in zip(block.pieces, self.costs.pieces[block.kind], strict=True)
        }
        n_bytes = {piece.part: piece.n_bytes for piece in block.pieces}
        whole = sum(saved.values()) + 2 * self.costs.host_change + self.costs.host_layer
        parts: tuple[Part, ...] = ("up and gate", "down")
        sizes = [n_bytes.get(part, 0) if len(n_bytes) > 1 else 0 for part in parts]
        return Offer(block.kind, 1, (block.movable_bytes, *sizes), (whole, *(saved.get(part, 0.0) for part in parts)))

    def _guests(self, runs: Sequence[Run], how: Fill) -> tuple[tuple[Guests, ...], float]:
        """What cards with room left hold of what is still in RAM, and the seconds that it saves."""
        waiting = _waiting(runs)
        found, saved = list[Guests](), 0.0
        for card, run in enumerate(runs):
            if run.left < self._smallest:
                continue
            counts = ((what, sum(of.values()) - of.get(card, 0)) for what, of in waiting.items())
            asked = [(what, self._visitor(card, *what, n)) for what, n in counts if n]
            if not asked:
                continue
            filled = how([offer for _, offer in asked], run.left)
            saved += filled.saved
            for (what, offer), taken in zip(asked, filled.counts, strict=True):
                if any(taken):
                    found += _seated(card, what, taken, offer, waiting[what])
        return tuple(found), saved

    def _visitor(self, card: int, kind: int, rest: Option | None, count: int) -> Offer:
        key = (card, kind, rest)
        if key not in self._visitors:
            self._visitors[key] = self._new_visitor(*key)
        return self._visitors[key]._replace(n_blocks=count)

    def _new_visitor(self, card: int, kind: int, rest: Option | None) -> Offer:
        """What blocks save on a card that does not own them: changes between cards come on top.

        Two for a whole block, or for the rest of one whose other part is with its owner; one for a part alone.
        """
        own, change = self._offers[card][kind], self.costs.card_change
        whole, *parts = own.saved
        if rest is None:
            return Offer(kind, 1, own.n_bytes, (whole - 2 * change, *(part - change for part in parts)))
        part = OPTIONS.index(rest)
        saved = own.saved[part] + 2 * self.costs.host_change + self.costs.host_layer - 2 * change
        return Offer(kind, 1, (own.n_bytes[part], 0, 0), (saved, 0.0, 0.0))


def _waiting(runs: Sequence[Run]) -> dict[tuple[int, Option | None], dict[int, int]]:
    """Number of blocks that are in RAM, whole or with one part, by kind and part, then by owner."""
    found: dict[tuple[int, Option | None], dict[int, int]] = {}
    for owner, run in enumerate(runs):
        for offer, (whole, pairs, downs) in zip(run.offers, run.filled.counts, strict=True):
            rests: tuple[tuple[Option | None, int], ...] = (
                (None, offer.n_blocks - whole - pairs - downs), ("down", pairs), ("up and gate", downs)
            )  # fmt: skip
            for rest, n in rests:
                if n:
                    found.setdefault((offer.kind, rest), {})[owner] = n
    return found


def _seated(
    card: int, what: tuple[int, Option | None], counts: Sequence[int], offer: Offer, waiting: dict[int, int]
) -> Iterator[Guests]:
    """Take as many blocks as `counts` says off those that wait, of one owner after the other."""
    left = list(counts)
    for owner, n in waiting.items():
        if owner != card:
            taken = []
            for option, wanted in enumerate(left):
                taken.append(min(wanted, n))
                n, left[option] = n - taken[-1], wanted - taken[-1]
            waiting[owner] = n
            if any(taken):
                whole, pairs, downs = taken
                n_bytes = sum(map(mul, taken, offer.n_bytes))
                yield Guests(card, Waiting(owner, *what), (whole, pairs, downs), n_bytes)


def _seconds(layout: Layout) -> float:
    return layout.seconds
