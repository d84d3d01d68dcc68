"""What this machine has, including what must stay local and is never sent: paths and UUIDs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from service.wire.measuring.hosts import EngineBuild, ModelFile, Probe

Backend: TypeAlias = Literal["cuda", "rocm", "vulkan", "metal"]


class LocalGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One card. `index`: its number in `Probe.hardware.gpus`, for NVIDIA also in nvidia-smi's list.

    `total`: bytes of memory, None if no tool tells. `uuid`: only NVIDIA's; it is passed to the engine's environment and
    nowhere else.
    """

    index: int
    backend: Backend
    total: int | None = None
    uuid: str | None = None


class EngineProgram(msgspec.Struct, frozen=True, kw_only=True):
    """One build's benchmark program: its path, what the service is told of it, and the folders of its libraries."""

    path: Path
    build: EngineBuild
    libraries: tuple[Path, ...] = ()


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    """One GGUF file: its path, and what the service is told of it."""

    path: Path
    file: ModelFile


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The whole machine: `probe` is sent, the rest stays here."""

    probe: Probe
    gpus: tuple[LocalGpu, ...]
    engines: tuple[EngineProgram, ...]
    models: tuple[LocalModel, ...]
