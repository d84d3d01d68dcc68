"""Windows: PowerShell's Get-CimInstance Win32_VideoController, Win32_Processor and Win32_PhysicalMemory.

Both output forms: `Name : value` lists, and tables under dashes. `AdapterRAM` has 32 bits and stops at 4 GiB, so it is
used only if it is below that and the catalogue does not know the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from service.engine.catalogue.names import gpu_rows
from service.engine.hardware import Cpu, Ram
from service.engine.hardware_text.found import Claim, Found, SeenGpu, whole

_PAIR = re.compile(r"^([A-Za-z]\w{1,50})\s*: ?(.{0,300})$")
_DASHES = re.compile(r"^-{2,}(?:\s+-{2,})*\s*$")
_COLUMNS = frozenset((
    "Name", "Caption", "AdapterRAM", "DriverVersion", "NumberOfCores", "NumberOfLogicalProcessors", "SocketDesignation",
    "Capacity", "Speed", "ConfiguredClockSpeed", "DeviceLocator", "BankLocator", "SMBIOSMemoryType", "VideoProcessor",
))  # fmt: skip
_NUMBERS = _COLUMNS & frozenset(
    ("AdapterRAM", "NumberOfCores", "NumberOfLogicalProcessors", "Capacity", "Speed", "ConfiguredClockSpeed")
)
_OURS = frozenset(("AdapterRAM", "NumberOfCores", "Capacity", "ConfiguredClockSpeed", "VideoProcessor"))
_CAP = (1 << 32) - (1 << 20)
_KINDS = {"20": "DDR", "21": "DDR2", "24": "DDR3", "26": "DDR4", "34": "DDR5", "35": "LPDDR5", "30": "LPDDR4"}
_PROCESSOR = re.compile(r"\b(?:Ryzen|EPYC|Xeon|Core|Threadripper|Celeron|Pentium|Athlon)\b.{0,80}")
_INTEGRATED = re.compile(
    r"microsoft (?:basic|remote)|virtual|parsec|meta |uhd graphics|iris|hd graphics|radeon\(?(?:tm)?\)? graphics$"
    r"|idd\b|vmware|intel\(?(?:r|tm)?\)? arc(?:\(tm\))? graphics$"
    # code names of processors, by which neofetch lists graphics without a name of their own
    r"|\b(?:alder|amber|arrow|coffee|comet|elkhart|gemini|ice|jasper|kaby|lunar|meteor|panther|raptor|rocket|sky|tiger"
    r"|twin|whiskey) ?lake\b|\bati (?:barcelo|cezanne|hawkpoint|lucienne|mendocino|phoenix|picasso|raphael|raven"
    r"|rembrandt|renoir)\d?\b",
    re.I,
)
_PLACES = ("BankLabel", "BankLocator", "DeviceLocator")
_CHANNEL = re.compile(r"CHANNEL[ _-]{0,2}([A-Z0-9])|DIMM[ _-]{0,2}([A-P])\d?\b", re.I)


def read_cim(lines: Sequence[str]) -> Claim | None:
    """Return GPUs, CPU and RAM of Get-CimInstance; integrated graphics and virtual adapters are left out."""
    records, taken = _lists(lines)
    tables, table_lines = _tables(lines, taken)
    records += tables
    ours = [record for record in records if _OURS & record.keys() or gpu_rows(_name(record))]
    if not any(_OURS & record.keys() for record in ours):
        return None
    gpus = [r for r in ours if "NumberOfCores" not in r and "Capacity" not in r and _name(r) and not _is_processor(r)]
    cpus = [r for r in ours if "NumberOfCores" in r]
    modules = [r for r in ours if r.get("Capacity", "").isdecimal()]
    found = Found(
        tool="Get-CimInstance",
        seen=tuple(_gpu(r) for r in gpus if not is_integrated(_name(r))),
        cpu=_cpu(cpus) if cpus else None,
        ram=_ram(modules) if modules else None,
        os="windows",
    )
    return Claim(found, frozenset(taken | table_lines))


def is_integrated(name: str) -> bool:
    """Return whether an adapter is integrated graphics or virtual."""
    return _INTEGRATED.search(name) is not None


def _lists(lines: Sequence[str]) -> tuple[list[dict[str, str]], set[int]]:
    """Return records of `Key : value` lines, one per paragraph."""
    records: list[dict[str, str]] = []
    taken: set[int] = set()
    record: dict[str, str] = {}
    members: list[int] = []
    for i, line in enumerate([*lines, ""]):
        m = _PAIR.match(line)
        if m is None or m[1] in record:
            if record.keys() & _COLUMNS:
                records.append(record)
                taken.update(members)
            record, members = {}, []
        if m is not None:
            record[m[1]] = m[2].strip()
            members.append(i)
    return records, taken


def _tables(lines: Sequence[str], taken: set[int]) -> tuple[list[dict[str, str]], set[int]]:
    """Return records of tables: names, dashes below them, then rows whose cells are aligned with the dashes."""
    records: list[dict[str, str]] = []
    read: set[int] = set()
    for i in range(1, len(lines)):
        if i in taken or not _DASHES.match(lines[i]) or not set(lines[i - 1].split()) & _COLUMNS:
            continue
        spans = [m.start() for m in re.finditer(r"-+", lines[i])]
        names = lines[i - 1].split()
        if len(names) != len(spans):
            continue
        read |= {i - 1, i}
        row = i + 1
        while row < len(lines) and lines[row].strip():
            records.append(_cells(lines[row], names, spans))
            read.add(row)
            row += 1
    return records, read


def _cells(line: str, names: Sequence[str], spans: Sequence[int]) -> dict[str, str]:
    """Return the cells of a row. Texts start where their dashes do; numbers end there and may extend further left."""
    cells: dict[str, str] = {}
    for name, start in reversed(list(zip(names, spans, strict=True))):
        left, _, last = line.rstrip().rpartition(" ")
        if name in _NUMBERS:
            is_here = last.isdecimal() and len(line.rstrip()) > start
            cells[name] = last if is_here else ""
            line = left if is_here else line
        else:
            cells[name] = line[start:].strip()
            line = line[:start]
    return cells


def _name(record: Mapping[str, str]) -> str:
    return record.get("Name") or record.get("Caption") or record.get("VideoProcessor", "")


def _is_processor(record: Mapping[str, str]) -> bool:
    return "AdapterRAM" not in record and bool(_PROCESSOR.search(_name(record)))


def _gpu(record: Mapping[str, str]) -> SeenGpu:
    name, ram = _name(record), record.get("AdapterRAM", "")
    is_below_cap = ram.isdecimal() and 1 << 28 <= int(ram[:12]) < _CAP
    return SeenGpu(name=name, total_mib=int(ram) / 2**20 if is_below_cap and not gpu_rows(name) else None)


def _cpu(records: Sequence[Mapping[str, str]]) -> Cpu:
    cores = [int(r["NumberOfCores"]) for r in records if r["NumberOfCores"].isdecimal() and len(r["NumberOfCores"]) < 5]
    return Cpu(model=_name(records[0]) or None, sockets=len(records), physical_cores=sum(cores) or None)


def _ram(modules: Sequence[Mapping[str, str]]) -> Ram:
    speeds = [whole(m.get("ConfiguredClockSpeed")) or whole(m.get("Speed")) for m in modules]
    known = [speed for speed in speeds if speed]
    places = [_CHANNEL.search(" ".join(m.get(key, "") for key in _PLACES)) for m in modules]
    channels = {(p[1] or p[2]).upper() for p in places if p}
    return Ram(
        total_gb=sum(int(m["Capacity"][:15]) for m in modules) / 2**30,
        type=_KINDS.get(modules[0].get("SMBIOSMemoryType", "")),
        channels=len(channels) if all(places) else None,
        mts=min(known) if known else None,
    )
