"""Runs of flags on cards of which only the free memory matters, as memory is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from service.engine.builds import Build
from service.engine.catalogue import resolve
from service.engine.config import Allocator, Device, Engine, Flags, Tool
from service.engine.hardware import Hardware, Ram, Rig
from service.engine.memory.figures import Memory
from service.engine.memory.predict import predict_memory
from service.engine.model import Model
from service.engine.run.resolved import ResolvedRun, resolve_run


def run_on(
    engine: Engine, model: Model, flags: Flags, free: Sequence[int], *, allocator: Allocator = "cuda",
    tool: Tool = "server", build: Build | None = None,
) -> ResolvedRun:  # fmt: skip
    """Return the run of flags on cards with these bytes free. Raises InvalidFlags."""
    cards = [Device(f"CUDA{i}", i, n_bytes, n_bytes) for i, n_bytes in enumerate(free)]
    return resolve_run(engine, model, flags, _machine(), cards, build, tool=tool, allocator=allocator)


def memory_on(
    engine: Engine, model: Model, flags: Flags, free: Sequence[int], *, allocator: Allocator = "cuda",
    tool: Tool = "server", build: Build | None = None,
) -> Memory:  # fmt: skip
    """Return the memory of `run_on` with the same arguments. Raises InvalidFlags."""
    return predict_memory(run_on(engine, model, flags, free, allocator=allocator, tool=tool, build=build))


@cache
def _machine() -> Rig:
    return resolve(Hardware(gpus=[], ram=Ram(total_gb=1024)))
