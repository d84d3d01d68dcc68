"""The best placement for given flags: which card owns which blocks, and which pieces lie on which device.

A layout is chosen on costs and rooms alone (`owners`), then replayed: what the replay leaves free on each card, or
finds too much, corrects the rooms, until nothing changes. Only what a replay has confirmed is returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from service.engine.config import Flags
from service.engine.memory import Memory
from service.engine.memory.cache import cache_bytes
from service.engine.memory.spec import make_spec
from service.engine.memory.stored import derived_bytes, reserved_bytes
from service.engine.planner.blocks import Block, blocks_of
from service.engine.planner.costs import Costs, costs_of
from service.engine.planner.fit import Fitted, Problem, Shortfall, slack
from service.engine.planner.layout_flags import everything_away, flags_with, lying
from service.engine.planner.owners import Layout, Owners, Sizes, Starts

_MOST_REPLAYS = 8
_SHORT = 16  # blocks of a model whose splits are tried one by one
_MOST_SPLITS = 24
_SEARCHES = 4  # then the runs stay, and only the pieces are dealt anew
_RAM_IS_SHORT = 1e-6  # seconds a byte: then any card is better than RAM


class Placed(NamedTuple):
    """Flags that fit, their memory, and the seconds of the request by the costs."""

    fitted: Fitted
    seconds: float


def best_placement(problem: Problem, flags: Flags, *, whole: bool = False) -> Placed | Shortfall:
    """Return `flags` with the `-ts` and `-ot` that serve the goal fastest and fit, or the Shortfall that is least.

    `whole`: everything has to be on the cards. `-ngl` and the other flags stay as they are.
    """
    return Placing(problem, flags, whole).best()


def least_seconds(problem: Problem, flags: Flags, *, whole: bool = False) -> float | None:
    """Return a lower bound of the seconds of any placement, without a replay; None where surely none fits.

    Nothing but weights and cache takes room, each fixed part lies where it is fastest, and pieces may be cut.
    """
    return Placing(problem, flags, whole).least_seconds()


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
        self.ram_rate = 0.0

    def best(self) -> Placed | Shortfall:
        """Return the fastest placement that fits, or the least Shortfall."""
        first = self._first_starts()
        tries = [self._settled(first, widely=True)]
        if not self.whole and self._nearly_fits():
            tries.append(self._settled(first, widely=True, in_ram=False))
        if self.n_slots <= _SHORT:
            tries += self._near_the_best(tries)
        found = [one for one in tries if isinstance(one, Placed)]
        short = [one for one in tries if isinstance(one, Shortfall)]
        if found:
            return min(found, key=lambda one: one.seconds)
        return min(short, key=lambda one: one.n_bytes)

    def _nearly_fits(self) -> bool:
        """Whether all pieces may find room on the cards: then no weights have to be copied to the first for a batch."""
        movable = sum(block.movable_bytes for block in self.blocks)
        return movable > 0 and movable + sum(self.fixed) + self.heads[0] <= sum(self.free)

    def _near_the_best(self, tries: Sequence[Placed | Shortfall]) -> list[Placed | Shortfall]:
        """A model of few blocks: every split of them is tried that is a step away from one that was best so far."""
        found, seen = list(tries), {self._first_starts()}
        owners = self._owners((0,) * len(self.free))
        openings = [self._first_starts(), *owners.fronts(), *self._on_one_card()]
        while openings and len(seen) < _MOST_SPLITS:
            starts = openings.pop(0)
            one = self._settled(starts, widely=False)
            better = isinstance(one, Placed) and all(
                isinstance(other, Shortfall) or one.seconds < other.seconds for other in found
            )
            found.append(one)
            if better and isinstance(one, Placed):
                openings += [split for split in owners.near(self._starts_of(one), 1) if split not in seen]
            seen.update(openings)
        return found[len(tries) :]

    def _on_one_card(self) -> Iterator[Starts]:
        for card in range(1, len(self.free)):
            yield (*[0] * (card + 1), *[self.n_slots] * (len(self.free) - card))

    def _starts_of(self, placed: Placed) -> Starts:
        placement = placed.fitted.memory.placement
        owners = (*placement.layers, placement.head)
        return tuple(sum(owner < card for owner in owners) for card in range(len(self.free) + 1))

    def _settled(self, starts: Starts, *, widely: bool, in_ram: bool = True) -> Placed | Shortfall:
        """Return the fastest that replays confirm from a split on. `in_ram` False: RAM is to hold no pieces."""
        away = everything_away(self.blocks) if in_ram else {}
        held = None if in_ram else self._held_by_owners(starts)
        memory = self.problem.memory(flags_with(self.problem, self.flags, starts, away))
        self.heads, self.ram_rate = self._with_logits(memory), 0.0 if in_ram else _RAM_IS_SHORT
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
            left, seconds = slack(self.problem, memory), self._seconds(layout)
            if min(left) >= 0 and (found is None or seconds < found.seconds):
                found = Placed(Fitted(flags, memory), seconds)
            elif min(left) < 0:
                least = _least(self.problem, left, least)
                self.ram_rate = _RAM_IS_SHORT if left[-1] < 0 else self.ram_rate
            rooms = self._corrected(rooms, self.rooms(memory, layout.starts, layout.pieces), left)
            starts = layout.starts
        return found or least or Shortfall("RAM", 0)

    def _seconds(self, layout: Layout) -> float:
        """The seconds of a layout, without what a byte in RAM was said to cost beyond its time."""
        on_cards = sum(layout.pieces)
        return layout.seconds + self.ram_rate * on_cards

    def _held_by_owners(self, starts: Starts) -> list[int]:
        return [sum(block.movable_bytes for block in self.blocks[start:end]) for start, end in pairwise(starts)]

    def least_seconds(self) -> float | None:
        """Return a lower bound of the seconds; None where surely nothing fits."""
        rooms = [free - kept for free, kept in zip(self.free, self.problem.limits.reserve, strict=True)]
        left = sum(rooms) - sum(self.fixed) - self.heads[0]
        movable = sum(block.movable_bytes for block in self.blocks)
        if left < 0 or movable - left > self.problem.limits.host:
            return None
        costs = self.costs
        seconds = costs.base + min(costs.head) + sum(min(costs.fixed[block.kind]) for block in self.blocks)
        for rate, card, n_bytes in sorted(self._rates(), reverse=True):
            taken = max(min(n_bytes, rooms[card], left), 0)
            seconds -= rate * taken
            rooms[card], left = rooms[card] - taken, left - taken
        return seconds

    def _rates(self) -> Iterator[tuple[float, int, int]]:
        """Seconds that a byte saves at most, by card and kind of block, with the bytes of all blocks of the kind."""
        counts: dict[int, list[Block]] = {}
        for block in self.blocks:
            counts.setdefault(block.kind, []).append(block)
        change = 2 * self.costs.host_change + self.costs.host_layer
        for kind, alike in counts.items():
            for card in range(len(self.free)):
                pairs = zip(alike[0].pieces, self.costs.pieces[kind], strict=True)
                saved = [(-cost[card], piece.n_bytes) for piece, cost in pairs]
                together = (sum(s for s, _ in saved) + change, alike[0].movable_bytes)
                best = max((s / n for s, n in (*saved, together) if n), default=0.0)
                if best > 0:
                    yield best, card, len(alike) * alike[0].movable_bytes

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

    def rooms(self, memory: Memory, starts: Starts, pieces: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return what each card has for fixed parts, caches and pieces: what a replay left, and what lies there.

        `pieces`: the bytes of pieces on each card.
        """
        left = slack(self.problem, memory)
        held = pieces or [0] * len(self.free)
        return tuple(left[card] + self.own_bytes(card, starts) + held[card] for card in range(len(self.free)))

    def own_bytes(self, card: int, starts: Starts) -> int:
        """Return the bytes of fixed parts and caches of the blocks that a card owns."""
        start, end = starts[card], starts[card + 1]
        return sum(self.fixed[start:end]) + (self.heads[card] if start < end == self.n_slots else 0)

    def _corrected(self, before: Sequence[int], now: Sequence[int], left: Sequence[int]) -> tuple[int, ...]:
        """A card that was too full gets no more room than that showed; the others what the replay says."""
        return tuple(min(a, b) if over < 0 else b for a, b, over in zip(before, now, left, strict=False))

    def _owners(self, rooms: tuple[int, ...]) -> Owners:
        return Owners(self.blocks, self.n_slots, self.costs, Sizes(self.fixed, self.heads, rooms), self.ram_rate)


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
