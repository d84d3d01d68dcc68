"""Which card owns which blocks, and where their movable pieces go: the fastest layout within the cards' free bytes.

A card owns a contiguous span of blocks (`-ts` says how many): their attention, their cache, and all else that does not
move. The output head is the last slot, after all blocks. What is left of a card's memory holds pieces of its own blocks
first, then pieces of blocks that other cards own ("hosted").
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise, product
from operator import mul
from typing import NamedTuple, TypeAlias

from service.engine.planner.pricing.blocks import Block, Part
from service.engine.planner.pricing.costs import Costs
from service.engine.planner.search.knapsack import OPTIONS, Item, Option, Packed, one_block, pack, pack_greedily

_STEPS = (16, 8, 4, 2, 1)  # blocks by which a boundary moves
_MOST_STARTS = 4  # of a local search, the fastest ones: what others lead to is seldom faster
_TOO_FULL = 1e3  # penalty in seconds for each byte beyond a card's room, so that the search first gets rid of these
Starts = tuple[int, ...]  # the first slot of every card, then the number of slots
Pack = Callable[[Sequence[Item], int], Packed]  # `pack` or `pack_greedily`


class Sizes(NamedTuple):
    """Bytes of each block's fixed part and cache, of the head on each card, and each card's room for all of it."""

    fixed: tuple[int, ...]
    heads: tuple[int, ...]
    rooms: tuple[int, ...]


class Span(NamedTuple):
    """The blocks of one card, and which of their pieces it holds.

    `seconds`: against all blocks on the first card with all pieces in RAM. `left`: bytes of its room. `in_ram`: the
    number of its blocks with pieces in RAM, by kind and part; `may_save`: what hosting these saves at most.
    """

    seconds: float
    items: tuple[Item, ...]
    packed: Packed
    left: int
    in_ram: tuple[tuple[_Source, int], ...]
    may_save: float


_Source: TypeAlias = tuple[int, Option | None]
"""Blocks with pieces in RAM: their kind, and the part that is there (None: all of it)."""


_Filled: TypeAlias = tuple[tuple[Item, ...], Packed, tuple[tuple[_Source, int], ...], float]
"""What a span holds of the pieces of its blocks: the fields of Span from `items` on but `left`."""


class _Taken(NamedTuple):
    """Pieces that a card hosts, before it is known whose: the number of blocks by option."""

    card: int
    source: _Source
    counts: tuple[int, int, int]


class Unplaced(NamedTuple):
    """Blocks of one owner and kind with pieces in RAM. `missing_part`: the one there, where the owner has the other."""

    owner: int
    kind: int
    missing_part: Option | None


class Hosted(NamedTuple):
    """Blocks of another card whose pieces `card` hosts. `counts`: by option, a `missing_part` counts as whole."""

    card: int
    source: Unplaced
    counts: tuple[int, int, int]
    n_bytes: int


class Layout(NamedTuple):
    """The span of each card, the pieces hosted for other cards, and the seconds of the goal's request."""

    starts: Starts
    spans: tuple[Span, ...]
    hosted: tuple[Hosted, ...]
    seconds: float

    @property
    def pieces(self) -> tuple[int, ...]:
        n_bytes = [span.packed.n_bytes for span in self.spans]
        for hosted in self.hosted:
            n_bytes[hosted.card] += hosted.n_bytes
        return tuple(n_bytes)


class LayoutSearch:
    """The search for the best layout of one model.

    `ram_rate`: a penalty in seconds for each byte of pieces in RAM, beyond the time that it takes.
    """

    def __init__(self, blocks: Sequence[Block], n_slots: int, costs: Costs, sizes: Sizes, ram_rate: float) -> None:
        self.blocks, self.n_slots, self.costs, self.sizes = blocks, n_slots, costs, sizes
        self.ram_rate = ram_rate
        self.n_cards = len(sizes.rooms)
        cards = range(self.n_cards)
        self._spans: dict[Pack, list[dict[tuple[int, int], Span]]] = {
            how: [{} for _ in cards] for how in (pack, pack_greedily)
        }
        self._filled: dict[tuple[Pack, int, tuple[tuple[int, int], ...], int], _Filled] = {}
        self._seconds: dict[Starts, float] = {}
        self._kinds = {block.kind: block for block in blocks}
        self._smallest = min((piece.n_bytes for block in blocks for piece in block.pieces), default=0)
        self._items = [{k: self._item(b, card) for k, b in self._kinds.items()} for card in cards]
        missing: tuple[Option | None, ...] = (None, "down", "up and gate")
        sources = list(product(self._kinds, missing))
        self._hosted_items = [{source: self._hosted_item(card, *source) for source in sources} for card in cards]
        self._least_bytes = [{source: item.least_bytes for source, item in of.items()} for of in self._hosted_items]
        self._most_saved = {source: max(max(of[source].saved) for of in self._hosted_items) for source in sources}
        self._most_a_byte = max((item.rate for of in self._hosted_items for item in of.values()), default=0.0)
        self._block_kinds = [block.kind for block in blocks]
        self._block_seconds = [[costs.fixed[kind][card] for kind in self._block_kinds] for card in cards]
        self._bytes_before = [0, *accumulate(sizes.fixed)]

    def best(self, tried: Starts, *, widely: bool) -> Layout:
        """Return the fastest layout that a local search from `tried` finds, which moves boundaries between spans.

        `widely`: it starts from other spans too: all blocks on the first card, on the first two, and so on.
        """
        first_cards = (on_first_cards(self.n_slots, n, self.n_cards) for n in range(1, self.n_cards))
        others = sorted((tried, *first_cards), key=self._seconds_if_packed_greedily)[:_MOST_STARTS] if widely else ()
        found = [self._local_search(starts) for starts in dict.fromkeys((tried, *others))]
        return self.packed(min(found, key=self._seconds_if_packed_greedily))

    def packed(self, starts: Starts) -> Layout:
        """Return the layout with these spans and the best packing of pieces."""
        spans = self._spans_of(starts, pack)
        taken, saved = self._hosted(spans, pack)
        sources, hosted = _unplaced(spans), list[Hosted]()
        for one in taken:
            hosted += _take(one, self._hosted_items[one.card][one.source], sources[one.source])
        return Layout(starts, spans, tuple(hosted), self._seconds_of(starts, spans) - saved)

    def _local_search(self, starts: Starts) -> Starts:
        for size in _STEPS:
            while found := self._better_neighbour(starts, size):
                starts = found
        return starts

    def _better_neighbour(self, best: Starts, size: int) -> Starts | None:
        """The fastest spans with boundaries moved by `size` blocks, None where none are faster."""
        seconds, found = self._seconds_if_packed_greedily(best), None
        below = seconds - 1e-9 * abs(seconds)
        for starts in self.neighbours(best, size):
            seconds = self._seconds_below(starts, below)
            if seconds < below:
                below, found = seconds, starts
        return found

    def _seconds_if_packed_greedily(self, starts: Starts) -> float:
        return self._seconds_below(starts, math.inf)

    def _seconds_below(self, starts: Starts, limit: float) -> float:
        """Return the seconds with pieces packed greedily, or a lower bound of them that is not below the limit.

        For the bound, hosting saves as much as if every byte left on a card saved as much as the best one could, and no
        more than if all pieces in RAM were hosted.
        """
        known = self._seconds.get(starts)
        if known is None:
            spans = self._spans_of(starts, pack_greedily)
            known = self._seconds_of(starts, spans)
            may_save = sum([span.may_save for span in spans])
            if may_save:
                left = sum([span.left for span in spans if span.left >= self._smallest])
                least = known - min(left * self._most_a_byte, may_save)
                if least >= limit:
                    return least
                known -= self._hosted(spans, pack_greedily)[1]
            self._seconds[starts] = known
        return known

    def neighbours(self, starts: Starts, size: int) -> Iterator[Starts]:
        """Yield the spans with one boundary moved by `size` blocks, or that one and all after it."""
        for first in range(1, self.n_cards):
            for last in {first, self.n_cards - 1}:
                for step in (size, -size):
                    moved = [start + step for start in starts[first : last + 1]]
                    if starts[first - 1] <= moved[0] and moved[-1] <= starts[last + 1]:
                        yield (*starts[:first], *moved, *starts[last + 1 :])

    def _spans_of(self, starts: Starts, how: Pack) -> tuple[Span, ...]:
        found = []
        for card, (known, ends) in enumerate(zip(self._spans[how], pairwise(starts), strict=True)):
            span = known.get(ends)
            if span is None:
                span = known[ends] = self._new_span(card, *ends, how)
            found.append(span)
        return tuple(found)

    def _seconds_of(self, starts: Starts, spans: Sequence[Span]) -> float:
        """The seconds of the request without what hosting saves."""
        used = sum([end > start for start, end in pairwise(starts)])
        return self.costs.base + sum([span.seconds for span in spans]) + (used - 1) * self.costs.card_change

    def _new_span(self, card: int, start: int, end: int, how: Pack) -> Span:
        last = min(end, len(self.blocks))
        seconds = sum(self._block_seconds[card][start:last])
        room = self.sizes.rooms[card] - (self._bytes_before[last] - self._bytes_before[min(start, last)])
        if start < end == self.n_slots:
            seconds, room = seconds + self.costs.head[card], room - self.sizes.heads[card]
        if room < 0:
            seconds -= room * _TOO_FULL
        # Many spans of as many blocks have the same kinds and room, wherever they start.
        key = how, card, tuple(Counter(self._block_kinds[start:last]).items()), room
        filled = self._filled.get(key)
        if filled is None:
            filled = self._filled[key] = self._fill(*key)
        items, packed, in_ram, may_save = filled
        return Span(seconds - packed.saved, items, packed, room - packed.n_bytes, in_ram, may_save)

    def _fill(self, how: Pack, card: int, counts: tuple[tuple[int, int], ...], room: int) -> _Filled:
        """Pack pieces of so many blocks of each kind, all of one card, into its room."""
        own = self._items[card]
        items = tuple([own[kind].times(n if self._kinds[kind].pieces else 0) for kind, n in counts])
        packed = how(items, room)
        in_ram = tuple(_in_ram(items, packed))
        return items, packed, in_ram, sum(n * max(self._most_saved[source], 0.0) for source, n in in_ram)

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
        return one_block(block.kind, (block.movable_bytes, *sizes), (whole, *(saved.get(part, 0.0) for part in parts)))

    def _hosted(self, spans: Sequence[Span], how: Pack) -> tuple[list[_Taken], float]:
        """Pieces in RAM that cards with free bytes can host for other cards, and the seconds that this saves."""
        unplaced, found, saved = _unplaced(spans), list[_Taken](), 0.0
        for card, span in enumerate(spans):
            if span.left < self._smallest:
                continue
            fitting, items = self._least_bytes[card], self._hosted_items[card]
            candidates = [
                (source, items[source].times(n))
                for source, of in unplaced.items()
                if fitting[source] <= span.left and (n := sum(of.values()) - of.get(card, 0))
            ]
            if not candidates:
                continue
            packed = how([item for _, item in candidates], span.left)
            saved += packed.saved
            for (source, _), counts in zip(candidates, packed.counts, strict=True):
                if any(counts):
                    found.append(_Taken(card, source, counts))
                    _remove(unplaced[source], card, sum(counts))
        return found, saved

    def _hosted_item(self, card: int, kind: int, missing_part: Option | None) -> Item:
        """What hosting a block saves: as on its owner, less the transfers between cards.

        These are two for a whole block, or for the part whose counterpart is with the owner; one for a part alone.
        """
        own, change = self._items[card][kind], self.costs.away_change
        whole, *parts = own.saved
        if missing_part is None:
            return one_block(kind, own.n_bytes, (whole - 2 * change, *(part - change for part in parts)))
        part = OPTIONS.index(missing_part)
        saved = own.saved[part] + 2 * self.costs.host_change + self.costs.host_layer - 2 * change
        return one_block(kind, (own.n_bytes[part], 0, 0), (saved, 0.0, 0.0))


def on_first_cards(n_slots: int, n: int, n_cards: int) -> Starts:
    """Return spans with all blocks on the first `n` cards, so that the others only host pieces."""
    inner = tuple(round(n_slots * i / n) for i in range(1, n))
    return (0, *inner, *[n_slots] * (n_cards - n + 1))


def _in_ram(items: Sequence[Item], packed: Packed) -> Iterator[tuple[_Source, int]]:
    """The number of blocks with pieces in RAM, by kind and part."""
    for item, (whole, pairs, downs) in zip(items, packed.counts, strict=True):
        parts_missing: tuple[tuple[Option | None, int], ...] = (
            (None, item.n_blocks - whole - pairs - downs), ("down", pairs), ("up and gate", downs)
        )  # fmt: skip
        for missing_part, n in parts_missing:
            if n:
                yield (item.kind, missing_part), n


def _unplaced(spans: Sequence[Span]) -> dict[_Source, dict[int, int]]:
    """The number of blocks with pieces in RAM, by kind and part, then by owner."""
    found: dict[_Source, dict[int, int]] = {}
    for owner, span in enumerate(spans):
        for source, n in span.in_ram:
            found.setdefault(source, {})[owner] = n
    return found


def _remove(owners: dict[int, int], card: int, n_blocks: int) -> None:
    """Take blocks off the counts of one owner after another, but not of the card itself."""
    for owner, n in owners.items():
        if owner != card:
            owners[owner] = n - min(n, n_blocks)
            n_blocks -= min(n, n_blocks)


def _take(taken: _Taken, item: Item, owners: dict[int, int]) -> Iterator[Hosted]:
    """The same with their owners: as many blocks as were counted, from one owner after another."""
    left = list(taken.counts)
    for owner, n in owners.items():
        if owner != taken.card:
            counts = []
            for option, wanted in enumerate(left):
                counts.append(min(wanted, n))
                n, left[option] = n - counts[-1], wanted - counts[-1]
            owners[owner] = n
            if any(counts):
                whole, pairs, downs = counts
                n_bytes = sum(map(mul, counts, item.n_bytes))
                yield Hosted(taken.card, Unplaced(owner, *taken.source), (whole, pairs, downs), n_bytes)
