"""What this machine has, with what only the machine itself may know: paths and UUIDs. None of it is ever sent."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from service.wire.measuring.hosts import EngineBuild, ModelFile, Probe

Backend: TypeAlias = Literal["cuda", "rocm", "vulkan", "metal"]


class LocalGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One card. `index`: its number in `Probe.hardware.gpus`; of NVIDIA's also in nvidia-smi's list.

    `total`: bytes of memory, None where no tool says it. `uuid`: of NVIDIA's only; it goes to the engine's
    environment and nowhere else.
    """

    index: int
    name: str
    backend: Backend
    total: int | None = None
    uuid: str | None = None


class EngineProgram(msgspec.Struct, frozen=True, kw_only=True):
    """One build's benchmark program: where it is, what the service is told of it, and the folders of its libraries."""

    path: Path
    build: EngineBuild
    libraries: tuple[Path, ...] = ()


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    """One GGUF file: where it is, and what the service is told of it."""

    path: Path
    file: ModelFile


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """All of it: `probe` is what is sent, the rest stays here."""

    probe: Probe
    gpus: tuple[LocalGpu, ...]
    engines: tuple[EngineProgram, ...]
    models: tuple[LocalModel, ...]
