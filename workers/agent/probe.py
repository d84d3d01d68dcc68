"""Describes this machine, using real libraries and the tools it has. No name, user, path or serial number leaves it.

NVIDIA's cards come from the driver's library; others from the tools that service.detect runs, or from vulkaninfo. RAM
bandwidth is measured. What is unknown stays None: the service assumes it, and says so.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable

import cpuinfo
import msgspec
import psutil

from service import __version__
from service.detect import detect
from service.engine.errors import AdvisorError
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.measure import ram_read_gbs
from service.wire.measuring.hosts import Probe
from workers.agent.engines import find_engines
from workers.agent.gpus import Gpus
from workers.agent.local import Backend, LocalGpu, Machine
from workers.agent.models import Hashes, find_models
from workers.agent.policy import Policy, as_downloads

_TIMEOUT_SECONDS = 20
_MAX_OUTPUT = 1 << 20
_MAX_NAME = 100
_LEAST_FREE_GIB = 4
_VULKAN_CARD = re.compile(r"deviceType\s*=\s*PHYSICAL_DEVICE_TYPE_DISCRETE_GPU\s+deviceName\s*=\s*([^\n]{1,100})")


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
            name=gpu.name,
            backend=_backend(gpu.name),
            total=int(gpu.vram_gib * 2**30) if gpu.vram_gib else None,
        )
        for index, gpu in enumerate(hardware.gpus)
    )


def _backend(name: str) -> Backend:
    if re.search(r"(?i)apple", name):
        return "metal"
    return "rocm" if re.search(r"(?i)\b(amd|radeon|instinct|mi\d{2,3}|gfx\d+)\b", name) else "vulkan"
