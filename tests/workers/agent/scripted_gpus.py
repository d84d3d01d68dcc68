"""Cards that do what a script says, for machines without any: what they show changes from one look to the next."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from service.engine.hardware import Gpu
from workers.agent.local import LocalGpu
from workers.agent.probe import GpuNow, GpuProcess

GIB = 1 << 30


def idle(index: int = 0, **changed: Any) -> GpuNow:
    """Return an RTX 4090 on which nothing happens, but for what is changed."""
    return GpuNow(**{"index": index, "total": 24 * GIB, "used": 4 << 20, "temperature": 40, "watts": 20.0} | changed)


def cuda(pid: int, used: int | None = GIB) -> GpuProcess:
    """Return a CUDA program."""
    return GpuProcess(pid=pid, is_compute=True, used=used)


def display(pid: int, used: int | None = GIB) -> GpuProcess:
    """Return a program that draws."""
    return GpuProcess(pid=pid, is_compute=False, used=used)


class ScriptedGpus:
    """Cards of one kind. `looks`: what each look shows; the last one stays; `count=0`: a machine without any."""

    def __init__(self, *looks: Sequence[GpuNow], count: int = 1) -> None:
        self.looks = list(looks) or [[idle(i) for i in range(count)]]
        self.count = count

    def cards(self) -> tuple[tuple[LocalGpu, Gpu], ...]:
        """Return `count` cards with UUIDs."""
        name = "NVIDIA GeForce RTX 4090"
        return tuple(
            (
                LocalGpu(index=i, backend="cuda", total=24 * GIB, uuid=f"GPU-{i:08d}-0000-4000-8000-{i:012d}"),
                Gpu(name=name, vram_gib=24.0, pcie="4.0 x16"),
            )
            for i in range(self.count)
        )

    def now(self, indices: Sequence[int]) -> tuple[GpuNow, ...]:
        """Return the next look at these cards."""
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return tuple(now for now in look if now.index in indices)


class FakeNvmlError(Exception):
    """An error of the driver's library."""


class FakeNvml:
    """The functions of pynvml that are used, on two cards; what is in `missing` the driver does not support."""

    NVMLError = FakeNvmlError
    NVML_TEMPERATURE_GPU = 0
    nvmlMemory_v2 = 0x02000028

    def __init__(self, *, count: int = 2, missing: Sequence[str] = (), has_driver: bool = True) -> None:
        self.count, self.missing, self.has_driver = count, missing, has_driver

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "missing"):
            return _unsupported
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:
        if not self.has_driver:
            raise FakeNvmlError("NVML Shared Library Not Found")

    def nvmlDeviceGetCount(self) -> int:
        self.nvmlInit()
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= self.nvmlDeviceGetCount():
            raise FakeNvmlError("Invalid Argument")
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA GeForce RTX 4090"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-1d3f2c5a-0000-4000-8000-00000000000{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int | None = None) -> Any:
        reserved = 0 if version else 400 << 20
        return SimpleNamespace(total=24564 << 20, used=(512 << 20) + reserved)

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:
        return 4

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:
        return 16

    def nvmlDeviceGetDisplayActive(self, handle: int) -> int:
        return int(handle == 0)

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        raise FakeNvmlError("Not Supported")

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 123_456

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 55

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=77, usedGpuMemory=500 << 20)] if handle else []

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=78, usedGpuMemory=None)]


def _unsupported(*_: object, **__: object) -> None:
    raise FakeNvmlError("Not Supported")
