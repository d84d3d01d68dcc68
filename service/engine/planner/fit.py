"""Make a candidate fit: how many layers keep their FFN on the GPU, how many layers go to the GPU at all.

Every decision is checked by the same replay that `check` uses; nothing is assumed to fit because a formula says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from service.engine.commands.expert_rules import dense_override, expert_override
from service.engine.config import Device, Engine, Flags, Override
from service.engine.memory import DeviceBytes, Memory, predict_memory
from service.engine.model import Model, role_of
from service.engine.planner.support import runs_on_gpu
from service.engine.units import MIB

_MAX_CORRECTIONS = 8


class Limits(msgspec.Struct, frozen=True):
    """What must stay free: `reserve` bytes on each device, `host` bytes that the engine may use of RAM.

    `shared`: the devices have no memory of their own, everything comes out of `host`.
    """

    reserve: tuple[int, ...]
    host: int
    shared: bool = False


class Fitted(msgspec.Struct, frozen=True):
    """Flags that fit, with the memory they take."""

    flags: Flags
    memory: Memory


class Shortfall(msgspec.Struct, frozen=True):
    """Flags that do not fit: the device that is short, and by how many bytes."""

    device: str
    n_bytes: int


class Problem(msgspec.Struct, frozen=True):
    """One engine, model and set of devices to fit flags for."""

    engine: Engine
    model: Model
    devices: tuple[Device, ...]
    limits: Limits

    def memory(self, flags: Flags) -> Memory:
        """Return the memory that `flags` take; llama.cpp as its benchmark tool allocates, which is the larger."""
        tool: Literal["server", "bench"] = "bench" if self.engine == "llama.cpp" else "server"
        return predict_memory(self.engine, self.model, flags, [d.free for d in self.devices], tool=tool)


def needed(device: DeviceBytes) -> int:
    """Return the bytes that a device must have free: all buffers and the upper end of what no engine prints."""
    return device.weights + device.kv + device.compute + device.output + device.derived + int(device.overhead.high)


def slack(problem: Problem, memory: Memory) -> list[int]:
    """Return the bytes left on each GPU, then of RAM; negative where it does not fit.

    A GPU keeps its reserve beyond the expected overhead, and its whole capacity beyond the upper end of it.
    """
    left = []
    for device, used, reserve in zip(problem.devices, memory.devices, problem.limits.reserve, strict=False):
        certain = needed(used) - int(used.overhead.high)
        left.append(min(device.free - certain - int(used.overhead.expected) - reserve, device.free - needed(used)))
    in_ram = memory.devices if problem.limits.shared else memory.devices[-1:]
    return [*left, problem.limits.host - sum(needed(used) for used in in_ram)]


def check(problem: Problem, flags: Flags) -> Fitted | Shortfall:
    """Return whether `flags` fit as they are; a Shortfall names the device that is short by most."""
    memory = problem.memory(flags)
    left = slack(problem, memory)
    worst = min(range(len(left)), key=left.__getitem__)
    if left[worst] >= 0:
        return Fitted(flags, memory)
    name = problem.devices[worst].name if worst < len(problem.devices) else "RAM"
    return Shortfall(name, -left[worst])


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


def fill(problem: Problem, flags: Flags) -> Fitted | Shortfall:
    """Return `flags` with as many whole FFN layers on the GPUs as fit, each on the GPU that owns the layer."""
    base = msgspec.structs.replace(flags, overrides=ffn_in_ram(problem.model, set()))
    memory = problem.memory(base)
    left = slack(problem, memory)
    if min(left[:-1]) < 0:
        worst = min(range(len(left) - 1), key=left.__getitem__)
        return Shortfall(problem.devices[worst].name, -left[worst])
    return _correct(problem, base, _Filling(problem, memory, left))


class _Filling:
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

    def shrink(self, device: int, short: int) -> bool:
        """Take layers off `device` until `short` bytes are freed; False when none are left."""
        if not self.counts[device]:
            return False
        while short > 0 and self.counts[device]:
            self.counts[device] -= 1
            short -= self.sizes[self.ranges[device][self.counts[device]]]
        return True

    def grow(self, device: int, room: int) -> bool:
        """Add the next layer to `device` if it fits `room`."""
        layers, count = self.ranges[device], self.counts[device]
        if count >= len(layers) or self.sizes[layers[count]] > room:
            return False
        self.counts[device] += 1
        return True


def _correct(problem: Problem, base: Flags, filling: _Filling) -> Fitted | Shortfall:
    best: Fitted | None = None
    short = Shortfall("RAM", 0)
    frozen: set[int] = set()
    for _ in range(_MAX_CORRECTIONS):
        flags = msgspec.structs.replace(base, overrides=ffn_in_ram(problem.model, filling.kept))
        memory = problem.memory(flags)
        left = slack(problem, memory)
        over = [d for d in range(len(problem.devices)) if left[d] < 0]
        if over:
            frozen.update(over)
            if not all(filling.shrink(d, -left[d]) for d in over):
                break
            continue
        if left[-1] < 0:
            short = Shortfall("RAM", -left[-1])
            break
        best = Fitted(flags, memory)
        grown = [filling.grow(d, left[d]) for d in range(len(problem.devices)) if d not in frozen]
        if not any(grown):
            break
    return best or short


def most_layers(problem: Problem, flags: Flags) -> Fitted | Shortfall:
    """Return `flags` with the largest `-ngl` that fits (found by halving), or the Shortfall of the smallest."""

    def attempt(ngl: int) -> Fitted | Shortfall:
        return check(problem, msgspec.structs.replace(flags, n_gpu_layers=ngl))

    best = attempt(1)
    low, high = 1, problem.model.n_layer + 1
    while isinstance(best, Fitted) and high - low > 1:
        middle = (low + high) // 2
        found = attempt(middle)
        if isinstance(found, Fitted):
            best, low = found, middle
        else:
            high = middle
    return best


def max_context(problem: Problem, flags: Flags, n_ctx_train: int) -> int:
    """Return the largest of a grid of contexts, up to the trained one, that fits with the same placement.

    The grid doubles in halves (… 16,384, 24,576, 32,768, 49,152 …): nobody asks for 37,376 tokens.
    """
    if isinstance(check(problem, flags), Shortfall):
        return 0
    grid = [flags.n_ctx] + [n for n in _context_grid(n_ctx_train) if n > flags.n_ctx]
    low, high = 0, len(grid)
    while high - low > 1:
        middle = (low + high) // 2
        found = check(problem, msgspec.structs.replace(flags, n_ctx=grid[middle]))
        low, high = (middle, high) if isinstance(found, Fitted) else (low, middle)
    return grid[low]


def _context_grid(n_ctx_train: int) -> list[int]:
    sizes = [step << power for power in range(12, 25) for step in (2, 3)]
    return [n for n in sizes if n < n_ctx_train] + [n_ctx_train]


def in_mib(n_bytes: int) -> int:
    """Return whole MiB, rounded up: what is short must not look like nothing."""
    return -(-n_bytes // MIB)
