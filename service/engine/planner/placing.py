"""The best placement for given flags: which card owns which blocks, and which pieces lie on which device.

A layout is chosen on costs and rooms alone (`owners`), then replayed: what the replay leaves free on each card, or
finds too much, corrects the rooms, until nothing changes. Only what a replay has confirmed is returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from service.engine.config import CPU, Flags
from service.engine.memory import Memory
from service.engine.memory.cache import cache_bytes
from service.engine.memory.spec import make_spec
from service.engine.memory.stored import derived_bytes, reserved_bytes
from service.engine.planner.blocks import Block, blocks_of
from service.engine.planner.costs import Costs, costs_of
from service.engine.planner.fit import Fitted, Placed, Problem, Shortfall, slack
from service.engine.planner.layout_flags import Lying, everything_away, flags_with, lying
from service.engine.planner.owners import Owners, Sizes, Starts
from service.engine.planner.short import SHORT, Short
from service.engine.planner.sums import Sums
from service.engine.speed import request_of, work_of

_MOST_REPLAYS = 8
_SEARCHES = 4  # then the runs stay, and only the pieces are dealt anew
_RAM_IS_SHORT = 1e-6  # seconds a byte: then any card is better than RAM


def best_placement(problem: Problem, flags: Flags, *, whole: bool = False) -> Placed | Shortfall:
    """Return `flags` with the `-ts` and `-ot` that serve the goal fastest and fit, or the Shortfall that is least.

    `whole`: everything has to be on the cards. `-ngl` and the other flags stay as they are.
    """
    return Placing(problem, flags, whole).best()


class Placing:
    """One search: the model's blocks, their costs and bytes, and the steps from a layout to one that fits."""

    def __init__(self, problem: Problem, flags: Flags, whole: bool) -> None:
        self.problem, self.flags, self.whole = problem, flags, whole
        model = problem.model
        blocks = blocks_of(problem.engine, model)
        self.blocks = tuple(map(_solid, blocks)) if whole else blocks
        self.free = [device.free for device in problem.devices]
        self.n_slots = model.n_layer + 1
        self.costs: Costs = costs_of(problem, flags, self.blocks)
        self.fixed = self._fixed_bytes()
        head = model.by_name.get("output.weight") or model.by_name["token_embd.weight"]
        self.head = reserved_bytes(model)[head.name]
        self.heads = (self.head,) * len(self.free)
        self.sums = Sums(self.blocks, self.costs, self.fixed, self.head, len(self.free))
        self.ram_rate = 0.0
        self.largest: int | None = None
        self.request = request_of(problem.rig, problem.devices, flags, problem.goal)

    def best(self) -> Placed | Shortfall:
        """Return the fastest placement that fits, or the least Shortfall."""
        first = self._first_starts()
        tries = [self._settled(first, widely=True)]
        starts = self.sums.read(tries[0].fitted.memory.placement).starts if isinstance(tries[0], Placed) else first
        tries += [self._settled(starts, widely=largest == 0, largest=largest) for largest in self._largest_in_ram()]
        found = [one for one in tries if isinstance(one, Placed)]
        short = [one for one in tries if isinstance(one, Shortfall)]
        if self.n_slots <= SHORT:
            placed = Short(self.problem, self.flags, self.sums, self._priced).run(found)
            found = [placed] if placed else []
        return min(found, key=lambda one: one.seconds) if found else min(short, key=lambda one: one.n_bytes)

    def _largest_in_ram(self) -> list[int]:
        """Sizes of copies that may be the largest: all pieces that need a larger one may find room on the cards.

        0: nothing in RAM. The first card has room for the largest copy, so that without it more fits. In models of many
        blocks a piece is a small share of a card, and 0 alone is worth the time.
        """
        sizes = [(piece.copied, piece.n_bytes) for block in self.blocks for piece in block.pieces]
        room = sum(self.free) - sum(self.fixed) - self.heads[0]
        largest = sorted({0, *(copied for copied, _ in sizes)})[: -1 if self.n_slots <= SHORT else 1]
        return [n for n in largest if sum(n_bytes for copied, n_bytes in sizes if copied > n) <= room]

    def _settled(self, starts: Starts, *, widely: bool, largest: int | None = None) -> Placed | Shortfall:
        """Return the fastest that replays confirm from a split on. `largest`: of pieces in RAM, in bytes."""
        self.largest = largest
        away, held = self._without_room(starts)
        memory = self.problem.memory(flags_with(self.problem, self.flags, starts, away))
        self.heads, self.ram_rate = self._with_logits(memory), 0.0 if largest is None else _RAM_IS_SHORT
        rooms = self.rooms(memory, starts, held)
        found: Placed | None = None
        least: Shortfall | None = None
        tried: set[Flags] = set()
        for number in range(_MOST_REPLAYS):
            owners = self._owners(rooms)
            search = number < _SEARCHES and (widely or number)
            layout = owners.best(starts, widely=number == 0) if search else owners.filled(starts)
            flags = flags_with(self.problem, self.flags, layout.starts, lying(self.problem, self.blocks, layout))
            if flags in tried:
                break
            tried.add(flags)
            memory = self.problem.memory(flags)
            left, seconds = slack(self.problem, memory), self._priced(flags, memory)
            if min(left) >= 0 and (found is None or seconds < found.seconds):
                found = Placed(Fitted(flags, memory), seconds)
            elif min(left) < 0:
                least = _least(self.problem, left, least)
                if left[-1] < 0:
                    self.ram_rate, self.largest = _RAM_IS_SHORT, 0
            rooms = self._corrected(rooms, self.rooms(memory, layout.starts, layout.pieces), left)
            starts = layout.starts
        return found or least or Shortfall("RAM", 0)

    def _without_room(self, starts: Starts) -> tuple[Lying, list[int]]:
        """What lies in RAM where that may hold no larger pieces, and the bytes of pieces on each card."""
        largest = self.largest
        if largest is None:
            return everything_away(self.blocks), [0] * len(self.free)
        away: Lying = {}
        for block in self.blocks:
            for piece in block.pieces:
                if piece.copied <= largest:
                    away.setdefault((CPU, piece.part), []).append(block.index)
        held = [
            sum(p.n_bytes for block in self.blocks[start:end] for p in block.pieces if p.copied > largest)
            for start, end in pairwise(starts)
        ]
        return away, held

    def _priced(self, flags: Flags, memory: Memory) -> float:
        """The seconds of the request, by the functions that `check` uses."""
        given = (self.problem.engine, self.problem.model, flags, memory.placement, self.problem.date)
        return self.request.seconds(work_of(*given))

    # -- bytes ---------------------------------------------------------------------------------------------------

    def _fixed_bytes(self) -> tuple[int, ...]:
        """Bytes that each block takes on the card that owns it, whatever pieces lie there."""
        model, engine = self.problem.model, self.problem.engine
        spec = make_spec(engine, model, self.flags, "server", cpu_only=False)
        caches = cache_bytes(model, spec, cuda_padding=True)
        derived = engine == "ik_llama.cpp"
        return tuple(
            block.fixed_bytes
            + (0 if self.flags.no_kv_offload else caches[block.index])
            + (derived_bytes(model, block.index, spec.mla) if derived else 0)
            for block in self.blocks
        )

    def _with_logits(self, memory: Memory) -> tuple[int, ...]:
        """Bytes of the head on each card: its weights, and what the logits take beyond the other computing there."""
        head, compute = memory.placement.head, [device.compute for device in memory.devices[:-1]]
        others = [n for card, n in enumerate(compute) if card not in (0, head)] or [
            n for c, n in enumerate(compute) if c != head
        ]
        compute[head] = min(compute[head], *others) if others else compute[head]
        spec = make_spec(self.problem.engine, self.problem.model, self.flags, "bench", cpu_only=False)
        logits = 4 * self.problem.model.n_vocab * spec.n_outputs
        return tuple(self.head + max(0, logits - peak) for peak in compute)

    def _first_starts(self) -> Starts:
        """Runs in proportion to what is free."""
        total, done, starts = sum(self.free), 0, [0]
        for free in self.free:
            done += free
            starts.append(round(self.n_slots * done / max(total, 1)))
        return tuple(starts)

    def rooms(self, memory: Memory, starts: Starts, pieces: Sequence[int]) -> tuple[int, ...]:
        """Return what each card has for fixed parts, caches and pieces: what a replay left, and what lies there.

        `pieces`: the bytes of pieces on each card.
        """
        left = slack(self.problem, memory)
        held = pieces
        return tuple(left[card] + self.own_bytes(card, starts) + held[card] for card in range(len(self.free)))

    def own_bytes(self, card: int, starts: Starts) -> int:
        """Return the bytes of fixed parts and caches of the blocks that a card owns."""
        start, end = starts[card], starts[card + 1]
        return sum(self.fixed[start:end]) + (self.heads[card] if start < end == self.n_slots else 0)

    def _corrected(self, before: Sequence[int], now: Sequence[int], left: Sequence[int]) -> tuple[int, ...]:
        """A card that was too full gets no more room than that showed; the others what the replay says."""
        return tuple(min(a, b) if over < 0 else b for a, b, over in zip(before, now, left, strict=False))

    def _owners(self, rooms: tuple[int, ...]) -> Owners:
        return Owners(
            self.blocks,
            self.n_slots,
            self.costs,
            Sizes(self.fixed, self.heads, rooms),
            self.ram_rate,
            self.largest or 0,
        )


def _solid(block: Block) -> Block:
    """The block as one that can lie on its card only."""
    names = tuple(name for piece in block.pieces for name in piece.names)
    n_bytes = block.fixed_bytes + block.movable_bytes
    return replace(block, fixed=(*block.fixed, *names), fixed_bytes=n_bytes, pieces=())


def _least(problem: Problem, left: Sequence[int], known: Shortfall | None) -> Shortfall:
    worst = min(range(len(left)), key=left.__getitem__)
    name = problem.devices[worst].name if worst < len(problem.devices) else "RAM"
    found = Shortfall(name, -left[worst])
    return found if known is None else min(known, found, key=lambda shortfall: shortfall.n_bytes)
