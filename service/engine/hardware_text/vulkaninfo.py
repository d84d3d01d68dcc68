"""`vulkaninfo`, whole or `--summary`: the devices that Vulkan lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from service.engine.hardware_text.found import Claim, Found, SeenGpu

_PROPERTY = re.compile(r"^\s*(deviceType|deviceName)\s*= (\S.{0,120})$")
_HEAP = re.compile(r"^\s*size\s*= (\d{6,15}) \(0x[0-9a-f]+\) \([\d.]+ \w+\)$")
_LOCAL = re.compile(r"^\s*MEMORY_HEAP_DEVICE_LOCAL_BIT$")
_DRIVER = re.compile(r"(?: \([^()]{1,80}\)){1,2}$")  # `(RADV NAVI31) (radv)`
_IN_WSL = re.compile(r"^Microsoft Direct3D12 \((.{1,100})\)$")
_LINE = re.compile(
    r"^\s*(?:=+|-+|VULKANINFO|Vulkan Instance Version.{0,40}|VK_\w+.{0,120}|Vk\w+:?|GPU\d{1,2}:|GPU id .{0,120}|None"
    r"|\w+(?:\[\d+\])?\s+= .{0,300}|(?:memory|queue)\w+(?:\[\d+\])?:(?: count = \d+)?|\w*[fF]lags:(?: count = \d+)?"
    r"|Devices:|[A-Z][A-Za-z ]{3,40}: count = \d+|Device Properties and Extensions:|(?:MEMORY|QUEUE)_\w+"
    r"|(?:WARNING|TU): .{0,400})\s*$"
)


class _Device(NamedTuple):
    name: str
    kind: str
    n_bytes: int


def read_vulkaninfo(lines: Sequence[str]) -> Claim | None:
    """Return the GPUs, without software renderers, and without integrated ones next to others.

    Memory is that of the heaps on the device, where the whole output is given.
    """
    properties = [i for i, line in enumerate(lines) if _PROPERTY.match(line)]
    devices = list(_devices(lines))
    if not devices:
        return None
    gpus = [one for one in devices if one.kind.endswith("_DISCRETE_GPU")]
    gpus = gpus or [one for one in devices if not one.kind.endswith("_TYPE_CPU")]
    seen = tuple(
        SeenGpu(
            name=_DRIVER.sub("", _IN_WSL.sub(r"\1", one.name)),
            total_mib=one.n_bytes / 2**20 if _has_its_own(one) else None,
        )
        for one in gpus
    )
    start = next((i for i, line in enumerate(lines) if line.strip() == "VULKANINFO"), properties[0] - 6)
    taken = frozenset(i for i, line in enumerate(lines) if i >= start - 1 and _LINE.match(line))
    return Claim(Found(tool="vulkaninfo", seen=seen), taken | frozenset(properties))


def _has_its_own(device: _Device) -> bool:
    return device.n_bytes > 0 and device.kind.endswith("_DISCRETE_GPU")


def _devices(lines: Sequence[str]) -> Iterator[_Device]:
    """Yield each device with its heaps: a property that is stated again is the next one's."""
    said, heap, n_bytes = dict[str, str](), 0, 0
    for line in lines:
        if m := _PROPERTY.match(line):
            if m[1] in said and "deviceName" in said:
                yield _Device(said.pop("deviceName"), said.pop("deviceType", ""), n_bytes)
                n_bytes = 0
            said[m[1]] = m[2].strip()
        elif m := _HEAP.match(line):
            heap = int(m[1])
        elif _LOCAL.match(line):
            n_bytes, heap = n_bytes + heap, 0
    if "deviceName" in said:
        yield _Device(said["deviceName"], said.get("deviceType", ""), n_bytes)
