"""What runtimes print of the machine: device lists of SYCL, Intel, Vulkan and CUDA, Ollama's log, llama.cpp's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from service.engine.hardware import Cpu, Ram
from service.engine.hardware_text.cim import is_integrated
from service.engine.hardware_text.found import Claim, Found, SeenGpu, cut

# `| 0| [level_zero:gpu:0]|  Intel Arc A770 Graphics|  1.3|  512|  1024|  32|  16225243136|`, and of late `| 16225M|`.
_SYCL_ROW = re.compile(
    r"^\s*\|\s*(\d{1,2})\|\s*\[(?:level_zero|opencl|cuda|hip):gpu:\d{1,2}\]\|\s*(\S.{1,80}?)\s*\|"
    r".{0,120}?\|\s*(\d{9,15}|\d{3,6}(?=M))(M?)\|.{0,60}$"
)
_SYCL_FRAME = re.compile(r"^\s*(?:\||found \d{1,2} SYCL devices).{0,300}$", re.I)
# `[level_zero:gpu][level_zero:0] Intel(R) oneAPI Unified Runtime ..., Intel(R) Arc(TM) A770 Graphics 12.55.8 [1.3.2]`
_SYCL_LS = re.compile(
    r"^\s*\[(level_zero|opencl):(gpu|cpu)\](?:\[\w{1,20}:\d{1,2}\])?\s.{0,80}?, (\S.{2,80}?)\s"
    r"(?:OpenCL\s.{0,120}|\d{1,3}\.[\d.]{1,12}\s.{0,60})$",
    re.I,
)
# `xpu-smi discovery`, with a frame or without: `| 0         | Device Name: Intel(R) Arc(TM) A770 Graphics   |`.
_XPU_NAME = re.compile(r"^[\s|]*(?:\d{1,2}[\s|]+)?Device Name: (\S.{2,80}?)[\s|]*$")
_XPU_PAIR = re.compile(r"^ {2,}(?:\d{1,2} {5,})?[A-Z][\w /-]{2,60}: .{0,80}$")
_XPU_SIZE = re.compile(r"^[\s|]*Memory Physical Size: ([\d.]{3,12}) MiB[\s|]*$")
_XPU_LINE = re.compile(
    r"^\s*(?:\+[-=+]{20,}\+|\|.{40,200}\||Device ID\s+Device Information)\s*$|^.{0,80}\bxpu-smi\b.{0,80}$"
)
# CUDA's sample deviceQuery: `Device 0: "NVIDIA GeForce GTX 1050 Ti"`, `Total amount of global memory: 4038 MBytes (…)`.
_QUERY_NAME = re.compile(r'^\s*Device (\d{1,2}): "(.{3,80})"\s*$')
_QUERY_SIZE = re.compile(r"^\s*Total amount of global memory:\s+(\d{3,7}) MBytes\b.{0,40}$")
_QUERY_LINE = re.compile(
    r"^ {2,}[A-Z(][\w ()/,-]{5,60}(?::|\s{4,}|Multiprocessors).{0,120}$|^.{0,120}/deviceQuery.{0,60}$"
)
# A GPU in Ollama's log, also cut off in front or wrapped: `id=GPU-… library=cuda … name="NVIDIA A10G" total="22 GiB"`.
_OLLAMA = re.compile(
    r"(?:(?:\bid=(\S{1,60})\s[^\n]{0,80}?)?\blibrary=\w|\bgpu=(GPU-\S{1,60})\s)"
    r"[^\"]{0,200}?\b(?:name|description)=\"([^\"\n]{2,100})\"(?:[^\"]{0,200}?\btotal=\"([\d.]{1,8}) GiB\b.{0,300})?"
)
_OLLAMA_RAM = re.compile(r"\bmsg=\"system memory\" total=\"([\d.]{1,8}) GiB\"")
_NUMBERS_OF_CHIP = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")  # in place of a name
_OLLAMA_LINE = re.compile(
    r"^(?:time=\S+ level=|\[(?:GPU-[\w-]+|GIN)\]|calling \w+|device count|CUDA driver version|releasing |dlsym:)"
    r".{0,900}$"
)
# `using device CUDA0 (NVIDIA GeForce RTX 3090) (0000:01:00.0) - 23871 MiB free`
_USING = re.compile(
    r"^.{0,80}?\busing\s+device\s+(?:CUDA|ROCm|Vulkan|SYCL|Metal|MTL)(\d{0,2}) \((.{2,80}?)\)"
    r"(?: \([^()]{1,40}\))? - (\d{1,8}) MiB free\b.{0,20}$",
    re.I,
)
# `register_device: registered device CPU (12th Gen Intel(R) Core(TM) i7-1260P)`
_REGISTERED = re.compile(r"^.{0,80}?\bregistered\s+device\s+(\w{3,12})\s+\((.{2,80})\)\s*$", re.I)
# ComfyUI: `Device: cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync`, `Total VRAM 24564 MB, total RAM 65277 MB`
_COMFY = re.compile(r"^\s*Device: (?:cuda|xpu):(\d{1,2}) (.{3,80}?)(?: : \w{3,20})?\s*$", re.I)
_COMFY_MEMORY = re.compile(r"^\s*Total VRAM (\d{3,7}) MB, total RAM (\d{3,8}) MB\s*$", re.I)
_SERVER_LINE = re.compile(
    r"^\s*(?:INFO|WARN|VERB|ERR)\s{0,8}\[.{1,60}\].{0,900}$"
    r"|^\s*\w{3,8}: using device \w{3,8} - \d{1,8} MiB free\s*$"
    r"|^\s*(?:llama|ggml|whisper|register)_\w{2,40}:(?!.*registered\s+device).{0,300}$"
)

_PROPERTY = re.compile(r"^\s*(deviceType|deviceName)\s*= (\S.{0,120})$")
_NUMBERED = re.compile(r"^\s*GPU id : (\d{1,2}) \((\S.{2,120})\)(?: \[.{0,80}\])?:?\s*$")
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


def read_sycl(lines: Sequence[str]) -> Claim | None:
    """Return the GPUs, and the CPU, of `sycl-ls` or of the table that a SYCL build prints."""
    rows = {i: m for i, line in enumerate(lines) if (m := _SYCL_ROW.match(line))}
    if rows:
        seen = tuple(
            SeenGpu(name=m[2], device=int(m[1]), total_mib=float(m[3]) / (1 if m[4] else 1 << 20))
            for m in rows.values()
        )
        frame = {i for i, line in enumerate(lines) if _SYCL_FRAME.match(line)}
        return Claim(Found(tool="SYCL", seen=seen, backend="sycl"), frozenset(rows) | frame)
    listed = {i: m for i, line in enumerate(lines) if (m := _SYCL_LS.match(line))}
    names = [m[3] for m in listed.values() if m[1].lower() == "level_zero" and m[2].lower() == "gpu"]
    if not names:
        return None
    cpu = next((Cpu(model=m[3].strip()) for m in listed.values() if m[2].lower() == "cpu"), None)
    command = {i for i, line in enumerate(lines) if line.strip().endswith("sycl-ls")}
    found = Found(tool="sycl-ls", seen=tuple(SeenGpu(name=n, device=i) for i, n in enumerate(names)), cpu=cpu)
    return Claim(found, frozenset(listed) | command)


def read_xpu_smi(lines: Sequence[str]) -> Claim | None:
    """Return the GPUs of `xpu-smi discovery`; integrated ones only if there is no other."""
    names = {i: m[1] for i, line in enumerate(lines) if (m := _XPU_NAME.match(line))}
    if not names:
        return None
    sizes = [next((float(m[1]) for x in block if (m := _XPU_SIZE.match(x))), None) for block in cut(lines, names)]
    seen = [
        SeenGpu(name=name, device=n, total_mib=size)
        for n, (name, size) in enumerate(zip(names.values(), sizes, strict=True))
    ]
    own = tuple(card for card in seen if not is_integrated(card.name))
    inside = range(max(0, min(names) - 1), len(lines)) if not any("|" in lines[i] for i in names) else ()
    pairs = {i for i in inside if _XPU_PAIR.match(lines[i])}
    frame = {i for i, line in enumerate(lines) if _XPU_LINE.match(line)}
    return Claim(Found(tool="xpu-smi", seen=own or tuple(seen)), frozenset(names) | pairs | frame)


def read_device_query(lines: Sequence[str]) -> Claim | None:
    """Return the GPUs that CUDA's sample `deviceQuery` lists."""
    names = {i: m for i, line in enumerate(lines) if (m := _QUERY_NAME.match(line))}
    sizes = [float(m[1]) for line in lines if (m := _QUERY_SIZE.match(line))]
    if not names or len(names) != len(sizes):
        return None
    seen = tuple(
        SeenGpu(name=m[2], device=int(m[1]), total_mib=size) for m, size in zip(names.values(), sizes, strict=True)
    )
    frame = {i for i, line in enumerate(lines) if _QUERY_LINE.match(line)}
    return Claim(Found(tool="deviceQuery", seen=seen), frozenset(names) | frame)


def read_comfyui(lines: Sequence[str]) -> Claim | None:
    """Return the GPUs and the RAM in ComfyUI's log."""
    devices = {i: m for i, line in enumerate(lines) if (m := _COMFY.match(line))}
    memory = {i: m for i, line in enumerate(lines) if (m := _COMFY_MEMORY.match(line))}
    if not devices:
        return None
    total = next(iter(memory.values()), None)
    size = float(total[1]) if total and len(devices) == 1 else None
    found = Found(
        tool="ComfyUI",
        seen=tuple(SeenGpu(name=m[2], device=int(m[1]), total_mib=size) for m in devices.values()),
        ram=Ram(total_gb=round(int(total[2]) / 1024, 2)) if total else None,
    )
    return Claim(found, frozenset(devices) | frozenset(memory))


def read_ollama(lines: Sequence[str]) -> Claim | None:
    """Return the GPUs in Ollama's log, each once, and the RAM."""
    text, taken, seen = "\n".join(lines), set[int](), dict[str, SeenGpu]()
    for m in _OLLAMA.finditer(text):
        if not _NUMBERS_OF_CHIP.fullmatch(m[3]):
            total = float(m[4]) * 1024 if m[4] else None
            seen.setdefault(m[1] or m[2] or m[3], SeenGpu(name=m[3], total_mib=total))
            first = text.count("\n", 0, m.start())
            taken |= set(range(first, first + m[0].count("\n") + 1))
    taken |= {i for i, line in enumerate(lines) if _OLLAMA_LINE.match(line)}
    said = _OLLAMA_RAM.search(text)
    ram = Ram(total_gb=float(said[1])) if said else None
    return Claim(Found(tool="ollama", seen=tuple(seen.values()), ram=ram), frozenset(taken)) if seen else None


def read_loading(lines: Sequence[str]) -> Claim | None:
    """Return the devices that llama.cpp says it uses while it loads a model, and the CPU that it registers."""
    using = {i: m for i, line in enumerate(lines) if (m := _USING.match(line))}
    registered = {i: m for i, line in enumerate(lines) if (m := _REGISTERED.match(line))}
    others = {i for i, line in enumerate(lines) if _SERVER_LINE.match(line)}
    if not (using or registered or others):
        return None
    cpu = next((Cpu(model=m[2]) for m in registered.values() if m[1].upper() == "CPU"), None)
    cards = [(m[1], m[2]) for m in using.values() if m[2] not in ("Apple", "CPU")]
    cards = cards or [(m[1], m[2]) for m in registered.values() if m[1].upper() not in ("CPU", "BLAS", "RPC")]
    seen = tuple(SeenGpu(name=name, device=n) for n, (_, name) in enumerate(cards))
    return Claim(Found(tool="llama-server log", seen=seen, cpu=cpu), frozenset(using) | frozenset(registered) | others)


class _Device(NamedTuple):
    name: str
    kind: str
    n_bytes: int


def read_vulkaninfo(lines: Sequence[str]) -> Claim | None:
    """Return the GPUs, without software renderers, and without integrated ones next to others.

    Memory is that of the heaps on the device, where the whole output is given.
    """
    properties = [i for i, line in enumerate(lines) if _PROPERTY.match(line) or _NUMBERED.match(line)]
    numbered = {m[1]: _Device(m[2], "", 0) for line in lines if (m := _NUMBERED.match(line))}
    devices = list(_devices(lines)) or list(numbered.values())
    if not devices:
        return None
    gpus = [one for one in devices if one.kind.endswith("_DISCRETE_GPU")]
    gpus = gpus or [one for one in devices if not one.kind.endswith("_TYPE_CPU")]
    seen = tuple(
        SeenGpu(
            name=_DRIVER.sub("", _IN_WSL.sub(r"\1", one.name)),
            total_mib=one.n_bytes / 2**20 if one.n_bytes and one.kind.endswith("_DISCRETE_GPU") else None,
        )
        for one in gpus
    )
    start = next((i for i, line in enumerate(lines) if line.strip() == "VULKANINFO"), properties[0] - 6)
    taken = frozenset(i for i, line in enumerate(lines) if i >= start - 1 and _LINE.match(line))
    return Claim(Found(tool="vulkaninfo", seen=seen), taken | frozenset(properties))


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
