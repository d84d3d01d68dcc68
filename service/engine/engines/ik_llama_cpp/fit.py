"""What ik_llama.cpp's `--fit` chooses: which experts, or of a dense model which first layers, stay in RAM.

Source: ik_llama.cpp 8337e4cd3 src/llama.cpp:4281-4610 (pull request 1501). Nothing is measured: sizes are those by
which layers the cards get, and neither context nor micro-batch is shortened. Its programs always pass a `-ts`,
if only of zeros, so what is done without one (taking the compute buffer off each card) never is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

from msgspec.structs import replace

from service.engine.config import CPU, Flags, Override
from service.engine.engines.ik_llama_cpp.placement import slot_sizes, split_layers, usable
from service.engine.engines.spec import FitAsked
from service.engine.memory.spec import make_spec
from service.engine.model import Model

_EXPERTS = re.compile(r"blk\.\d+\.ffn_(?:gate_up|gate|up|down)_exps\.weight")
_RULE = r"blk\.{}\.(ffn_(up|down|gate|gate_up)_exps\.(weight|scale))"


def fitted(asked: FitAsked) -> Flags | None:
    """Return the flags that the model is loaded with; None where `--fit` finds no placement, and the engine stops."""
    if asked.placed:
        return asked.flags
    flags = replace(asked.flags, n_gpu_layers=999)
    graph = flags.split_mode in ("graph", "attn")
    if graph and len(asked.free) > 1:
        flags = replace(flags, main_gpu=len(asked.free) - 1)
    spec = make_spec("ik_llama.cpp", asked.model, flags)
    sizes, compute = slot_sizes(asked.model, flags)
    room = usable(flags, asked.free)
    required, available = 0, 0
    for size in sizes:
        required = int(required + size)
    for n in room:
        available = int(available + max(n - compute, 0))
    if required <= available:
        return flags
    experts = _experts(asked.model, spec.next_tokens)
    if not experts:
        return _dense(asked.model, flags, sizes, compute, room)
    devices = split_layers(asked.model, flags, asked.free)
    if not graph:
        moved = _from_the_last(experts, sizes, room, devices)
    elif room[devices[-1]] <= sizes[-1]:
        return None  # no room for the head
    else:
        moved = _from_the_first(experts, required, available, compute)
    return None if moved is None else replace(flags, overrides=tuple(Override(_RULE.format(i), CPU) for i in moved))


def _experts(model: Model, next_tokens: bool) -> dict[int, int]:
    """Bytes of each loaded layer's routed experts."""
    loaded = range(model.n_layer - (0 if next_tokens else model.n_layer_nextn))
    found = {i: sum(t.nbytes for t in model.by_layer[i] if _EXPERTS.fullmatch(t.name)) for i in loaded}
    return {i: n_bytes for i, n_bytes in found.items() if n_bytes}


def _from_the_first(experts: dict[int, int], required: int, available: int, compute: float) -> list[int] | None:
    """With `-sm graph`: the first layers' experts, until the rest fits all cards together."""
    moved = []
    for layer, n_bytes in experts.items():
        moved.append(layer)
        required -= n_bytes
        if required <= available - compute:
            break
    return moved if required <= available else None


def _from_the_last(
    experts: dict[int, int], sizes: Sequence[float], room: Sequence[int], devices: Sequence[int]
) -> list[int] | None:  # fmt: skip
    """Each card's last layers' experts, until what it was assigned fits."""
    moved = []
    for card, n in enumerate(room):
        assigned = 0
        for size, device in zip(sizes, devices, strict=True):
            assigned = int(assigned + size) if device == card else assigned
        for layer in sorted((i for i in experts if devices[i] == card), reverse=True):
            if assigned <= n:
                break
            moved.append(layer)
            assigned -= experts[layer]
        if assigned > n:
            return None
    return moved


def _dense(model: Model, flags: Flags, sizes: Sequence[float], compute: float, room: Sequence[int]) -> Flags:
    """Fill the cards from the head down, the last card first; what is left of the first layers is the CPU's."""
    left, card, layer = list(room), len(room) - 1, model.n_layer
    held = [0.0] * len(room)
    while layer >= 0 and card >= 0:
        if left[card] < sizes[layer]:
            card -= 1
            continue
        left[card] = int(left[card] - sizes[layer])
        held[card] += sizes[layer]
        layer -= 1
    in_ram = min(layer + 1, model.n_layer)
    if flags.split_mode in ("graph", "attn"):
        return replace(flags, layers_in_ram=in_ram)  # what is divided is not what was filled here
    return replace(flags, layers_in_ram=in_ram, tensor_split=_split(held, compute, min(sizes[in_ram:])))


def _split(held: Sequence[float], compute: float, smallest: float) -> tuple[float, ...]:
    """Shares by which the walk over the cards assigns the same layers again, each mark a little beyond its layers."""
    if len(held) == 1:
        return ()
    marks = [n + (i + 1) * compute + smallest / 8 for i, n in enumerate(accumulate(held))]
    marks[-1] = sum(held) + len(held) * compute
    return tuple(b - a for a, b in pairwise((0.0, *marks)))
