"""FFN in RAM: how many layers keep their routed experts, or their dense FFN, on the GPU that owns the layer.

A sketch costs one replay and is near enough to compare candidates; settling it replays until nothing is left to move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from service.engine.commands.expert_rules import dense_override, expert_override
from service.engine.config import Engine, Flags, Override, Placement
from service.engine.memory import Memory, place
from service.engine.model import Model
from service.engine.planner.fit import Fitted, Problem, Shortfall, slack
from service.engine.planner.support import runs_on_gpu
from service.engine.tensor_names import role_of

_MAX_CORRECTIONS = 8


def movable_layers(engine: Engine, model: Model) -> dict[int, int]:
    """Return the bytes of each layer's movable FFN: its routed experts, or the dense FFN where a model has none.

    Layers whose FFN has a type without GPU kernels are left out of what may move to a GPU.
    """
    role = "expert" if model.moe_layers else "dense_ffn"
    layers: dict[int, int] = {}
    for index, tensors in enumerate(model.by_layer[: model.n_layer - model.n_layer_nextn]):
        parts = [t for t in tensors if role_of(t.name) == role]
        if parts and all(runs_on_gpu(engine, t.type) for t in parts):
            layers[index] = sum(t.nbytes for t in parts)
    return layers


def ffn_in_ram(model: Model, kept: set[int]) -> tuple[Override, ...]:
    """Return the `-ot` rules that leave the FFN of every layer but `kept` in RAM."""
    running = range(model.n_layer - model.n_layer_nextn)
    if model.moe_layers:
        away = [i for i in model.moe_layers if i not in kept]
        if len(away) == len(model.moe_layers):
            return (Override("exps", "CPU"),)
        return (Override(expert_override(away), "CPU"),) if away else ()
    away = [i for i in running if i not in kept]
    return (Override(dense_override(away), "CPU"),) if away else ()


class Sketch(NamedTuple):
    """Flags that are likely to fit, the placement they make, and what may still be moved."""

    flags: Flags
    placement: Placement
    filling: Filling


def sketch(problem: Problem, flags: Flags) -> Sketch | Shortfall:
    """Return `flags` with as many whole FFN layers on the GPUs as seem to fit after a replay with none of them."""
    base = replace(flags, overrides=ffn_in_ram(problem.model, set()))
    memory = problem.memory(base)
    left = slack(problem, memory)
    worst = min(range(len(problem.devices)), key=left.__getitem__)
    if left[worst] < 0:
        return Shortfall(problem.devices[worst].name, -left[worst])
    filling = Filling(problem, memory, left)
    filled = filling.apply(problem.model, base)
    return Sketch(filled, place(problem.engine, problem.model, filled, [d.free for d in problem.devices]), filling)


def settle(problem: Problem, drawn: Sketch) -> Fitted | Shortfall:
    """Return the sketch's flags with the most layers that a replay says fit."""
    best: Fitted | None = None
    filling, grown_over = drawn.filling, set[int]()
    for _ in range(_MAX_CORRECTIONS):
        flags = filling.apply(problem.model, drawn.flags)
        memory = problem.memory(flags)
        left = slack(problem, memory)
        over = [d for d in range(len(problem.devices)) if left[d] < 0]
        if not over and left[-1] < 0:
            return best or Shortfall("RAM", -left[-1])
        if over:
            grown_over.update(over)
            if not all([filling.shrink(d, -left[d]) for d in over]):  # noqa: C419 (each of them is to shrink)
                break
            continue
        best = Fitted(flags, memory)
        if not filling.grow_any(left, grown_over):
            break
    return best or Shortfall(problem.devices[over[0]].name, -left[over[0]])


class Filling:
    """Which layers keep their FFN on their GPU, layer by layer from the front of each GPU's range."""

    def __init__(self, problem: Problem, memory: Memory, left: Sequence[int]) -> None:
        sizes = movable_layers(problem.engine, problem.model)
        n_devices = len(problem.devices)
        self.ranges = [[i for i in sizes if memory.placement.layers[i] == d] for d in range(n_devices)]
        self.sizes = sizes
        self.counts = [self._fitting(d, left[d]) for d in range(n_devices)]

    def _fitting(self, device: int, room: int) -> int:
        count = 0
        for layer in self.ranges[device]:
            if self.sizes[layer] > room:
                break
            room -= self.sizes[layer]
            count += 1
        return count

    @property
    def kept(self) -> set[int]:
        return {layer for layers, count in zip(self.ranges, self.counts, strict=True) for layer in layers[:count]}

    def apply(self, model: Model, flags: Flags) -> Flags:
        """Return `flags` with the `-ot` rules of this filling."""
        return replace(flags, overrides=ffn_in_ram(model, self.kept))

    def shrink(self, device: int, short: int) -> bool:
        """Take layers off `device` until `short` bytes are freed; False when none are left."""
        if not self.counts[device]:
            return False
        while short > 0 and self.counts[device]:
            self.counts[device] -= 1
            short -= self.sizes[self.ranges[device][self.counts[device]]]
        return True

    def grow_any(self, left: Sequence[int], grown_over: set[int]) -> bool:
        """Add the next layer to each device whose room it fits and that was not too full before; whether any was."""
        grown = False
        for device, layers in enumerate(self.ranges):
            count = self.counts[device]
            if device not in grown_over and count < len(layers) and self.sizes[layers[count]] <= left[device]:
                self.counts[device] += 1
                grown = True
        return grown
