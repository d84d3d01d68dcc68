"""The plainest placement on several cards: the pieces of the first blocks are in RAM, the cards fill up in order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from service.engine.config import CPU, Flags
from service.engine.engines import engine_spec
from service.engine.planner.pricing.fit import Fitted, Problem, slack
from service.engine.planner.search.layout import Starts
from service.engine.planner.search.layout_flags import all_in_ram, layout_flags, rules_of, tensor_split_for
from service.engine.planner.search.placement import PlacementSearch

_MOST_REPLAYS = 5


def filled(problem: Problem, flags: Flags) -> Fitted | None:
    """Return `flags` with the pieces of the first blocks in RAM, as few as let the rest fit; None where none is found.

    Written as `-ncmoe` where the engine counts experts from the first block, else as one `-ot` rule.
    """
    search = PlacementSearch(problem, flags, whole=False)
    movable = [block.index for block in search.blocks if block.pieces]
    if not movable or any(block.ram_only for block in search.blocks):
        return None
    starts, before = search.first_starts(), None
    first = problem.tried(layout_flags(problem, flags, starts, all_in_ram(search.blocks)))
    rooms = search.rooms(first.memory, starts, [0] * len(problem.devices))
    for _ in range(_MOST_REPLAYS):
        # the fewest blocks: every larger number fits as well
        n_away = bisect_left(range(len(movable)), True, key=lambda n: _spans(search, rooms, movable[:n]) is not None)
        away = movable[:n_away]
        spans = _spans(search, rooms, away)
        written = _written(problem, flags, away, spans) if spans else None
        if spans is None or written is None or written == before:
            return None
        before, found = written, problem.tried(written)
        left = slack(problem, found.memory)
        if min(left) >= 0:
            return found if problem.starts(found.run) else None
        kept = _kept(search, away)
        pieces = [sum(kept[a:b]) for a, b in pairwise(spans)]
        rooms = search.corrected(rooms, search.rooms(found.memory, spans, pieces), left)
    return None


def _kept(search: PlacementSearch, away: Sequence[int]) -> list[int]:
    """Bytes of the pieces that each block keeps on its card."""
    in_ram = frozenset(away)
    return [0 if block.index in in_ram else block.movable_bytes for block in search.blocks]


def _spans(search: PlacementSearch, rooms: Sequence[int], away: Sequence[int]) -> Starts | None:
    """The spans that fill each card in turn, None where the last one has too little room."""
    sizes = [fixed + kept for fixed, kept in zip(search.fixed, _kept(search, away), strict=True)]
    sizes += [0] * (search.n_slots - len(sizes))  # next-token layers, which are not loaded, and the head: see below
    starts, left = [0], rooms[0]
    for slot in range(search.n_slots):
        while (sizes[slot] if slot < search.n_slots - 1 else search.heads[len(starts) - 1]) > left:
            if len(starts) == len(rooms):
                return None
            left = rooms[len(starts)]
            starts.append(slot)
        left -= sizes[slot]
    return (*starts, *[search.n_slots] * (len(rooms) - len(starts) + 1))


def _written(problem: Problem, flags: Flags, away: Sequence[int], spans: Starts) -> Flags | None:
    """The flags with these spans and the pieces of the blocks in `away` in RAM, None where no `-ts` gives the spans."""
    memory = engine_spec(problem.engine).memory
    plain = replace(flags, overrides=(), n_cpu_moe=0)
    if away and problem.model.moe_layers and memory.counts_experts_from_first:
        plain = replace(plain, n_cpu_moe=away[-1] + 1)
    elif away:
        plain = replace(plain, overrides=tuple(rules_of(problem.model, {(CPU, "whole"): list(away)})))
    return tensor_split_for(problem.engine, problem.model, plain, [device.free for device in problem.devices], spans)
