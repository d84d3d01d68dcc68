"""The flags of a layout: `-ts` for the spans of blocks, `-ot` for pieces on another device than their block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

from msgspec.structs import replace

from service.engine.commands.expert_rules import dense_override, expert_override, number_pattern
from service.engine.config import CPU, Engine, Flags, Override, Placement
from service.engine.engines import engine_spec
from service.engine.kept import kept
from service.engine.model import Model
from service.engine.planner.pricing.blocks import Block
from service.engine.planner.pricing.fit import Problem
from service.engine.planner.search.knapsack import OPTIONS, Option
from service.engine.planner.search.layout import Hosted, Layout, Starts, Unplaced
from service.engine.run.overrides import matching_names, names_in_blocks
from service.engine.tensor_names import layer_of
from service.engine.units import GIB

MovedPieces: TypeAlias = dict[tuple[str, Option], list[int]]
"""Block indices by (device, option): all pieces that are not on the card that owns their block."""

_PARTS: dict[Option, tuple[str, ...]] = {"up and gate": ("up", "gate", "gate_up"), "down": ("down",)}
_EXPERTS: dict[Option, tuple[str, ...]] = {
    "whole": ("exps", r"blk\.{}\.ffn_.*_exps"),
    "up and gate": (r"blk\.{}\.ffn_(up|gate)_exps", r"blk\.{}\.ffn_gate_up_exps"),
    "down": (),
}
_DENSE: dict[Option, tuple[str, ...]] = {
    "whole": (r"ffn_(up|gate|down)\.",),
    "up and gate": (r"blk\.{}\.ffn_(up|gate)\.",),
    "down": (),
}
_MOST_DIGITS = 6  # after the point, of a number of -ts
_OTHER: dict[Option, Option] = {"up and gate": "down", "down": "up and gate"}


def layout_flags(problem: Problem, flags: Flags, starts: Starts, away: Mapping[tuple[str, Option], list[int]]) -> Flags:
    """Return `flags` with the `-ts` for the spans of `starts`, and `-ot` rules for the pieces in `away`."""
    moved = replace(flags, overrides=tuple(rules_of(problem.model, away)))
    free = [device.free for device in problem.devices]
    return tensor_split_for(problem.engine, problem.model, moved, free, starts) or moved


def starts_of(placement: Placement, n_cards: int) -> Starts:
    """Return the first slot of each of `n_cards` cards, then the number of slots: one a block, and the head's."""
    cards = (*placement.layers, placement.head)
    return tuple(sum(where < card for where in cards) for card in range(n_cards + 1))


def all_in_ram(blocks: Sequence[Block]) -> MovedPieces:
    """Return the moved pieces where all are in RAM."""
    return {(CPU, "whole"): [block.index for block in blocks if block.pieces or block.ram_only]}


def moved_pieces(problem: Problem, blocks: Sequence[Block], layout: Layout) -> MovedPieces:
    """Return the pieces of a layout that are not on the card that owns their block."""
    found: MovedPieces = {(CPU, "whole"): [block.index for block in blocks if block.ram_only]}
    unplaced: dict[Unplaced, list[int]] = {}
    for card, ((start, end), span) in enumerate(zip(pairwise(layout.starts), layout.spans, strict=True)):
        for block in blocks[start:end]:
            if block.pieces:
                unplaced.setdefault(Unplaced(card, block.kind, None), []).append(block.index)
        for item, counts in zip(span.items, span.packed.counts, strict=True):
            queue = unplaced.get(Unplaced(card, item.kind, None), [])
            for option, count in zip(OPTIONS, counts, strict=True):
                if option != "whole":
                    unplaced[Unplaced(card, item.kind, _OTHER[option])] = queue[:count]
                del queue[:count]
    for hosted in layout.hosted:
        _assign(unplaced[hosted.source], hosted, problem.devices[hosted.card].name, found)
    for source, queue in unplaced.items():
        found.setdefault((CPU, source.missing_part or "whole"), []).extend(queue)
    return _gathered(blocks, layout.starts, found)


def _gathered(blocks: Sequence[Block], starts: Starts, away: MovedPieces) -> MovedPieces:
    """Return the moved pieces so that those of one place are of blocks side by side, which takes shorter rules.

    Kinds of blocks that differ in attention alone may alternate. Within a card such blocks swap the places of their
    pieces: first the blocks that keep theirs, last those with all of them in RAM.
    """
    places: dict[int, tuple[tuple[str, Option], ...]] = {}
    for place, indices in away.items():
        places |= {index: (*places.get(index, ()), place) for index in indices}
    exchanged = False
    for start, end in pairwise(starts):
        alike: dict[object, list[Block]] = {}
        for block in blocks[start:end]:
            pieces = tuple((piece.part, piece.n_bytes) for piece in block.pieces)
            alike.setdefault((pieces, bool(block.ram_only)), []).append(block)
        for group in alike.values():
            if len({block.kind for block in group}) > 1:
                exchanged = True
                queue = sorted((places.get(block.index, ()) for block in group), key=lambda p: ((CPU, "whole") in p, p))
                places |= {block.index: place for block, place in zip(group, queue, strict=True)}
    if not exchanged:
        return away
    return {place: [block.index for block in blocks if place in places.get(block.index, ())] for place in away}


def _assign(queue: list[int], hosted: Hosted, device: str, found: MovedPieces) -> None:
    """Take hosted blocks off `queue`: their part goes to `device`, the other part of a divided block to RAM."""
    for option, count in zip(OPTIONS, hosted.counts, strict=True):
        taken = queue[:count]
        del queue[:count]
        found.setdefault((device, hosted.source.missing_part or option), []).extend(taken)
        if option != "whole":
            found.setdefault((CPU, _OTHER[option]), []).extend(taken)


def rules_of(model: Model, away: Mapping[tuple[str, Option], list[int]]) -> Iterator[Override]:
    """Yield an `-ot` rule for each device and option, the CPU's for whole blocks last."""
    for (device, option), indices in sorted(away.items(), key=lambda item: item[0] == (CPU, "whole")):
        if indices:
            yield Override(_shortest(model, option, indices), device)


def _shortest(model: Model, option: Option, indices: Sequence[int]) -> str:
    """Return the shortest pattern that matches exactly these parts of these blocks in this model: one of the usual
    short ones if it does, else the one that names every block and part."""
    numbers, among = number_pattern(indices), set(indices)
    wanted = tuple(name for name, layer in _of_all_blocks(model, option) if layer in among)
    for usual in (_EXPERTS if model.moe_layers else _DENSE)[option]:
        if names_in_blocks(model, usual, numbers, among) == wanted:
            return usual.format(numbers)
    return _exact(model, option, indices)


def _exact(model: Model, option: Option, indices: Iterable[int]) -> str:
    """Return the pattern that names every block and part."""
    write = expert_override if model.moe_layers else dense_override
    return write(indices, _PARTS[option]) if option != "whole" else write(indices)


@kept
def _of_all_blocks(model: Model, option: Option) -> list[tuple[str, int | None]]:
    """The names of these parts of all blocks, and the number of each one's block."""
    return [(name, layer_of(name)) for name in matching_names(model, _exact(model, option, range(model.n_layer)))]


def tensor_split_for(
    engine: Engine, model: Model, flags: Flags, free: Sequence[int], starts: Sequence[int]
) -> Flags | None:
    """Return `flags` with the shortest `-ts` that gives card d the slots `starts[d]` to `starts[d + 1]`, the last of
    which is the output head; without `-ts` for one card. None where no `-ts` does that."""
    if len(free) < 2:
        return replace(flags, tensor_split=())
    wanted = [d for d, (start, end) in enumerate(pairwise(starts)) for _ in range(start, end)]
    for shares in _possible_shares(engine, model, flags, starts):
        found = replace(flags, tensor_split=shares)
        if engine_spec(engine).memory.split_layers(model, found, free) == wanted:
            return found
    return None


def _possible_shares(engine: Engine, model: Model, flags: Flags, starts: Sequence[int]) -> list[tuple[float, ...]]:
    """`-ts` to try, the shortest first: numbers of slots, or GiB where the engine shares out by bytes."""
    counted = engine_spec(engine).memory.slot_sizes(model, flags)
    if counted is None:
        return [tuple(float(end - start) for start, end in pairwise(starts))]
    sizes, compute = counted
    marks = _marks([0.0, *accumulate(sizes)], compute, starts)
    return [tuple(round((b - a) / GIB, digits) for a, b in pairwise(marks)) for digits in range(_MOST_DIGITS + 1)]


def _marks(sums: Sequence[float], compute: float, starts: Sequence[int]) -> list[float]:
    """The sums of bytes up to which each card is to be filled, from 0 on.

    As the engine walks over the cards, it counts a compute buffer for each one, also where it gets no slot.
    """
    n_cards, marks = len(starts) - 1, [0.0]
    for card, (start, end) in enumerate(pairwise(starts)):
        total = n_cards if end == starts[-1] else card + 1
        marks.append(sums[end] + total * compute if end > start else marks[-1])
    return marks
