"""nvidia-smi: its table (drivers 3xx to 6xx), its list (`-L`) and its CSV (`--query-gpu=… --format=csv`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from service.engine.catalogue.names import MIG, MIG_EIGHTHS, gpu_rows, memory_slices
from service.engine.hardware import Gpu
from service.engine.hardware_text.cards import most
from service.engine.hardware_text.found import Claim, Found, SeenGpu, names_of

TOOL = "nvidia-smi"
_BUS = re.compile(r"\b[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9]\b(?:\s+(On|Off))?")
_HEAD = re.compile(r"^\s*(\d{1,3})\s+(\S.*?)\s*$")
_MODE = re.compile(r"\s+(?:On|Off|WDDM|TCC|MCDM|N/A|ERR!)$")
_MEMORY = re.compile(r"(\d{1,7})\s?MiB\s*/\s*(\d{1,7})\s?MiB")
_DATE = re.compile(r"^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} [ \d]\d \d\d:\d\d:\d\d.{0,12}\d{4}\s*$")
_FRAME = re.compile(r"^\s*[#>]?\s*[|+]")

_LISTED = re.compile(r"^\s*GPU (\d{1,3}): (.{1,120}?) \(UUID: (GPU-[0-9a-fA-F-]{8,64})\)\s*$")
# The same list as bug reports copy it: `- **GPU 0:** NVIDIA GeForce RTX 5090 | 32607 MiB | driver 595.71.05`.
_REPORTED = re.compile(
    r"^[\s>*-]*(?:GPU models and configuration\s?: )?GPU (\d{1,3}):"
    r"(?:\*\*)?\s+([A-Za-z][^,;]{1,100}?)(?:\s*\|\s*(\d{1,7}) MiB\b.{0,200})?\s*$"
)
_COUNTED = re.compile(r"^\D{0,20}\b(\d{1,2})\b.{0,3}GPU.{0,20}$")  # `3 GPU(s) detected`, in any language
# Written by hand: `GPU 1: RX 6800, 64GB RAM`, `GPU 1: RTX 3090 (PCIe 4.0 x8)`.
_AND_MORE = re.compile(r"^[\s>*-]*GPU \d{1,3}:[^|]{1,100}(?:[,;]|\bx\d{1,2}\b|pci-?e\s(?:gen\s?)?[1-6]|oculink)", re.I)
_OF_REPORTED = re.compile(r"^\s+[-*]\s+\*\*(?:Power|PCIe):\*\*.{0,300}$")
_NEGOTIATED = re.compile(r"\bx(\d{1,2}) lanes negotiated \(GPU max x\d{1,2}, Gen up to (\d)\)")
_SLICE = re.compile(rf"^\s*({MIG})\S{{0,20}} +Device +\d+: \(UUID: (?P<uuid>MIG-[^)]{{1,100}})\)\s*$", re.I)
_MIG_ROW = re.compile(r"^\|\s+(\d{1,3})(?:\s+\d{1,3}){3}\s+\|\s+(\d{1,7})MiB /\s*(\d{1,7})MiB")
_ONE_SLICE = (
    "cut up by MIG: the largest slice of each GPU is counted; for more, which drivers from R570 on show a program, "
    "write how many there are, as in `2x A100 MIG 3g.20gb`"
)

# Other cells than names: numbers with units, identifiers, bus ids, states.
_CELL = re.compile(
    r"\d[\d.]{0,12}(?: (?:MiB|%|W|MHz|C))?|GPU-[\w-]{4,80}|[0-9A-F]{4,8}:[0-9A-F:.]{4,12}|\[?N/A\]?|\[Not Supported\]"
    r"|Enabled|Disabled|Default|P\d{1,2}|[\d.]{3,12}",
    re.I,
)
_SAME_SIZE = 0.01
_MIB = re.compile(r"^(\d{1,7})(?: MiB)?$")
_COLUMN = re.compile(r"\s*\[[^\]]*\]$")
_UUID = re.compile(r"^GPU-[0-9a-fA-F-]{8,64}$")
_HEADER_NAMES = ("name", "gpu_name", "index", "uuid", "gpu_uuid", "memory.total", "memory.used", "memory.free")


def read_table(lines: Sequence[str]) -> Claim | None:
    """Return the GPUs in an `nvidia-smi` table; of one cut up by MIG its largest slice. Memory in use is not free."""
    if none := frozenset(i for i, line in enumerate(lines) if line.strip() == "No devices were found"):
        return Claim(Found(tool=TOOL, no_gpu=True), none)
    if not any("NVIDIA-SMI" in line or _table_row(line) for line in lines):
        return None
    taken = frozenset(
        i for i, line in enumerate(lines) if _FRAME.match(line) or _DATE.match(line) or "NVIDIA-SMI" in line
    )
    seen: list[SeenGpu] = []
    is_mig = False
    for i in sorted(taken):
        is_mig = ("MIG devices" in lines[i]) or (
            is_mig and "Processes" not in lines[i] and "NVIDIA-SMI" not in lines[i]
        )
        row = _table_row(lines[i])
        if row is not None and not is_mig:
            seen.append(row)
        elif seen and seen[-1].total_mib is None and (m := _MEMORY.search(lines[i])):
            used, total = float(m[1]), float(m[2])
            seen[-1] = msgspec.structs.replace(seen[-1], total_mib=total, free_mib=max(total - used, 0.0))
    slices = [m for i in sorted(taken) if (m := _MIG_ROW.match(lines[i]))]
    seen = [_largest_slice(gpu, slices) for gpu in seen]
    return Claim(Found(tool=TOOL, seen=tuple(seen), notes=_ONE_SLICE if slices else None), taken)


def _largest_slice(gpu: SeenGpu, slices: Sequence[re.Match[str]]) -> SeenGpu:
    """Return the largest slice of a GPU, by its memory; the GPU itself if it has none, or its name is not known."""
    sizes = [(float(m[3]), float(m[2])) for m in slices if int(m[1]) == gpu.index]
    names = names_of(gpu)
    rows = gpu_rows(names[0], gpu.total_mib and gpu.total_mib / 1024) if len(names) == 1 else ()
    if not sizes or not rows or not gpu.total_mib:
        return gpu
    total, used = max(sizes)
    in_all = memory_slices(rows[0])
    part = max(1, round(in_all * total / gpu.total_mib))
    gb = round(part * (rows[0].vram_gib or gpu.total_mib / 1024) / in_all)
    of_seven = next(
        (n for n, eighths in MIG_EIGHTHS.items() if eighths == part), part - 1
    )  # `nvidia-smi -L` says which
    compute = of_seven if in_all == max(MIG_EIGHTHS.values()) else part
    name = f"{names[0]} MIG {compute}g.{gb}gb"
    return msgspec.structs.replace(gpu, name=name, total_mib=total, free_mib=max(total - used, 0.0))


def _table_row(line: str) -> SeenGpu | None:
    cells = line.split("|")
    if len(cells) < 3:
        return None
    head, bus = _HEAD.match(cells[1]), _BUS.search(cells[2])
    if head is None or bus is None:
        return None
    name = _MODE.sub("", head[2]).strip()
    return SeenGpu(name=name, index=int(head[1]), display=True if bus[1] == "On" else None)


def read_list(lines: Sequence[str]) -> Claim | None:
    """Return the GPUs of `nvidia-smi -L`, with their UUIDs; of one that MIG cuts up, its largest slice."""
    seen: list[SeenGpu] = []
    largest: dict[int, float] = {}  # GB of a GPU's slice
    taken: set[int] = set()
    for i, line in enumerate(lines):
        if m := _LISTED.match(line):
            seen.append(SeenGpu(name=m[2], index=int(m[1]), uuid=m[3]))
        elif seen and (m := _SLICE.match(line)):
            n, size = len(seen) - 1, float(m["gb"])
            if size > largest.get(n, 0):
                whole = seen[n].name.partition(" MIG ")[0]
                seen[n] = msgspec.structs.replace(seen[n], name=f"{whole} {m[1]}", uuid=m["uuid"])
                largest[n] = size
        else:
            continue
        taken.add(i)
    if not seen:
        return _read_report(lines)
    return Claim(Found(tool=TOOL, seen=tuple(seen), notes=_ONE_SLICE if largest else None), frozenset(taken))


def _read_report(lines: Sequence[str]) -> Claim | None:
    """Return the GPUs in a report that copies the list, with memory and link if stated."""
    found = {i: m for i, line in enumerate(lines) if (m := _REPORTED.match(line)) and gpu_rows(m[2])}
    if not found or any(_AND_MORE.match(line) for line in lines):
        return None
    taken, seen = set(found), list[SeenGpu]()
    if (above := min(found) - 1) >= 0 and (m := _COUNTED.match(lines[above])) and int(m[1]) == len(found):
        taken.add(above)
    for i, m in found.items():
        gpu = SeenGpu(name=m[2], index=int(m[1]), total_mib=float(m[3]) if m[3] else None)
        while i + 1 < len(lines) and _OF_REPORTED.match(lines[i + 1]):
            i += 1
            taken.add(i)
            if link := _NEGOTIATED.search(lines[i]):
                gpu = msgspec.structs.replace(gpu, pcie=f"{link[2]}.0 x{link[1]}")
        seen.append(gpu)
    return Claim(Found(tool=TOOL, seen=tuple(seen)), frozenset(taken))


def read_csv(lines: Sequence[str]) -> Claim | None:
    """Return the GPUs of `nvidia-smi --query-gpu=… --format=csv`, with or without header and units."""
    columns: list[str] | None = None
    taken: set[int] = set()
    seen: list[SeenGpu] = []
    for i, line in enumerate(lines):
        cells = [cell.strip() for cell in line.split(",")]
        names = [_COLUMN.sub("", cell).lower() for cell in cells]
        if sum(name in _HEADER_NAMES for name in names) >= 2 or names == ["name"]:
            columns = names
            taken.add(i)
        elif columns is not None and len(cells) == len(columns):
            seen.append(_row(dict(zip(columns, cells, strict=True))))
            taken.add(i)
        elif columns is None and (row := _headless(cells)) is not None:
            seen.append(row)
            taken.add(i)
    return Claim(Found(tool=TOOL, seen=tuple(seen)), frozenset(taken)) if seen else None


def _row(values: Mapping[str, str]) -> SeenGpu:
    total, used, free = (_mib(values.get(f"memory.{what}")) for what in ("total", "used", "free"))
    if free is None and total is not None and used is not None:
        free = max(total - used, 0.0)
    index = values.get("index", "")
    link = [values.get(f"pcie.link.{what}.max", "") for what in ("gen", "width")]
    return SeenGpu(
        name=values.get("name") or values.get("gpu_name") or "",
        index=int(index) if index.isdecimal() and len(index) < 4 else None,
        uuid=values.get("uuid") or values.get("gpu_uuid"),
        total_mib=total,
        free_mib=free,
        pcie=f"{link[0]}.0 x{link[1]}" if all(part.isdecimal() for part in link) else None,
        display=True if values.get("display_active", "").lower() == "enabled" else None,
    )


def _headless(cells: Sequence[str]) -> SeenGpu | None:
    """Read a row without header: a GPU's name and at least one memory size; of several, the largest is the total.

    Used and free memory cannot be told apart without a header, so what is free is left unknown. `RTX 3060, 5600` are
    a card and a processor: a size without a unit is one only where the card has it.
    """
    names = [cell for cell in cells if re.match(r"(?:NVIDIA|GeForce|Tesla|Quadro|TITAN|GRID|GTX|RTX)\b", cell)]
    sizes = [size for cell in cells if (size := _mib(cell)) is not None and (cell.endswith("MiB") or size >= 1024)]
    if len(names) != 1 or not sizes or not all(cell in names or _CELL.fullmatch(cell) for cell in cells):
        return None
    if not any(cell.endswith("MiB") for cell in cells) and not _has(names[0], max(sizes)):
        return None
    if (gb := most(Gpu(name=names[0]))) and max(sizes) > gb * 1024:  # `RTX 3090, 65536 MiB`: of RAM
        return None
    index = cells[0]
    uuids = [cell for cell in cells if _UUID.match(cell)]
    return SeenGpu(
        name=names[0],
        index=int(index) if index.isdecimal() and len(index) < 3 else None,
        uuid=uuids[0] if uuids else None,
        total_mib=max(sizes),
    )


def _has(name: str, mib: float) -> bool:
    """Return whether a card of that name has this much memory, as its driver or its maker counts."""
    sizes = [size for row in gpu_rows(name) for size in (row.driver_mib, (row.vram_gib or 0) * 1024) if size]
    return any(abs(mib - size) <= _SAME_SIZE * size for size in sizes)


def _mib(cell: str | None) -> float | None:
    m = _MIB.match(cell or "")
    return float(m[1]) if m else None
