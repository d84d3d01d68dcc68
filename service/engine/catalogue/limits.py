"""What hardware can exist at all: every number that a user states is checked against these limits first."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from service.engine.catalogue.names import gpu_rows
from service.engine.errors import InvalidHardware
from service.engine.hardware import Cpu, Gpu, Hardware, Ram

MAX_GPUS = 64
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{8,64}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def check(hardware: Hardware) -> None:
    """Raise InvalidHardware, with the path of the field, for a value that no machine has."""
    if len(hardware.gpus) > MAX_GPUS:
        raise _wrong("hardware.gpus", len(hardware.gpus), f"at most {MAX_GPUS} GPUs")
    for i, gpu in enumerate(hardware.gpus):
        _check_gpu(gpu, f"hardware.gpus[{i}]")
    total = sum(gpu.count for gpu in hardware.gpus)
    if total > MAX_GPUS:
        raise _wrong("hardware.gpus", total, f"at most {MAX_GPUS} GPUs")
    _each_once([uuid for gpu in hardware.gpus for uuid in gpu.uuids or ()], "UUID")
    _each_once([n for gpu in hardware.gpus for n in gpu.pci_order or ()], "number")
    _each_once([n for gpu in hardware.gpus for n in gpu.device_order or ()], "device number")
    if hardware.cpu is not None:
        _check_cpu(hardware.cpu)
    if hardware.ram is not None:
        _check_ram(hardware.ram)
    _text("hardware.os", hardware.os, 200)
    _text("hardware.notes", hardware.notes, 4000)


def _check_gpu(gpu: Gpu, path: str) -> None:
    if not gpu.name.strip():
        raise InvalidHardware("a GPU needs a name, such as `RTX 3090`", field=f"{path}.name")
    _text(f"{path}.name", gpu.name, 200)
    _text(f"{path}.pcie", gpu.pcie, 60)
    _number(f"{path}.count", gpu.count, 1, MAX_GPUS, "GPUs")
    rows = gpu_rows(gpu.name)
    if gpu.count > 1 and rows and rows[0].unified:
        what = f"{gpu.count}x {gpu.name}: each is a whole machine: describe only the one that will run the model"
        raise InvalidHardware(what, field=f"{path}.count")
    _number(f"{path}.vram_gib", gpu.vram_gib, 0.25, 2048, "GiB a card")
    _number(f"{path}.free_gib", gpu.free_gib, 0, 2048, "GiB a card")
    _number(f"{path}.bandwidth_gbs", gpu.bandwidth_gbs, 1, 50_000, "GB/s")
    _number(f"{path}.measured_copy_gbs", gpu.measured_copy_gbs, 0.05, 2_000, "GB/s")
    if gpu.vram_gib is not None and gpu.free_gib is not None and gpu.free_gib > gpu.vram_gib:
        raise _wrong(f"{path}.free_gib", gpu.free_gib, f"at most the card's {gpu.vram_gib:g} GiB")
    _one_a_card(f"{path}.uuids", gpu.uuids, gpu.count)
    _one_a_card(f"{path}.pci_order", gpu.pci_order, gpu.count)
    _one_a_card(f"{path}.device_order", gpu.device_order, gpu.count)
    if gpu.device_order and not all(0 <= n < 256 for n in gpu.device_order):
        raise InvalidHardware("a device's number in the engine's list is 0 to 255", field=f"{path}.device_order")
    if gpu.uuids and not all(_UUID.fullmatch(uuid) for uuid in gpu.uuids):
        raise InvalidHardware("a UUID looks like `GPU-` and hexadecimal digits", field=f"{path}.uuids")
    if gpu.pci_order and not all(0 <= n < 256 for n in gpu.pci_order):
        raise InvalidHardware("a GPU's number in nvidia-smi is 0 to 255", field=f"{path}.pci_order")


def _check_cpu(cpu: Cpu) -> None:
    _text("hardware.cpu.model", cpu.model, 300)
    _number("hardware.cpu.sockets", cpu.sockets, 1, 16, "sockets")
    _number("hardware.cpu.physical_cores", cpu.physical_cores, 1, 4096, "cores")
    _number("hardware.cpu.numa_nodes", cpu.numa_nodes, 1, 256, "NUMA nodes of all sockets together")


def _check_ram(ram: Ram) -> None:
    _text("hardware.ram.type", ram.type, 40)
    _number("hardware.ram.total_gb", ram.total_gb, 0.5, 16_384, "GB")
    _number("hardware.ram.free_gb", ram.free_gb, 0, 16_384, "GB")
    _number("hardware.ram.channels", ram.channels, 1, 128, "channels of all sockets together")
    _number("hardware.ram.mts", ram.mts, 200, 20_000, "MT/s")
    _number("hardware.ram.measured_bandwidth_gbs", ram.measured_bandwidth_gbs, 1, 20_000, "GB/s")
    if ram.total_gb is not None and ram.free_gb is not None and ram.free_gb > ram.total_gb:
        raise _wrong("hardware.ram.free_gb", ram.free_gb, f"at most the {ram.total_gb:g} GB there are")


def _number(path: str, value: float | None, low: float, high: float, unit: str) -> None:
    if value is None:
        return
    if not math.isfinite(value) or not low <= value <= high:
        raise _wrong(path, value, f"{low:g} to {high:g} {unit}")


def _text(path: str, value: str | None, longest: int) -> None:
    if value is None:
        return
    if len(value) > longest:
        raise InvalidHardware(f"{len(value)} characters are too many, at most {longest}", field=path)
    if _CONTROL.search(value):
        raise InvalidHardware("control characters are not allowed", field=path)


def _one_a_card(path: str, values: list[str] | list[int] | None, count: int) -> None:
    if values is not None and (len(values) != count or len(set(values)) != count):
        raise InvalidHardware(f"give one per card ({count}), each once, not {len(values)}", field=path)


def _each_once(values: Sequence[str | int], what: str) -> None:
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise InvalidHardware(f"two GPUs have the {what} {twice}", field="hardware.gpus")


def _wrong(path: str, value: float, right: str) -> InvalidHardware:
    return InvalidHardware(f"{value:.10g} cannot be right: {right}", field=path)
