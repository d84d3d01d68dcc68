"""This machine's GPUs and their current use: NVIDIA's by NVML, behind an interface that others can implement.

Without NVML nothing can be seen: no card, no foreign use, no power.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any, Protocol, TypeVar

import msgspec
import pynvml

from service.engine.hardware import Gpu
from workers.agent.local import LocalGpu

T = TypeVar("T")
_MAX_LINKS = 18  # NVML_NVLINK_MAX_LINKS of nvml.h


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a card. `used`: its bytes of GPU memory, None if the driver does not tell. `is_compute`: it uses
    CUDA, not just graphics."""

    pid: int
    is_compute: bool
    used: int | None = None


class GpuNow(msgspec.Struct, frozen=True, kw_only=True):
    """One card at one moment, in bytes, degrees Celsius and watts; None if the driver does not tell."""

    index: int
    total: int
    used: int
    processes: tuple[GpuProcess, ...] = ()
    temperature: int | None = None
    watts: float | None = None


class Gpus(Protocol):
    """Reports which cards there are and what they are doing."""

    def cards(self) -> tuple[tuple[LocalGpu, Gpu], ...]:
        """Return every card: as known locally, and as described to the service."""

    def now(self, indices: Sequence[int]) -> tuple[GpuNow, ...]:
        """Return the current state of these cards, leaving out a card that has gone."""


def open_gpus(nvml: ModuleType | Any = pynvml) -> Gpus:
    """Return NVIDIA's cards; none if their driver is not loaded, and then every call says so."""
    with suppress(nvml.NVMLError):
        nvml.nvmlInit()
    return Nvidia(nvml)


class Nvidia:
    """NVIDIA's cards, in the order of nvidia-smi, which is that of the PCI bus."""

    def __init__(self, nvml: ModuleType | Any) -> None:
        self._nvml = nvml

    def cards(self) -> tuple[tuple[LocalGpu, Gpu], ...]:
        """Return every card that answers."""
        found = (self._card(index) for index in range(self._try(self._nvml.nvmlDeviceGetCount) or 0))
        return tuple(card for card in found if card is not None)

    def now(self, indices: Sequence[int]) -> tuple[GpuNow, ...]:
        """Return the current state of these cards."""
        found = (self._try(partial(self._now, index)) for index in indices)
        return tuple(now for now in found if now is not None)

    def _card(self, index: int) -> tuple[LocalGpu, Gpu] | None:
        handle = self._try(lambda: self._nvml.nvmlDeviceGetHandleByIndex(index))
        name = self._try(lambda: _text(self._nvml.nvmlDeviceGetName(handle))) if handle is not None else None
        if name is None:
            return None
        uuid = self._try(lambda: _text(self._nvml.nvmlDeviceGetUUID(handle)))
        memory = self._try(lambda: self._memory(handle))
        total = memory[0] if memory else None
        told = Gpu(
            name=name,
            vram_gib=round(total / 2**30, 2) if total else None,
            pcie=self._link(handle),
            nvlink=self._has_nvlink(handle),
            display=bool(self._try(lambda: self._nvml.nvmlDeviceGetDisplayActive(handle))) or None,
        )
        return LocalGpu(index=index, name=name, backend="cuda", total=total, uuid=uuid), told

    def _now(self, index: int) -> GpuNow:
        nvml, handle = self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(index)
        total, used = self._memory(handle)
        milliwatts = self._try(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        return GpuNow(
            index=index,
            total=total,
            used=used,
            processes=(
                *self._processes(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle), True),
                *self._processes(lambda: nvml.nvmlDeviceGetGraphicsRunningProcesses(handle), False),
            ),
            temperature=self._try(lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
            watts=milliwatts / 1000 if milliwatts is not None else None,
        )

    def _memory(self, handle: Any) -> tuple[int, int]:
        """Return (total, used) bytes. Drivers before 510 count their own reserve as used."""
        version = self._nvml.nvmlMemory_v2
        memory = self._try(lambda: self._nvml.nvmlDeviceGetMemoryInfo(handle, version=version))
        if memory is None:
            memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(memory.total), int(memory.used)

    def _processes(self, ask: Callable[[], Sequence[Any]], is_compute: bool) -> tuple[GpuProcess, ...]:
        return tuple(
            GpuProcess(pid=one.pid, is_compute=is_compute, used=one.usedGpuMemory) for one in self._try(ask) or ()
        )

    def _link(self, handle: Any) -> str | None:
        """Return the fastest link that card and board support: when idle it runs slower."""
        generation = self._try(lambda: self._nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))
        width = self._try(lambda: self._nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))
        return f"{generation}.0 x{width}" if generation and width else None

    def _has_nvlink(self, handle: Any) -> bool | None:
        states = (self._try(partial(self._nvml.nvmlDeviceGetNvLinkState, handle, link)) for link in range(_MAX_LINKS))
        return True if any(states) else None

    def _try(self, ask: Callable[[], T]) -> T | None:
        """Return what `ask` returns, None if card or driver cannot tell."""
        try:
            return ask()
        except self._nvml.NVMLError:
            return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
