"""Whether flags fit a set of devices, what they are short of, and how large the context may grow.

Every answer comes from the replay that `check` uses; nothing is assumed to fit because a formula says so.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import msgspec

from service.engine.builds import Build
from service.engine.config import Device, Engine, Flags, Placement
from service.engine.engines import engine_spec
from service.engine.engines.spec import FitAsked
from service.engine.estimate import Estimate
from service.engine.goal import Constraints, Goal
from service.engine.hardware import Rig
from service.engine.kept import kept
from service.engine.memory.figures import Memory
from service.engine.memory.least import least_memory
from service.engine.memory.overhead import free_at_start
from service.engine.memory.predict import predict_memory
from service.engine.model import Model
from service.engine.run.environment import PLAIN, Environment
from service.engine.run.resolved import ResolvedRun, resolve_run
from service.engine.speed.predict import goal_seconds
from service.engine.units import GIB, MIB


class MemoryLimits(msgspec.Struct, frozen=True):
    """What must stay free: `reserve` bytes on each device, `host` bytes that the engine may use of RAM.

    `projector`: the bytes that a projector takes of the first device's reserve, or without devices, of RAM.

    `shared`: the devices have no memory of their own, everything comes out of `host`. `one_pool`: and they may have all
    of it, so that nothing is split between them and the CPU.
    """

    reserve: tuple[int, ...]
    host: int
    shared: bool = False
    one_pool: bool = False
    projector: int = 0

    @property
    def kept(self) -> tuple[int, ...]:
        """What is to be free of each device in the end."""
        return tuple(n - self.projector * (i == 0) for i, n in enumerate(self.reserve))


def limits_of(rig: Rig, constraints: Constraints, cards: Sequence[int], engine: Engine | None = None) -> MemoryLimits:
    """Return the reserve of each card used (512 MiB, 1,024 with a display) and the bytes of RAM for a model.

    What a projector takes with `engine` (`Rig.projectors`) comes off them.
    """
    projector = next((n for name, n in rig.projectors if name == engine), 0)
    reserve = tuple(n + projector * (i == 0) for i, n in enumerate(rig.reserves(cards, constraints.reserve_mib)))
    host = rig.usable_ram
    if constraints.max_ram_gib is not None:
        host = min(host, int(constraints.max_ram_gib * GIB))
    chosen = [rig.cards[c] for c in cards]
    one_pool, shared = bool(chosen) and all(card.one_pool for card in chosen), any(card.unified for card in chosen)
    host -= projector if shared or not chosen else 0
    return MemoryLimits(reserve, host, shared=shared, one_pool=one_pool, projector=projector)


class Fitted(msgspec.Struct, frozen=True):
    """The run of flags that fit, with the memory that it takes."""

    run: ResolvedRun
    memory: Memory

    @property
    def flags(self) -> Flags:
        return self.run.flags

    @property
    def placement(self) -> Placement:
        return self.run.placement


class Shortfall(msgspec.Struct, frozen=True):
    """Flags that do not fit: the device that is short, and by how many bytes."""

    device: str
    n_bytes: int


class Placed(NamedTuple):
    """A placement that fits, and the expected seconds of the goal with it."""

    fitted: Fitted
    seconds: float


class Problem(msgspec.Struct, frozen=True, dict=True):
    """One engine, model and set of devices of a rig to fit flags for, and the goal that they are to serve."""

    engine: Engine
    model: Model
    devices: tuple[Device, ...]
    limits: MemoryLimits
    rig: Rig
    goal: Goal
    build: Build | None = None
    environment: Environment = PLAIN

    @property
    def date(self) -> str | None:
        """The date of the build, None for today's."""
        return self.build.date if self.build else None

    def run(self, flags: Flags, placement: Placement | None = None) -> ResolvedRun:
        """Return the run of flags. `placement` None: as they place the model. Raises InvalidFlags."""
        return resolve_run(
            self.engine, self.model, flags, self.rig, self.devices, self.build, self.environment, placement=placement
        )

    def tried(self, flags: Flags) -> Fitted:
        """Return the run of flags with its memory, whether that fits or not. Raises InvalidFlags."""
        return fitted(self.run(flags))

    def starts(self, run: ResolvedRun) -> bool:
        """Return whether the engine builds its graph with a run that fits."""
        return engine_spec(self.engine).memory.stops_at_graph(run) is None

    def placed_by_engine(self, flags: Flags) -> Flags | None:
        """Return `flags` with the placement that the engine finds by itself; None where it does not search, or fails.

        Kept for each of them: the engine's search measures dozens of placements.
        """
        return self._fit(unplaced(flags))

    @kept
    def _fit(self, flags: Flags) -> Flags | None:
        fit = engine_spec(self.engine).fit
        free = [free_at_start(self.rig.cards[device.gpu]) for device in self.devices]
        if fit is None or not free:
            return None
        asked = FitAsked(
            model=self.model, flags=flags, n_ctx=flags.n_ctx, free=free, placed=False, streams=max(flags.n_parallel, 1),
            used=cache(self._used),
        )  # fmt: skip
        return fit(asked)

    def _used(self, flags: Flags) -> list[int]:
        return [one.weights + one.kv + one.compute for one in predict_memory(self.run(flags)).devices[:-1]]

    def seconds(self, fitted: Fitted) -> Estimate:
        return goal_seconds(fitted.run, self.goal)


def unplaced(flags: Flags) -> Flags:
    """Return the flags without those that place anything."""
    plain = msgspec.structs.replace(flags, n_gpu_layers=999, split_mode="layer", tensor_split=(), overrides=())
    return msgspec.structs.replace(plain, cpu_moe=False, n_cpu_moe=0)


def fitted(run: ResolvedRun) -> Fitted:
    """Return the run with its memory, whether that fits or not."""
    return Fitted(run, predict_memory(run))


def slack(problem: Problem, memory: Memory) -> list[int]:
    """Return the bytes left on each GPU, then of RAM; negative where it does not fit.

    A GPU keeps its reserve beyond the expected total, and its whole capacity beyond the upper end of it.
    """
    totals, limits = [memory.total(i) for i in range(len(memory.devices))], problem.limits
    left = [
        int(min(device.free - reserve - total.expected, device.free - (reserve - kept) - total.high))
        for device, total, reserve, kept in zip(problem.devices, totals, limits.reserve, limits.kept, strict=False)
    ]
    in_ram = totals if problem.limits.shared else totals[-1:]
    return [*left, problem.limits.host - int(sum(total.high for total in in_ram))]


def check(problem: Problem, flags: Flags) -> Fitted | Shortfall:
    """Return the fitted flags if they fit as they are, else the Shortfall of the device that is short by most.

    Flags with which the engine would stop count as short of the whole model.
    """
    return _checked(problem, problem.run(flags))


def fitting(problem: Problem, flags: Flags) -> Fitted | None:
    """Return the fitted flags or None, as `check` does, without a replay where a closed form shows them short."""
    run = problem.run(flags)
    if min(most_left(problem, run)) < 0:
        return None
    found = _checked(problem, run)
    return found if isinstance(found, Fitted) else None


def _checked(problem: Problem, run: ResolvedRun) -> Fitted | Shortfall:
    found = fitted(run)
    left = slack(problem, found.memory)
    if min(left) < 0:
        return shortfall_of(problem, left)
    return found if problem.starts(run) else Shortfall("RAM", problem.model.n_bytes)


def most_left(problem: Problem, run: ResolvedRun) -> list[int]:
    """Return an upper bound of the bytes that `slack` finds, without a replay; none where cards share layers."""
    if run.flags.split_mode != "layer":
        return [sys.maxsize] * (len(problem.devices) + 1)
    return slack(problem, least_memory(run))


def shortfall_of(problem: Problem, left: list[int]) -> Shortfall:
    """Return the Shortfall of the device that is short by most, given what `slack` found."""
    worst = min(range(len(left)), key=left.__getitem__)
    return Shortfall(problem.devices[worst].name if worst < len(problem.devices) else "RAM", -left[worst])


def max_context(problem: Problem, now: Fitted, n_ctx_train: int) -> int:
    """Return the largest of a grid of contexts, up to the trained one, that fits with the same placement.

    The grid doubles in halves (… 16,384, 24,576, 32,768, 49,152 …): nobody asks for 37,376 tokens. Memory is nearly
    linear in the context, so a line through two replays says where to look, and a third one confirms it.
    """
    n_ctx = now.flags.n_ctx
    if n_ctx_train <= n_ctx:
        return n_ctx
    sizes = (step << power for power in range(12, 25) for step in (2, 3))
    grid = [n_ctx, *(n for n in sizes if n_ctx < n < n_ctx_train), n_ctx_train]
    top = problem.tried(msgspec.structs.replace(now.flags, n_ctx=grid[-1])).memory
    start, end = slack(problem, now.memory), slack(problem, top)
    if min(end) >= 0:
        return grid[-1]
    reach = min(a / (a - b) for a, b in zip(start, end, strict=True) if b < 0)
    likely = [n for n in grid if n <= n_ctx + reach * (grid[-1] - n_ctx)]
    while len(likely) > 1:
        if fitting(problem, msgspec.structs.replace(now.flags, n_ctx=likely[-1])) is not None:
            break
        likely.pop()
    return likely[-1]


def in_mib(n_bytes: int) -> int:
    """Return whole MiB, rounded up: what is short must not look like nothing."""
    return -(-n_bytes // MIB)
