"""OpenCL: `clinfo`, whole, in part (`clinfo | grep -E 'Name|Global'`) or as a list (`clinfo -l`), and AMD's own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.engine.hardware import Cpu
from service.engine.hardware_text.cim import is_integrated
from service.engine.hardware_text.found import Claim, Found, SeenGpu, is_shared

# `  Device Board Name (AMD)                         AMD Radeon RX 6800`, and of AMD's own `  Board name:\t\t Radeon …`.
_ITEM = re.compile(
    r"^[ \t]*(Device Name(?=\s{3})|Device Board Name \(AMD\)|Board name"
    r"|Device Type|Global memory size)(?:\s{3,}|:\s+)(\S.{0,160}?)\s*$"
)
# `clinfo -l`: ` `-- Device #0: Intel(R) Arc(TM) A770 Graphics`.
_LISTED = re.compile(r"^[ \t]*[`+|]-- Device #(\d{1,2}): (\S.{2,100}?)\s*$")
_LINE = re.compile(
    r"^(?:[ \t]*(?:Platform|Device|Driver|Max|Global|Number of|Board|Local|Preferred|Image|Queue|Compiler|Linker|SIMD"
    r"|Graphics IP|Wavefront|Vendor|Name|Extensions|Profile|Address bits|Little Endian|Half|Single|Double|Unified)"
    r"[\w ()/,.#-]{0,60}(?:\s{3,}|:\s).{0,900}|Number of (?:platforms|devices)\s.{0,20}|Platform #\d{1,2}: .{0,100})$"
)
_BYTES = re.compile(r"(\d{8,15})\b")
_BOARD = ("Device Board Name (AMD)", "Board name")
_CHIP = re.compile(r"gfx\w{3,6}")


def read_clinfo(lines: Sequence[str]) -> Claim | None:
    """Return the CPU and the GPUs, integrated ones only where there is no other; `gfx1100` alone is no name."""
    listed = {i: m for i, line in enumerate(lines) if (m := _LISTED.match(line))}
    items = {i: (m[1], m[2]) for i, line in enumerate(lines) if (m := _ITEM.match(line))}
    devices = _devices(list(items.values())) or [{"Device Name": m[2]} for m in listed.values()]
    cpus = [one["Device Name"] for one in devices if "CPU" in one.get("Device Type", "") and "Device Name" in one]
    gpus = [one for one in devices if "CPU" not in one.get("Device Type", "") and _name(one)]
    cards = [one for one in gpus if not is_integrated(_name(one)) and not is_shared(_name(one))]
    if not gpus:
        return None
    seen = tuple(SeenGpu(name=_name(one), total_mib=_mib(one) if cards else None) for one in cards or gpus)
    cpu = Cpu(model=cpus[0]) if cpus else None
    lines_of_it = {i for i, line in enumerate(lines) if _LINE.match(line)}
    return Claim(Found(tool="clinfo", seen=seen, cpu=cpu), frozenset(items) | frozenset(listed) | lines_of_it)


def _devices(items: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Return what is said of each device: what is stated again is the next one's."""
    devices: list[dict[str, str]] = []
    for key, value in items:
        if not devices or key in devices[-1]:
            devices.append({})
        devices[-1][key] = value
    return devices


def _mib(device: dict[str, str]) -> float | None:
    size = _BYTES.match(device.get("Global memory size", ""))
    return int(size[1]) / 2**20 if size else None


def _name(device: dict[str, str]) -> str:
    """Return a device's name as sold; "" if only its chip is known."""
    name = next((device[key] for key in _BOARD if key in device), device.get("Device Name", ""))
    return "" if _CHIP.fullmatch(name) else name
