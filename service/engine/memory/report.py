"""Memory in the API's shape: MiB for each device, with the interval, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from service.engine.advice import DeviceMemory
from service.engine.config import CPU, Device
from service.engine.estimate import Estimate
from service.engine.hardware import Rig
from service.engine.memory.companions import Companion
from service.engine.memory.figures import Memory
from service.engine.units import mib


def device_table(
    memory: Memory, devices: Sequence[Device], reserve: Sequence[int], rig: Rig, companions: Sequence[Companion] = ()
) -> list[DeviceMemory]:
    """Return the `report` for a machine, with the names of its cards.

    Cards without memory of their own use RAM, so that what is free there is free for both.
    """
    *rows, host = report(memory, devices, reserve, rig.ram_bytes, companions)
    shared = sum(row.total_mib for row, d in zip(rows, devices, strict=True) if rig.cards[d.gpu].unified)
    free = round(host.free_mib - shared, 2)
    named = [replace(row, gpu=rig.cards[d.gpu].name) for row, d in zip(rows, devices, strict=True)]
    return [*named, replace(host, free_mib=free, fits=host.fits and free >= 0)]


def report(
    memory: Memory, devices: Sequence[Device], reserve: Sequence[int], ram_bytes: int | None,
    companions: Sequence[Companion] = (),
) -> list[DeviceMemory]:  # fmt: skip
    """Return one row for each device of `memory`, the CPU last. `reserve` in bytes for each GPU, taken off nothing.

    `companions`: what else runs on the same devices; the totals count it.

    The capacity is what is free on a card, or `ram_bytes`; RAM of unknown size holds exactly what is needed.
    """
    rows = [
        _row(memory, i, device.name, device.free, kept, _companion_bytes(companions, i))
        for i, (device, kept) in enumerate(zip(devices, reserve, strict=True))
    ]
    return [*rows, _row(memory, len(devices), CPU, ram_bytes, 0, _companion_bytes(companions, len(devices)))]


def _companion_bytes(companions: Sequence[Companion], device: int) -> Estimate:
    stored = sum(c.weights[device] + c.kv[device] for c in companions)
    ranges = [c.compute[device] for c in companions]
    return Estimate(
        stored + sum(r.low for r in ranges),
        stored + sum(r.expected for r in ranges),
        stored + sum(r.high for r in ranges),
    )


def _row(
    memory: Memory, device: int, name: str, capacity: int | None, reserve: int, companions: Estimate
) -> DeviceMemory:
    d, own = memory.devices[device], memory.total(device)
    total, high = own.expected + companions.expected, own.high + companions.high
    room = high if capacity is None else capacity
    return DeviceMemory(
        device=name,
        gpu=None,
        weights_mib=mib(d.weights),
        kv_mib=mib(d.kv),
        compute_mib=mib(d.compute),
        output_mib=mib(d.output),
        overhead_mib=mib(d.derived + d.overhead.expected),
        total_mib=mib(total),
        total_low_mib=mib(own.low + companions.low),
        total_high_mib=mib(high),
        capacity_mib=mib(room),
        reserve_mib=mib(reserve),
        free_mib=mib(room - total),
        fits=high <= room,
        basis=memory.basis,
        companions_mib=mib(companions.expected),
    )
