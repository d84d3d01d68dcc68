"""Which card owns which blocks, and where their movable pieces go: the fastest layout within the cards' free bytes.

A card owns a contiguous span of blocks (`-ts` sets how many): their attention, everything else that is fixed, and their
cache. The output head counts as one more block at the end. The bytes that a card has left hold pieces of its own blocks
first, then pieces of other cards' blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from operator import mul
from typing import NamedTuple

from service.engine.planner.pricing.blocks import Block, Part
from service.engine.planner.pricing.costs import Costs
from service.engine.planner.search.knapsack import OPTIONS, Item, Option, Packed, pack, pack_greedily

_STEPS = (16, 8, 4, 2, 1)  # blocks by which a boundary moves
_TOO_FULL = 1e3  # seconds a byte beyond a card's room, so that the search leaves such layouts first
Starts = tuple[int, ...]  # the first slot of every card, and one after the last slot
Pack = Callable[[Sequence[Item], int], Packed]


class Sizes(NamedTuple):
    """Bytes: of each block's fixed part and cache, of the head on each card, and each card's room for all."""

    fixed: tuple[int, ...]
    heads: tuple[int, ...]
    rooms: tuple[int, ...]


class Span(NamedTuple):
    """The blocks of one card. `seconds`: relative to all blocks on the first card with all pieces in RAM."""

    seconds: float
    items: tuple[Item, ...]
    packed: Packed
    left: int


class Unplaced(NamedTuple):
    """Blocks of one owner and kind with pieces in RAM. `missing_part`: the one in RAM where the owner has the other."""

    owner: int
    kind: int
    missing_part: Option | None


class Hosted(NamedTuple):
    """Blocks of another card whose pieces a card holds. `counts`: by option; those with a `missing_part` come first."""

    card: int
    source: Unplaced
    counts: tuple[int, int, int]
    n_bytes: int


class Layout(NamedTuple):
    """The span of each card, the pieces hosted for other cards, and the seconds of the request."""

    starts: Starts
    spans: tuple[Span, ...]
    hosted: tuple[Hosted, ...]
    seconds: float

    @property
    def pieces(self) -> tuple[int, ...]:
        """Bytes of pieces on each card."""
        n_bytes = [span.packed.n_bytes for span in self.spans]
        for hosted in self.hosted:
            n_bytes[hosted.card] += hosted.n_bytes
        return tuple(n_bytes)


class LayoutSearch:
    """The search for the best layout of one model.

    `ram_rate`: seconds that a byte of pieces in RAM costs beyond its time.
    """

    def __init__(self, blocks: Sequence[Block], n_slots: int, costs: Costs, sizes: Sizes, ram_rate: float) -> None:
        self.blocks, self.n_slots, self.costs, self.sizes = blocks, n_slots, costs, sizes
        self.ram_rate = ram_rate
        self.n_cards = len(sizes.rooms)
        self._spans: dict[tuple[int, int, int, Pack], Span] = {}
        self._layouts: dict[Starts, Layout] = {}
        self._hosted_items: dict[tuple[int, int, Option | None], Item] = {}
        self._kinds = {block.kind: block for block in blocks}
        self._smallest = min((piece.n_bytes for block in blocks for piece in block.pieces), default=0)
        self._items = [{k: self._item(b, card) for k, b in self._kinds.items()} for card in range(self.n_cards)]
        self._most_saved = self._most_a_byte()

    def best(self, tried: Starts, *, widely: bool) -> Layout:
        """Return the fastest layout that local search finds from `tried`, moving one boundary at a time.

        `widely`: also from all blocks on the first card, on the first two, and so on.
        """
        prefixes = self.prefixes() if widely else ()
        found = [self._local_search(starts) for starts in dict.fromkeys((tried, *prefixes))]
        return self.packed(min(found, key=_seconds).starts)

    def packed(self, starts: Starts) -> Layout:
        """Return the layout with these spans and the best packing of pieces."""
        return self._layout(starts, pack)

    def prefixes(self) -> Iterator[Starts]:
        """Yield every block on the first card, or on the first two, and so on: the others hold pieces only."""
        for n in range(1, self.n_cards):
            inner = tuple(round(self.n_slots * i / n) for i in range(1, n))
            yield (0, *inner, *[self.n_slots] * (self.n_cards - n + 1))

    def _local_search(self, starts: Starts) -> Layout:
        best = self._layout(starts, pack_greedily)
        for size in _STEPS:
            while found := self._better_neighbour(best, size):
                best = found
        return best

    def _better_neighbour(self, best: Layout, size: int) -> Layout | None:
        """The fastest layout with boundaries moved by `size` blocks, None where none is faster."""
        below, found = best.seconds - 1e-9 * abs(best.seconds), None
        for starts in self.neighbours(best.starts, size):
            layout = self._layouts.get(starts)
            if layout is None:
                if self._least_seconds(starts) >= below:
                    continue
                layout = self._layouts[starts] = self._layout(starts, pack_greedily)
            if layout.seconds < below:
                below, found = layout.seconds, layout
        return found

    def _least_seconds(self, starts: Starts) -> float:
        """What a layout takes at least: with every byte that is left on a card as useful as any piece could be."""
        spans = [self._span(card, start, end, pack_greedily) for card, (start, end) in enumerate(pairwise(starts))]
        left = sum(span.left for span in spans if span.left >= self._smallest)
        return self._seconds_of(starts, spans) - left * self._most_saved

    def neighbours(self, starts: Starts, size: int) -> Iterator[Starts]:
        """Yield the splits in which one boundary moved by `size` blocks, or one and all after it."""
        for first in range(1, self.n_cards):
            for last in {first, self.n_cards - 1}:
                for step in (size, -size):
                    moved = [start + step for start in starts[first : last + 1]]
                    if starts[first - 1] <= moved[0] and moved[-1] <= starts[last + 1]:
                        yield (*starts[:first], *moved, *starts[last + 1 :])

    def _layout(self, starts: Starts, how: Pack) -> Layout:
        spans = tuple(self._span(card, start, end, how) for card, (start, end) in enumerate(pairwise(starts)))
        hosted, saved = self._hosted(spans, how)
        return Layout(starts, spans, hosted, self._seconds_of(starts, spans) - saved)

    def _seconds_of(self, starts: Starts, spans: Sequence[Span]) -> float:
        """The seconds of the request with what the cards hold of their own blocks."""
        used = sum(end > start for start, end in pairwise(starts))
        return self.costs.base + sum(span.seconds for span in spans) + (used - 1) * self.costs.card_change

    def _span(self, card: int, start: int, end: int, how: Pack) -> Span:
        key = (card, start, end, how)
        if key not in self._spans:
            self._spans[key] = self._new_span(card, start, end, how)
        return self._spans[key]

    def _new_span(self, card: int, start: int, end: int, how: Pack) -> Span:
        own = self.blocks[start:end]
        seconds = sum(self.costs.fixed[block.kind][card] for block in own)
        room = self.sizes.rooms[card] - sum(self.sizes.fixed[start : start + len(own)])
        if start < end == self.n_slots:
            seconds, room = seconds + self.costs.head[card], room - self.sizes.heads[card]
        counts: dict[int, int] = {}
        for block in own:
            counts[block.kind] = counts.get(block.kind, 0) + bool(block.pieces)
        items = tuple(self._items[card][kind]._replace(n_blocks=n) for kind, n in counts.items())
        packed = how(items, room)
        if room < 0:
            seconds -= room * _TOO_FULL
        return Span(seconds - packed.saved, items, packed, room - packed.n_bytes)

    def _item(self, block: Block, card: int) -> Item:
        """What a block of this kind saves on a card that owns it."""
        saved = {
            piece.part: self.ram_rate * piece.n_bytes - cost[card]
            for piece, cost in zip(block.pieces, self.costs.pieces[block.kind], strict=True)
        }
        n_bytes = {piece.part: piece.n_bytes for piece in block.pieces}
        whole = sum(saved.values()) + 2 * self.costs.host_change + self.costs.host_layer
        parts: tuple[Part, ...] = ("up and gate", "down")
        sizes = [n_bytes.get(part, 0) if len(n_bytes) > 1 else 0 for part in parts]
        return Item(block.kind, 1, (block.movable_bytes, *sizes), (whole, *(saved.get(part, 0.0) for part in parts)))

    def _hosted(self, spans: Sequence[Span], how: Pack) -> tuple[tuple[Hosted, ...], float]:
        """Pieces still in RAM that cards with free bytes can hold for other cards, and the seconds that this saves."""
        unplaced = _unplaced(spans)
        if not unplaced:
            return (), 0.0
        found, saved = list[Hosted](), 0.0
        for card, span in enumerate(spans):
            if span.left < self._smallest:
                continue
            counts = ((source, sum(of.values()) - of.get(card, 0)) for source, of in unplaced.items())
            candidates = [(source, self._hosted_item(card, *source, n)) for source, n in counts if n]
            if not candidates:
                continue
            packed = how([item for _, item in candidates], span.left)
            saved += packed.saved
            for (source, item), taken in zip(candidates, packed.counts, strict=True):
                if any(taken):
                    found += _take(card, source, taken, item, unplaced[source])
        return tuple(found), saved

    def _hosted_item(self, card: int, kind: int, missing_part: Option | None, count: int) -> Item:
        key = (card, kind, missing_part)
        if key not in self._hosted_items:
            self._hosted_items[key] = self._new_hosted_item(*key)
        return self._hosted_items[key]._replace(n_blocks=count)

    def _most_a_byte(self) -> float:
        """The most seconds that a byte on a card saves for another card's blocks."""
        missing: tuple[Option | None, ...] = (None, "down", "up and gate")
        each = product(range(self.n_cards), self._kinds, missing)
        return max((self._hosted_item(*key, 1).rate for key in each), default=0.0)

    def _new_hosted_item(self, card: int, kind: int, missing_part: Option | None) -> Item:
        """What blocks save on a card that does not own them: transfers between cards are added.

        Two for a whole block, or for the part whose counterpart is with the owner; one for a part alone.
        """
        own, change = self._items[card][kind], self.costs.away_change
        whole, *parts = own.saved
        if missing_part is None:
            return Item(kind, 1, own.n_bytes, (whole - 2 * change, *(part - change for part in parts)))
        part = OPTIONS.index(missing_part)
        saved = own.saved[part] + 2 * self.costs.host_change + self.costs.host_layer - 2 * change
        return Item(kind, 1, (own.n_bytes[part], 0, 0), (saved, 0.0, 0.0))


def _unplaced(spans: Sequence[Span]) -> dict[tuple[int, Option | None], dict[int, int]]:
    """Number of blocks that are in RAM, whole or with one part, by kind and part, then by owner."""
    found: dict[tuple[int, Option | None], dict[int, int]] = {}
    for owner, span in enumerate(spans):
        for item, (whole, pairs, downs) in zip(span.items, span.packed.counts, strict=True):
            parts_missing: tuple[tuple[Option | None, int], ...] = (
                (None, item.n_blocks - whole - pairs - downs), ("down", pairs), ("up and gate", downs)
            )  # fmt: skip
            for missing_part, n in parts_missing:
                if n:
                    found.setdefault((item.kind, missing_part), {})[owner] = n
    return found


def _take(
    card: int, source: tuple[int, Option | None], counts: Sequence[int], item: Item, unplaced: dict[int, int]
) -> Iterator[Hosted]:
    """Take as many blocks as `counts` says from `unplaced`, one owner after another."""
    left = list(counts)
    for owner, n in unplaced.items():
        if owner != card:
            taken = []
            for option, wanted in enumerate(left):
                taken.append(min(wanted, n))
                n, left[option] = n - taken[-1], wanted - taken[-1]
            unplaced[owner] = n
            if any(taken):
                whole, pairs, downs = taken
                n_bytes = sum(map(mul, taken, item.n_bytes))
                yield Hosted(card, Unplaced(owner, *source), (whole, pairs, downs), n_bytes)


def _seconds(layout: Layout) -> float:
    return layout.seconds
