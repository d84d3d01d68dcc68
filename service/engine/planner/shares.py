"""The `-ts` that makes an engine give each card the run of blocks that is meant: the inverse of its own split."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from msgspec.structs import replace

from service.engine.config import Engine, Flags
from service.engine.memory import layers_ik, layers_llama
from service.engine.memory.spec import make_spec
from service.engine.model import Model
from service.engine.units import GIB

_MOST_DIGITS = 6


def shares_for(engine: Engine, model: Model, flags: Flags, free: Sequence[int], starts: Sequence[int]) -> Flags | None:
    """Return `flags` with the shortest `-ts` by which card d owns the slots `starts[d]` to `starts[d + 1]`.

    The last slot is the output head. None where no `-ts` does that. One card needs none.
    """
    if len(free) < 2:
        return replace(flags, tensor_split=())
    wanted = [d for d, (start, end) in enumerate(pairwise(starts)) for _ in range(start, end)]
    for shares in _candidates(engine, model, flags, starts):
        found = replace(flags, tensor_split=shares)
        if _split(engine, model, found, free) == wanted:
            return found
    return None


def _candidates(engine: Engine, model: Model, flags: Flags, starts: Sequence[int]) -> list[tuple[float, ...]]:
    if engine == "llama.cpp":
        return [tuple(float(end - start) for start, end in pairwise(starts))]
    spec = make_spec(engine, model, flags, "server", cpu_only=False)
    sizes, compute = layers_ik.slot_sizes(model, spec)
    marks = _marks([0.0, *accumulate(sizes)], compute, starts)
    return [tuple(round((b - a) / GIB, digits) for a, b in pairwise(marks)) for digits in range(_MOST_DIGITS + 1)]


def _marks(sums: Sequence[float], compute: float, starts: Sequence[int]) -> list[float]:
    """Return up to where each card is to fill: the walk counts a compute buffer for every card, also for idle ones."""
    n_cards, marks = len(starts) - 1, [0.0]
    for card, (start, end) in enumerate(pairwise(starts)):
        total = n_cards if end == starts[-1] else card + 1
        marks.append(sums[end] + total * compute if end > start else marks[-1])
    return marks


def _split(engine: Engine, model: Model, flags: Flags, free: Sequence[int]) -> list[int]:
    if engine == "llama.cpp":
        return layers_llama.split_layers(model, flags, free)
    spec = make_spec(engine, model, flags, "server", cpu_only=False)
    return layers_ik.split_layers(model, flags, spec, free)
