"""A layout as the flags that make it: `-ts` for the runs of blocks, `-ot` for what lies elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from msgspec.structs import replace

from service.engine.commands.expert_rules import dense_override, expert_override, number_pattern
from service.engine.config import CPU, Flags, Override
from service.engine.memory import matching_names
from service.engine.model import Model
from service.engine.planner.blocks import Block
from service.engine.planner.fit import Problem
from service.engine.planner.knapsack import OPTIONS, Option
from service.engine.planner.owners import Guests, Layout, Starts, Waiting
from service.engine.planner.shares import shares_for
from service.engine.planner.sums import Arrangement

Lying: TypeAlias = dict[tuple[str, Option], list[int]]
"""Blocks by (device, what of them lies there), for all that is not on the card that owns the block."""

_PARTS: dict[Option, tuple[str, ...]] = {"up and gate": ("up", "gate", "gate_up"), "down": ("down",)}
_EXPERTS: dict[Option, tuple[str, ...]] = {
    "whole": ("exps", r"blk\.{}\.ffn_.*_exps"),
    "up and gate": (r"blk\.{}\.ffn_(up|gate)_exps", r"blk\.{}\.ffn_gate_up_exps"),
    "down": (),
}
_DENSE: dict[Option, tuple[str, ...]] = {"whole": (), "up and gate": (r"blk\.{}\.ffn_(up|gate)\.",), "down": ()}
_OTHER: dict[Option, Option] = {"up and gate": "down", "down": "up and gate"}


def flags_with(problem: Problem, flags: Flags, starts: Starts, away: Mapping[tuple[str, Option], list[int]]) -> Flags:
    """Return `flags` by which cards own the runs that `starts` says, and `away` lies elsewhere."""
    moved = replace(flags, overrides=tuple(_rules(problem.model, away)))
    free = [device.free for device in problem.devices]
    return shares_for(problem.engine, problem.model, moved, free, starts) or moved


def everything_away(blocks: Sequence[Block]) -> Lying:
    """Return all pieces of all blocks in RAM."""
    return {(CPU, "whole"): [block.index for block in blocks if block.pieces or block.stuck]}


def lying(problem: Problem, blocks: Sequence[Block], layout: Layout) -> Lying:
    """Return what of a layout is not on the card that owns it."""
    found: Lying = {(CPU, "whole"): [block.index for block in blocks if block.stuck]}
    waiting: dict[Waiting, list[int]] = {}
    for card, ((start, end), run) in enumerate(zip(pairwise(layout.starts), layout.runs, strict=True)):
        for block in blocks[start:end]:
            if block.pieces:
                waiting.setdefault(Waiting(card, block.kind, None), []).append(block.index)
        for offer, counts in zip(run.offers, run.filled.counts, strict=True):
            queue = waiting.get(Waiting(card, offer.kind, None), [])
            for option, count in zip(OPTIONS, counts, strict=True):
                if option != "whole":
                    waiting[Waiting(card, offer.kind, _OTHER[option])] = queue[:count]
                del queue[:count]
    for guests in layout.guests:
        _seat(waiting[guests.what], guests, problem.devices[guests.card].name, found)
    for what, queue in waiting.items():
        found.setdefault((CPU, what.rest or "whole"), []).extend(queue)
    return found


def away_from(problem: Problem, blocks: Sequence[Block], arrangement: Arrangement) -> Lying:
    """Return what of an arrangement is not on the card that owns it."""
    found: Lying = {}
    names = [*(device.name for device in problem.devices), CPU]
    for block, where, owner in zip(blocks, arrangement.wheres, arrangement.owners, strict=False):
        together = len({*where}) == 1
        parts: list[tuple[Option, int]]
        parts = [("whole", where[0])] if together else [(p.part, d) for p, d in zip(block.pieces, where, strict=True)]
        parts += [("whole", len(problem.devices))] if block.stuck else []
        for part, device in parts:
            if device != owner:
                found.setdefault((names[device], part), []).append(block.index)
    return found


def _seat(queue: list[int], guests: Guests, device: str, found: Lying) -> None:
    """Take blocks off `queue` that lie on `device`, and of those with one part there the other in RAM."""
    for option, count in zip(OPTIONS, guests.counts, strict=True):
        taken = queue[:count]
        del queue[:count]
        found.setdefault((device, guests.what.rest or option), []).extend(taken)
        if option != "whole":
            found.setdefault((CPU, _OTHER[option]), []).extend(taken)


def _rules(model: Model, away: Mapping[tuple[str, Option], list[int]]) -> Iterator[Override]:
    """One rule for each device and part; the CPU's for whole blocks is last, and short where it is for all."""
    for (device, option), indices in sorted(away.items(), key=lambda item: item[0] == (CPU, "whole")):
        if indices:
            yield Override(_shortest(model, option, indices), device)


def _shortest(model: Model, option: Option, indices: Sequence[int]) -> str:
    """Return the shortest of the usual patterns that matches exactly these parts of these blocks in this model.

    The one that names every part is always exact.
    """
    write, usual = (expert_override, _EXPERTS) if model.moe_layers else (dense_override, _DENSE)
    exact = write(indices, _PARTS[option]) if option != "whole" else write(indices)
    wanted = matching_names(model, exact)
    numbers = number_pattern(indices)
    patterns = (pattern.format(numbers) for pattern in usual[option])
    return next((pattern for pattern in patterns if matching_names(model, pattern) == wanted), exact)
