"""Describes this machine and its cards' current use, by real libraries and the tools it has. No name, user, path or
serial number leaves it.

NVIDIA's cards come from the driver's library (NVML), behind an interface that others can implement; others from the
tools that service.detect runs, or from vulkaninfo. Without NVML no foreign use and no power can be seen. RAM bandwidth
is measured. What is unknown stays None: the service assumes it, and says so.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any, Protocol, TypeVar

import cpuinfo
import msgspec
import psutil
import pynvml

from service import __version__
from service.detect import detect
from service.engine.errors import AdvisorError
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.measure import ram_read_gbs
from service.wire.measuring.hosts import Probe
from workers.agent.engines import find_engines
from workers.agent.local import Backend, LocalGpu, Machine
from workers.agent.models import Hashes, find_models
from workers.agent.policy import Policy, as_downloads

T = TypeVar("T")
_MAX_LINKS = 18  # NVML_NVLINK_MAX_LINKS of nvml.h
_TIMEOUT_SECONDS = 20
_MAX_OUTPUT = 1 << 20
_MAX_NAME = 100
_LEAST_FREE_GIB = 4
_VULKAN_CARD = re.compile(r"deviceType\s*=\s*PHYSICAL_DEVICE_TYPE_DISCRETE_GPU\s+deviceName\s*=\s*([^\n]{1,100})")


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
        return LocalGpu(index=index, backend="cuda", total=total, uuid=uuid), told

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


def describe(policy: Policy, gpus: Gpus, hashes: Hashes, *, hardware: Hardware | None = None) -> Machine:
    """Return this machine: what the service is told and what stays here.

    `hardware`: as found before, including its RAM bandwidth; None: detect and measure now, which takes some seconds.
    """
    cards = gpus.cards()
    hardware = hardware if hardware is not None else find_hardware(tuple(gpu for _, gpu in cards))
    local = tuple(card for card, _ in cards) or _cards_of(hardware)
    engines, models = find_engines(policy), find_models(policy, hashes)
    probe = Probe(
        agent=f"offload-advisor/{__version__}",
        hardware=hardware,
        engines=tuple(engine.build for engine in engines),
        models=tuple(model.file for model in models),
        downloads=as_downloads(policy),
        max_minutes=policy.max_minutes,
        accounts=policy.askers.accounts,
    )
    return Machine(probe=probe, gpus=local, engines=engines, models=models)


def find_hardware(
    nvidia: tuple[Gpu, ...], look: Callable[[], Hardware] = detect, measure: Callable[[], float | None] | None = None
) -> Hardware:
    """Return GPUs, CPU and RAM, one entry per GPU. `nvidia`: those known to NVML; if there are none, other tools'
    are used. `measure` returns the GB/s at which RAM is read."""
    try:
        seen = look()
    except AdvisorError:
        seen = Hardware(gpus=[])
    gpus = list(nvidia) or [one for gpu in seen.gpus for one in _each(gpu)] or _by_vulkan(_vulkaninfo())
    bandwidth = (measure or _read_bandwidth)()
    return Hardware(gpus=gpus, cpu=_cpu(seen.cpu), ram=_ram(seen.ram, bandwidth), os=seen.os)


def _each(gpu: Gpu) -> list[Gpu]:
    """Return one entry per card, without what distinguishes cards of the same kind."""
    alone = msgspec.structs.replace(gpu, count=1, uuids=None, pci_order=None, device_order=None, free_gib=None)
    return [alone] * gpu.count


def _cpu(seen: Cpu | None) -> Cpu:
    seen = seen or Cpu()
    return msgspec.structs.replace(
        seen,
        model=seen.model or str(cpuinfo.get_cpu_info().get("brand_raw") or "")[:_MAX_NAME] or None,
        physical_cores=seen.physical_cores or psutil.cpu_count(logical=False),
    )


def _ram(seen: Ram | None, bandwidth: float | None) -> Ram:
    seen = seen or Ram()
    total = seen.total_gb or round(psutil.virtual_memory().total / 2**30, 2)
    return msgspec.structs.replace(seen, total_gb=total, free_gb=None, measured_bandwidth_gbs=bandwidth)


def _read_bandwidth() -> float | None:
    """Return the GB/s that all physical cores read together; None if too little memory is free to measure it."""
    free = float(psutil.virtual_memory().available / 2**30)
    return round(ram_read_gbs(psutil.cpu_count(logical=False), free), 1) if free > _LEAST_FREE_GIB else None


def _vulkaninfo() -> str:
    program = shutil.which("vulkaninfo")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, "--summary"], capture_output=True, timeout=_TIMEOUT_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout[:_MAX_OUTPUT].decode(errors="replace")


def _by_vulkan(summary: str) -> list[Gpu]:
    """Return the discrete cards in `vulkaninfo --summary`; integrated ones have no memory of their own."""
    return [Gpu(name=name.strip()) for name in _VULKAN_CARD.findall(summary)]


def _cards_of(hardware: Hardware) -> tuple[LocalGpu, ...]:
    """Return cards that no library watches, numbered as in their maker's list."""
    return tuple(
        LocalGpu(
            index=index,
            backend=_backend(gpu.name),
            total=int(gpu.vram_gib * 2**30) if gpu.vram_gib else None,
        )
        for index, gpu in enumerate(hardware.gpus)
    )


def _backend(name: str) -> Backend:
    if re.search(r"(?i)apple", name):
        return "metal"
    return "rocm" if re.search(r"(?i)\b(amd|radeon|instinct|mi\d{2,3}|gfx\d+)\b", name) else "vulkan"
