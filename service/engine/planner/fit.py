"""Whether flags fit, how many layers go to the GPU at all, and how large the context may grow.

Every decision is checked by the same replay that `check` uses; nothing is assumed to fit because a formula says so.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from service.engine.builds import Build, MemoryRules
from service.engine.config import Device, Engine, Flags
from service.engine.estimate import Estimate
from service.engine.goal import Goal
from service.engine.hardware import Rig
from service.engine.memory import Memory, predict_memory
from service.engine.memory.spec import Tool
from service.engine.model import Model
from service.engine.speed import goal_seconds
from service.engine.units import MIB


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


class Placed(NamedTuple):
    """A placement that fits, and the expected seconds of the goal with it."""

    fitted: Fitted
    seconds: float


class Problem(msgspec.Struct, frozen=True):
    """One engine, model and set of devices of a rig to fit flags for, and the goal that they are to serve."""

    engine: Engine
    model: Model
    devices: tuple[Device, ...]
    limits: Limits
    rig: Rig
    goal: Goal
    build: Build | None = None

    @property
    def date(self) -> str | None:
        """The date of the build, None for today's."""
        return self.build.date if self.build else None

    def memory(self, flags: Flags) -> Memory:
        """Return the memory that `flags` take; of llama.cpp's server and its benchmark tool the larger on each device.

        The benchmark has one slot, and reserves logits for a whole batch.
        """
        if self.engine == "ik_llama.cpp":
            return self._memory(flags, "server")
        bench = self._memory(msgspec.structs.replace(flags, n_parallel=1), "bench")
        if flags.n_parallel == 1:
            return bench
        server = self._memory(flags, "server")
        pairs = enumerate(zip(bench.devices, server.devices, strict=True))
        larger = tuple(a if bench.total(i).high > server.total(i).high else b for i, (a, b) in pairs)
        return msgspec.structs.replace(bench, devices=larger)

    def _memory(self, flags: Flags, tool: Tool) -> Memory:
        return predict_memory(
            self.engine, self.model, flags, [d.free for d in self.devices], tool=tool, rules=self.rules
        )

    @property
    def rules(self) -> MemoryRules | None:
        """The rules of memory of the build, None for today's."""
        return self.build.rules.memory if self.build and self.build.date else None

    def seconds(self, fitted: Fitted) -> Estimate:
        """Return the time of the goal with flags that fit."""
        placement = fitted.memory.placement
        return goal_seconds(
            self.engine, self.model, fitted.flags, placement, self.rig, self.devices, self.goal, self.date
        )


def slack(problem: Problem, memory: Memory) -> list[int]:
    """Return the bytes left on each GPU, then of RAM; negative where it does not fit.

    A GPU keeps its reserve beyond the expected total, and its whole capacity beyond the upper end of it.
    """
    totals = [memory.total(i) for i in range(len(memory.devices))]
    left = [
        int(min(device.free - reserve - total.expected, device.free - total.high))
        for device, total, reserve in zip(problem.devices, totals, problem.limits.reserve, strict=False)
    ]
    in_ram = totals if problem.limits.shared else totals[-1:]
    return [*left, problem.limits.host - int(sum(total.high for total in in_ram))]


def check(problem: Problem, flags: Flags) -> Fitted | Shortfall:
    """Return whether `flags` fit as they are; a Shortfall names the device that is short by most."""
    memory = problem.memory(flags)
    left = slack(problem, memory)
    worst = min(range(len(left)), key=left.__getitem__)
    if left[worst] >= 0:
        return Fitted(flags, memory)
    name = problem.devices[worst].name if worst < len(problem.devices) else "RAM"
    return Shortfall(name, -left[worst])


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


def max_context(problem: Problem, fitted: Fitted, n_ctx_train: int) -> int:
    """Return the largest of a grid of contexts, up to the trained one, that fits with the same placement.

    The grid doubles in halves (… 16,384, 24,576, 32,768, 49,152 …): nobody asks for 37,376 tokens. Memory is nearly
    linear in the context, so a line through two replays says where to look, and a third one confirms it.
    """
    n_ctx = fitted.flags.n_ctx
    grid = [n_ctx, *(n for n in _context_grid(n_ctx_train) if n > n_ctx)]
    if len(grid) == 1:
        return n_ctx
    top = problem.memory(msgspec.structs.replace(fitted.flags, n_ctx=grid[-1]))
    start, end = slack(problem, fitted.memory), slack(problem, top)
    if min(end) >= 0:
        return grid[-1]
    reach = min(a / (a - b) for a, b in zip(start, end, strict=True) if b < 0)
    likely = [n for n in grid if n <= n_ctx + reach * (grid[-1] - n_ctx)]
    while len(likely) > 1:
        if isinstance(check(problem, msgspec.structs.replace(fitted.flags, n_ctx=likely[-1])), Fitted):
            break
        likely.pop()
    return likely[-1]


def _context_grid(n_ctx_train: int) -> list[int]:
    sizes = [step << power for power in range(12, 25) for step in (2, 3)]
    return [n for n in sizes if n < n_ctx_train] + [n_ctx_train]


def in_mib(n_bytes: int) -> int:
    """Return whole MiB, rounded up: what is short must not look like nothing."""
    return -(-n_bytes // MIB)
