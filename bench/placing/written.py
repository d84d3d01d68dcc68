"""The flags of a placement, as a user would have to type them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from service.engine.commands.expert_rules import dense_override, expert_override
from service.engine.config import CPU, Flags, Override
from service.engine.planner.pricing.blocks import blocks_of
from service.engine.planner.pricing.fit import Problem
from service.engine.planner.search.layout_flags import tensor_split_for

_NAMES = {"up and gate": ("up", "gate", "gate_up"), "down": ("down",)}


def written(problem: Problem, flags: Flags, starts: Sequence[int], wheres: Sequence[tuple[int, ...]]) -> Flags | None:
    """Return `flags` with a `-ts` by which the cards own the runs, and an `-ot` rule for each device and part.

    `wheres`: the device of each piece of each block; the number of cards means RAM. None: no `-ts` does that.
    """
    free = [device.free for device in problem.devices]
    ruled = replace(flags, overrides=tuple(_rules(problem, starts, wheres)))
    return tensor_split_for(problem.engine, problem.model, ruled, free, starts)


def _rules(problem: Problem, starts: Sequence[int], wheres: Sequence[tuple[int, ...]]) -> Iterator[Override]:
    names = [*(device.name for device in problem.devices), CPU]
    owners = [card for card in range(len(names) - 1) for _ in range(starts[card], starts[card + 1])]
    write = expert_override if problem.model.moe_layers else dense_override
    away: dict[tuple[int, str], list[int]] = {}
    for block, where in zip(blocks_of(problem.model, problem.engine), wheres, strict=True):
        for piece, device in zip(block.pieces, where, strict=True):
            if device != owners[block.index]:
                away.setdefault((device, piece.part), []).append(block.index)
        for piece in block.ram_only:
            away.setdefault((len(names) - 1, piece.part), []).append(block.index)
    for (device, part), layers in sorted(away.items()):
        known = _NAMES[part] if problem.model.moe_layers else [n for n in _NAMES[part] if n != "gate_up"]
        yield Override(write(layers, known), names[device])
