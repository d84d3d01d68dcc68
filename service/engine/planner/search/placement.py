"""The best placement for given flags: which card owns which blocks, and which pieces lie on which device.

A layout is chosen by costs and free bytes alone (`layout`), then replayed: the bytes that the replay finds left or
missing on each card correct the free bytes, until nothing changes. Only what a replay has confirmed is returned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TypeGuard

from msgspec.structs import replace

from service.engine.config import CPU, Flags, Override
from service.engine.engines import engine_spec
from service.engine.memory.cache import cache_bytes
from service.engine.memory.contents import derived_by_layer, reserved_bytes
from service.engine.memory.figures import Memory
from service.engine.memory.spec import make_spec
from service.engine.planner.pricing.blocks import Block, blocks_of
from service.engine.planner.pricing.costs import Costs, costs_of
from service.engine.planner.pricing.fit import Fitted, Placed, Problem, Shortfall, shortfall_of, slack
from service.engine.planner.search.layout import LayoutSearch, Sizes, Starts, on_first_cards
from service.engine.planner.search.layout_flags import MovedPieces, all_in_ram, layout_flags, moved_pieces, starts_of
from service.engine.speed.predict import request_of
from service.engine.speed.sums import work_of

_MOST_REPLAYS = 8
_SEARCHES = 4  # replays after which the spans stay, and only the pieces are packed again
_WORTH_APART = 0.98  # of the time: the command is longer, and what changes between cards cost is known within a factor
_AS_FAST = 1e-6  # of the time: what is left of sums in another order
# Penalties in seconds for each byte of pieces in RAM:
_RAM_IS_SHORT = 1e-9  # once RAM is too small,
_SHORTER = 10.0  # times as much whenever it still is
_ANY_CARD = 1e-6  # so much that any card is better than RAM


def best_placement(problem: Problem, flags: Flags, *, whole: bool = False) -> Placed | Shortfall:
    """Return `flags` with the `-ts` and `-ot` that serve the goal fastest and fit, or the smallest Shortfall.

    `whole`: everything has to be on the cards. Blocks stay in one piece if possible; that pieces of them lie on another
    card than their attention has to be faster, or the only way. `-ngl` and the other flags stay as they are.
    """
    search = PlacementSearch(problem, flags, whole)
    found = search.best()
    if not whole or len(problem.devices) < 2:
        return found
    fits = isinstance(found, Placed)
    may_gain = _reads_at_several_rates(problem) if fits else search.left_in_all + search.buffers >= 0
    if not may_gain:
        return found
    apart = PlacementSearch(problem, flags, whole=False)
    starts = search.first_starts()
    other = apart.with_ram_empty(starts, widely=fits or search.left_in_all >= 0)
    if isinstance(found, Placed) and not _leaves_ram_empty(other):
        other = apart.search_from(starts_of(found.fitted.placement, len(apart.free)), ram_empty=True)
    if not _leaves_ram_empty(other):
        return found
    faster = isinstance(found, Shortfall) or other.seconds < found.seconds * _WORTH_APART
    return other if faster else found


class PlacementSearch:
    """One search: the model's blocks, their costs and bytes, and the steps from a layout to one that fits.

    Of layouts that do not fit, `left_in_all`: the most bytes that all cards together had left; `buffers`: the compute
    buffers of the last one, of which a card that only hosts pieces needs little; `one_at_a_time`: one lacked room for
    the copies that several micro-batches at a time need, so that others do without them.
    """

    def __init__(self, problem: Problem, flags: Flags, whole: bool) -> None:
        self.problem, self.flags, self.whole = problem, flags, whole
        model = problem.model
        blocks = blocks_of(model, problem.engine)
        self.blocks = tuple(map(_unsplit, blocks)) if whole else blocks
        self.free = [device.free for device in problem.devices]
        self.n_slots = model.n_layer + 1
        self.costs: Costs = costs_of(problem, flags, self.blocks)
        self.fixed = self._fixed_bytes()
        head = model.by_name.get("output.weight") or model.by_name["token_embd.weight"]
        self.head = reserved_bytes(model)[head.name]
        self.heads = (self.head,) * len(self.free)
        self.ram_rate = 0.0
        self.request = request_of(problem.rig, problem.devices, flags, problem.goal)
        self._known: dict[Flags, Fitted] = {}
        self.left_in_all, self.buffers = -math.inf, 0
        self.one_at_a_time = False

    def best(self) -> Placed | Shortfall:
        first = self.first_starts()
        tries = [self.search_from(first)]
        if self._may_leave_ram_empty(tries[0]):
            starts = first
            if isinstance(tries[0], Placed):
                starts = starts_of(tries[0].fitted.placement, len(self.free))
            tries.append(self.with_ram_empty(starts))
        if self.whole and len(self.free) > 1 and isinstance(tries[0], Placed) and _is_pipelined(tries[0].fitted):
            tries.append(self.search_from(self._starts_by_speed(), fixed=True))
        found = [one for one in tries if isinstance(one, Placed)]
        if found:
            return self._roomiest(found)
        short = min((one for one in tries if isinstance(one, Shortfall)), key=lambda one: one.n_bytes)
        return short if self.whole else self._on_cards_before(short)

    def _roomiest(self, found: Sequence[Placed]) -> Placed:
        """Return the fastest, and of those that are as fast the one that leaves most on its fullest card."""
        least = min(one.seconds for one in found) * (1 + _AS_FAST)
        return max(
            (one for one in found if one.seconds <= least),
            key=lambda one: min(slack(self.problem, one.fitted.memory)[: len(self.free)], default=0),
        )

    def _on_cards_before(self, short: Shortfall) -> Placed | Shortfall:
        """Return the fastest placement from all blocks on the cards before the one that is short, else what is short.

        The buffers of a large micro-batch may leave a small card no room for attention, but for pieces of others.
        """
        names = [device.name for device in self.problem.devices]
        while short.device in names[1:]:
            n = names.index(short.device)
            found = self.search_from(on_first_cards(self.n_slots, n, len(names)), widely=False)
            if isinstance(found, Placed):
                return found
            if found.device not in names[:n]:
                break
            short = found
        return short

    def with_ram_empty(self, starts: Starts, *, widely: bool = False) -> Placed | Shortfall:
        """Return the fastest placement with no pieces in RAM, or with few if some have to stay there."""
        found = self.search_from(starts, ram_empty=True, widely=widely)
        if isinstance(found, Shortfall):
            return found
        empty = _leaves_ram_empty(found)
        if empty and (widely or not _reads_at_several_rates(self.problem)):
            return found
        alone = self.on_fewest_cards()
        return found if alone is None or (empty and found.seconds <= alone.seconds) else alone

    def on_fewest_cards(self) -> Placed | None:
        """Return the placement with all blocks on as few of the first cards as hold what is fixed of them, None where
        that leaves pieces in RAM.

        Cards that only host pieces have more room than others: they need no buffers for attention and logits.
        """
        fixed = sum(self.fixed) + self.head
        n = next((n for n, free in enumerate(accumulate(self.free[:-1]), 1) if free > fixed), None)
        if n is None:
            return None
        found = self.search_from(on_first_cards(self.n_slots, n, len(self.free)), ram_empty=True, fixed=True)
        return found if _leaves_ram_empty(found) else None

    def _may_leave_ram_empty(self, found: Placed | Shortfall) -> bool:
        """Return whether the cards may have room for the pieces in RAM, given that buffers for copies are not needed
        without any there."""
        pieces = [piece for block in self.blocks for piece in block.pieces]
        if isinstance(found, Shortfall):
            return sum(piece.n_bytes for piece in pieces) <= sum(self.free) - sum(self.fixed) - self.heads[0]
        tensors, memory = found.fitted.placement.tensors, found.fitted.memory
        in_ram = sum(piece.n_bytes for piece in pieces if tensors.get(piece.names[0]) == len(self.free))
        buffers = sum(device.compute for device in memory.devices[:-1])
        return 0 < in_ram <= sum(slack(self.problem, memory)[:-1]) + buffers

    def search_from(
        self,
        starts: Starts,
        *,
        ram_empty: bool = False,
        widely: bool | None = None,
        fixed: bool = False,
        limit: float = math.inf,
    ) -> Placed | Shortfall:
        """Return the fastest placement that replays confirm, found by a local search from the spans of `starts`.

        `ram_empty`: pieces are kept out of RAM if at all possible. `widely`: the search starts from other spans too
        (None: where pieces may be in RAM). `fixed`: the spans stay, only the pieces are packed. `limit`: a layout that
        takes more seconds is not corrected any further.
        """
        widely = not (self.whole or ram_empty) if widely is None else widely
        away, piece_bytes = self._before_search(starts, ram_empty)
        first = layout_flags(self.problem, self.flags, starts, away)
        if len(self.free) > 1 and not (self.whole or first.overrides):  # a rule will be there, so no inputs are copied
            first = replace(first, overrides=(self._head_where_it_is(starts),))
        memory = self.tried(first).memory
        self.heads, self.ram_rate = self._with_logits(memory), _ANY_CARD if ram_empty else 0.0
        rooms = self.rooms(memory, starts, piece_bytes)
        found: Placed | None = None
        least: Shortfall | None = None
        tried: set[Flags] = set()
        for number in range(_MOST_REPLAYS):
            layouts = self._layout_search(rooms)
            if fixed or number >= _SEARCHES:
                layout = layouts.packed(starts)
            else:
                layout = layouts.best(starts, widely=widely and number == 0)
            away = moved_pieces(self.problem, self.blocks, layout)
            flags = layout_flags(self.problem, self.flags, layout.starts, away)
            if self.one_at_a_time and not flags.overrides:
                flags = replace(flags, overrides=(self._head_where_it_is(layout.starts),))
            if flags in tried:
                break
            tried.add(flags)
            fitted = self.tried(flags)
            left, seconds = slack(self.problem, fitted.memory), self.request.seconds(work_of(fitted.run))
            if min(left) >= 0 and (found is None or seconds < found.seconds):
                found = Placed(fitted, seconds)
            elif min(left) < 0:
                least = _least(self.problem, left, least)
                self.left_in_all = max(self.left_in_all, sum(left[:-1]))
                self.buffers = sum(device.compute for device in fitted.memory.devices[:-1])
                self.one_at_a_time |= not self.whole and _is_pipelined(fitted)
                if left[-1] < 0:
                    self.ram_rate = max(_RAM_IS_SHORT, self.ram_rate * _SHORTER)
            if seconds > limit:
                break
            rooms = self.corrected(rooms, self.rooms(fitted.memory, layout.starts, layout.pieces), left)
            starts = layout.starts
        return found or least or Shortfall("RAM", 0)

    def tried(self, flags: Flags) -> Fitted:
        """Return the run of `flags` with its memory, as `Problem.tried` does; each is replayed once."""
        if flags not in self._known:
            self._known[flags] = self.problem.tried(flags)
        return self._known[flags]

    def _before_search(self, starts: Starts, ram_empty: bool) -> tuple[MovedPieces, list[int]]:
        """What lies in RAM before the first layout is chosen, and the bytes of pieces on each card then."""
        if not ram_empty:
            return all_in_ram(self.blocks), [0] * len(self.free)
        return {}, [sum(block.movable_bytes for block in self.blocks[a:b]) for a, b in pairwise(starts)]

    # -- bytes ---------------------------------------------------------------------------------------------------

    def _fixed_bytes(self) -> tuple[int, ...]:
        """Bytes that each block takes on the card that owns it, whatever pieces lie there."""
        model, engine = self.problem.model, self.problem.engine
        spec = make_spec(engine, model, self.flags)
        caches = cache_bytes(model, spec, cuda_padding=True)
        derived = derived_by_layer(model, engine, spec.mla)
        return tuple(
            block.fixed_bytes + (0 if self.flags.no_kv_offload else caches[block.index]) + derived[block.index]
            for block in self.blocks
        )

    def _with_logits(self, memory: Memory) -> tuple[int, ...]:
        """Bytes of the head on each card: its weights, and what the logits take beyond the compute buffer there."""
        head, compute = memory.placement.head, [device.compute for device in memory.devices[:-1]]
        # The head's card has logits in its buffer. Others show what it is without them, the first one if need be: its
        # buffer may also hold weights copied from RAM.
        others = {card: n for card, n in enumerate(compute) if card != head}
        if len(others) > 1:
            others.pop(0, None)
        compute[head] = min(compute[head], *others.values()) if others else compute[head]
        spec = make_spec(self.problem.engine, self.problem.model, self.flags)
        logits = 4 * self.problem.model.n_vocab * spec.n_outputs
        return tuple(self.head + max(0, logits - peak) for peak in compute)

    def first_starts(self) -> Starts:
        """Return spans in proportion to free memory."""
        return self._in_proportion(self.free)

    def _starts_by_speed(self) -> Starts:
        """Spans that take every card as long, so that the cards work on as many micro-batches at once."""
        return self._in_proportion([self.problem.rig.cards[device.gpu].int8_tops for device in self.problem.devices])

    def _in_proportion(self, shares: Sequence[float]) -> Starts:
        total = max(sum(shares), 1)
        return (0, *(round(self.n_slots * done / total) for done in accumulate(shares)))

    def rooms(self, memory: Memory, starts: Starts, pieces: Sequence[int]) -> tuple[int, ...]:
        """Return the bytes that each card has for fixed parts, caches and pieces: what a replay found left, and what
        lay there. `pieces`: the bytes of pieces on each card."""
        left = slack(self.problem, memory)
        return tuple(left[card] + self.own_bytes(card, starts) + pieces[card] for card in range(len(self.free)))

    def own_bytes(self, card: int, starts: Starts) -> int:
        """Return the bytes of fixed parts and caches of the blocks that a card owns."""
        start, end = starts[card], starts[card + 1]
        return sum(self.fixed[start:end]) + (self.heads[card] if start < end == self.n_slots else 0)

    def corrected(self, before: Sequence[int], now: Sequence[int], left: Sequence[int]) -> tuple[int, ...]:
        """Return the rooms that a replay showed (`now`), but for a card that was too full no more than `before`."""
        return tuple(min(a, b) if over < 0 else b for a, b, over in zip(before, now, left, strict=False))

    def _head_where_it_is(self, starts: Starts) -> Override:
        """The shortest rule that moves nothing: any rule makes the cards work on one micro-batch at a time."""
        name, slot = "output_norm", self.n_slots - 1
        if f"{name}.weight" not in self.problem.model.by_name:  # LFM2's is called token_embd_norm, and placed as such
            name, slot = rf"blk\.{self.blocks[-1].index}\.attn_norm", self.n_slots - 2
        card = next(card for card, end in enumerate(starts[1:]) if end > slot)
        return Override(name, self.problem.devices[card].name)

    def _layout_search(self, rooms: tuple[int, ...]) -> LayoutSearch:
        sizes = Sizes(self.fixed, self.heads, rooms)
        return LayoutSearch(self.blocks, self.n_slots, self.costs, sizes, self.ram_rate)


def _reads_at_several_rates(problem: Problem) -> bool:
    """Whether cards differ in speed, so that attention on a faster card than its block's FFN may pay."""
    return len({problem.rig.cards[device.gpu].bandwidth_gbs for device in problem.devices}) > 1


def _is_pipelined(fitted: Fitted) -> bool:
    """Whether the cards work on several micro-batches at once, so that even spans may be faster."""
    return fitted.run.may_pipeline and bool(engine_spec(fitted.run.engine).memory.pipeline_copies)


def _leaves_ram_empty(found: Placed | Shortfall) -> TypeGuard[Placed]:
    return isinstance(found, Placed) and not any(rule.device == CPU for rule in found.fitted.flags.overrides)


def _unsplit(block: Block) -> Block:
    """The block with its pieces made part of what does not move."""
    names = tuple(name for piece in block.pieces for name in piece.names)
    n_bytes = block.fixed_bytes + block.movable_bytes
    return replace(block, fixed=(*block.fixed, *names), fixed_bytes=n_bytes, pieces=())


def _least(problem: Problem, left: Sequence[int], known: Shortfall | None) -> Shortfall:
    found = shortfall_of(problem, list(left))
    return found if known is None else min(known, found, key=lambda shortfall: shortfall.n_bytes)
