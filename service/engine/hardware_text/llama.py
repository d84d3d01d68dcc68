"""The engines' own device lists: `llama-server --list-devices`, and what a CUDA build prints when it starts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from service.engine.catalogue.names import gpu_key, gpu_rows
from service.engine.hardware import Cpu, Gpu, Ram
from service.engine.hardware_text.found import Claim, Found, SeenGpu, unreadable
from service.engine.hardware_text.parts import sold_with

# The prefix of a line in a server's log; the first one may stand after the writer's own words.
_LOGGED = r"(?:[\w ,:-]{1,40} )?\d{1,3}\.\d\d\.\d{3}\.\d{3} [A-Z] .{0,60}?"
_DEVICE = re.compile(
    rf"^\s*(?:{_LOGGED})?(?:- )?(?:CUDA|ROCm|HIP|SYCL|Vulkan|MTL|Metal|MUSA|CANN)(\d{{0,2}})\s{{0,8}}:"
    r"\s+(.{1,120}?)\s+\((\d{1,8}) MiB, (\d{1,8}) MiB free\)\s*$"
)
# At start, llama-server also lists the processor, with the machine's RAM.
_HOST = re.compile(rf"^\s*(?:{_LOGGED})?- CPU\s+:\s+(.{{3,120}}?)\s+\((\d{{1,8}}) MiB, (\d{{1,8}}) MiB free\)\s*$")
_LOG = re.compile(rf"^\s*{_LOGGED}.{{0,300}}$")
_OTHER_DEVICE = re.compile(r"^\s*(?:BLAS|CPU|RPC)\S{0,40}:\s.{0,150}\(\d{1,8} MiB, \d{1,8} MiB free\)\s*$")
_TITLE = re.compile(r"^\s*Available devices:\s*$", re.I)
# `Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes`, and of late `, VRAM: 24135 MiB`, or with
# `(23871 MiB free)` behind it.
_STARTED = re.compile(
    r"^\s*Device\s+(\d{1,2}):\s+(.{1,120}?),\s+(?:compute\s+capability\s+\d{1,2}\.\d|gfx\w{3,6}.{0,40})"
    r"(?:,\s+(?:VMM|Wave\s+Size):\s+\w{1,5}){0,2}"
    r"(?:,\s+VRAM:\s+(\d{1,8})\s+MiB(?:\s+\((\d{1,8})\s+MiB\s+free\))?.{0,40})?\s*$",
    re.I,
)
# `using device CUDA0 (NVIDIA GeForce RTX 3090) (0000:01:00.0) - 23871 MiB free`
_USES = re.compile(r"\busing device (?:CUDA|ROCm)(\d{1,2})\b.{0,160}? - (\d{1,8}) MiB free\b", re.I)
_COUNT = re.compile(r"\bfound\s+(\d{1,2})\s+(?:CUDA|ROCm)\s+devices", re.I)
_CHIP = re.compile(r"^\s*Device (\d{1,2}): .{1,120}?, (gfx\w{3,6})\b")
# `ggml_vulkan: 0 = Radeon RX 7900 XTX (RADV NAVI31) (radv) | uma: 0 | fp16: 1 | ...`
_VULKAN = re.compile(
    r"^\s*(?:ggml_vulkan: ?|Vulkan)(\d{1,2}) ?[=:] (.{1,120}?)(?: \([^()|]{1,80}\)){0,2} \| (?:uma|fp16): .{0,300}$"
)
# `ggml_metal_device_init: GPU name:   Apple M4 Max`, of late `MTL0 (Apple M4 Max)`, and the memory that macOS lends it.
_METAL = re.compile(r"^\s*ggml_metal\w{0,20}: GPU name:\s+(?:MTL\d \()?Apple M([1-9]) ?(Pro|Max|Ultra)?\)?\s*$")
_LENT = re.compile(r"^\s*ggml_metal\w{0,20}: recommendedMaxWorkingSetSize\s+= (\d{4,6})[.,]\d\d MB\s*$")
_THOUSANDS = 1.073741824  # GB of a thousand million bytes in a GiB
_LENT_OF_ALL = (0.62, 0.86)  # macOS lends two thirds to six sevenths of the memory
_NAMELESS = re.compile(r"processor$|^(?:AMD )?Radeon(?:\(TM\))? Graphics\b", re.I)
_STARTING = re.compile(
    r"^\s*(?:ggml_(?:cuda|hip|metal|vulkan)\w{0,20}:|load_backend:|system[_ ]info: n_threads|build: \d"
    r"|main: (?:build|seed)\s|register_\w{1,30}:)"
    r"(?!.*registered\s+device\s+CPU).{0,300}$",
    re.I,
)


def read_list_devices(lines: Sequence[str]) -> Claim | None:
    """Return the devices of `--list-devices` and their free memory, in the engine's order, which is not PCI order."""
    found = {i: m for i, line in enumerate(lines) if (m := _DEVICE.match(line))}
    if not found:
        return None
    chips = [m[2] for line in lines if (m := _CHIP.match(line))]
    cards = _cards(found)
    seen = tuple(
        SeenGpu(
            name=_with_chip(m[2], chips[n : n + 1]),
            device=int(m[1] or 0),
            total_mib=float(m[3]),
            free_mib=float(m[4]),
        )
        for n, m in enumerate(found.values())
        if m in cards
    )
    hosts = {i: m for i, line in enumerate(lines) if (m := _HOST.match(line))}
    around = {i for i, x in enumerate(lines) if any(p.match(x) for p in (_TITLE, _OTHER_DEVICE, _LOG)) or _is_start(x)}
    host = next(iter(hosts.values()), None)
    stated = Found(
        tool="llama-server --list-devices",
        seen=seen,
        cpu=Cpu(model=host[1]) if host else None,
        ram=Ram(total_gb=round(int(host[2]) / 1024, 2)) if host else None,
        backend="vulkan" if all("Vulkan" in m[0].partition(":")[0] for m in found.values()) else None,
    )
    return Claim(stated, frozenset(found) | frozenset(hosts) | around)


def read_cuda_init(lines: Sequence[str]) -> Claim | None:
    """Return the devices that a CUDA or HIP build of either engine prints at start."""
    found = {i: m for i, line in enumerate(lines) if (m := _STARTED.match(line))}
    if not found:
        return None
    counts = [int(m[1]) for line in lines if (m := _COUNT.search(line))]
    if len(counts) == 1 and counts[0] > len(found):
        raise unreadable(f"found {counts[0]} devices", f"it lists {len(found)} of them: paste all of its lines")
    chips = {m[1]: m[2] for line in lines if (m := _CHIP.match(line))}
    free = {m[1]: float(m[2]) for line in lines if (m := _USES.search(line))}
    seen = tuple(
        SeenGpu(
            name=_with_chip(m[2], [chips.get(m[1], "")]),
            device=int(m[1]),
            total_mib=float(m[3]) if m[3] else None,
            free_mib=free.get(m[1], float(m[4]) if m[4] else None),
        )
        for m in _cards(found)
    )
    return Claim(
        Found(tool="ggml_cuda_init", seen=seen), frozenset(found) | {i for i, x in enumerate(lines) if _is_start(x)}
    )


def read_vulkan_init(lines: Sequence[str]) -> Claim | None:
    """Return the devices that a Vulkan build of either engine prints at start, without sizes."""
    found = {i: m for i, line in enumerate(lines) if (m := _VULKAN.match(line))}
    if not found:
        return None
    once = _once(found.values())
    named = [m for m in once if gpu_rows(m[2]) or "uma: 1" not in m[0]]  # not what has no name of its own
    seen = tuple(SeenGpu(name=m[2], device=int(m[1])) for m in named or once)
    return Claim(
        Found(tool="ggml_vulkan", seen=seen, backend="vulkan"),
        frozenset(found) | {i for i, x in enumerate(lines) if _is_start(x)},
    )


def read_metal_init(lines: Sequence[str]) -> Claim | None:
    """Return the chip that a Metal build prints at start, and the memory of which macOS lends so much."""
    chips = {i: m for i, line in enumerate(lines) if (m := _METAL.match(line))}
    lent = next((int(m[1]) / 1000 for line in lines if (m := _LENT.match(line))), None)
    if not chips:
        return None
    m = next(iter(chips.values()))
    chip = f"Apple M{m[1]}{' ' + m[2] if m[2] else ''}"
    low, high = _LENT_OF_ALL
    sizes = [gb for gb in sold_with((m[2] or "").lower(), int(m[1])) if lent and low <= lent / gb / _THOUSANDS <= high]
    found = Found(
        tool="ggml_metal",
        gpus=(Gpu(name=chip),),
        cpu=Cpu(model=chip),
        ram=Ram(total_gb=float(sizes[0])) if len(sizes) == 1 else None,
        os="macos",
        notes=f"{sizes[0]} GB: taken as the memory, of which macOS lends {lent:.0f}" if len(sizes) == 1 else None,
    )
    return Claim(found, frozenset(chips) | {i for i, x in enumerate(lines) if _is_start(x)})


def _cards(devices: Mapping[int, re.Match[str]]) -> list[re.Match[str]]:
    """Return the devices; graphics without a name of their own only if there is no other.

    ROCm lists them under their processor's name, Vulkan as `AMD Radeon(TM) Graphics`.
    """
    once = _once(devices.values())
    return [m for m in once if not _NAMELESS.search(m[2])] or once


def _once(devices: Iterable[re.Match[str]]) -> list[re.Match[str]]:
    """Return the devices without those that a second log of the same machine lists again."""
    return list({(m[1], m[2]): m for m in devices}.values())


def _with_chip(name: str, chips: Sequence[str]) -> str:
    """Return a name with its chip if needed: all integrated Radeons share one name."""
    return f"{name} {chips[0]}" if chips and chips[0] and not gpu_key(name) else name


def _is_start(line: str) -> bool:
    return bool(_STARTING.match(line) or _STARTED.match(line))
