"""Windows: the reports of dxdiag, msinfo32, systeminfo and HWiNFO.

dxdiag lists a card once for each monitor on it, so cards of one name are taken as one. msinfo32's `Adapter RAM` is
32 bits wide: no size is taken from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from service.engine.hardware import Cpu, Ram
from service.engine.hardware_text.cim import is_integrated
from service.engine.hardware_text.found import Claim, Found, SeenGpu

_PAIR = re.compile(r"^\s*([A-Z][A-Za-z0-9 ()/'-]{1,40}?): ?(.{0,300})$")
_CARD_MEMORY = re.compile(r"(\d{1,7}) MB")
_PROCESSORS = re.compile(r"(.{3,120}?)\s+\(\d{1,4} CPUs?\).{0,40}")
_MEMORY = re.compile(r"(\d{3,8})MB RAM")
_SECTION = re.compile(r"-{5,}|[A-Z][A-Za-z/ ]{3,30} (?:Devices|Notes|Levels|Filters|Information|Drives)")
_ENDS = re.compile(r"(?:DirectShow Filters|EVR Power Information|Diagnostics|System Devices)\s*")
_LEAST_MIB = 1_024  # an adapter with less dedicated memory only draws the desktop

_ITEM = re.compile(r"^\s*([A-Z][A-Za-z ()/.-]{2,60}?)(?:\t+| {2,}|(?<=Processor) )\s*(\S.{0,300})$")
_CORES = re.compile(r"(.{3,160}?), \d{3,5} Mhz, (\d{1,4}) Core\(s\).{0,60}", re.I)
_INSTALLED = re.compile(r"(\d{1,5})(?:[.,](\d{1,2}))? (GB|TB)")
_TOTAL = re.compile(r"\s*Total Physical Memory:\s+([\d., \u202f]{3,12}) MB\s*")
_SYSTEMINFO = re.compile(
    r"\s*(?:(?:Host Name|OS [A-Z]\w+(?: Type)?|Registered \w+|Product ID|Original Install Date|System \w+(?: Time)?"
    r"|Processor\(s\)|BIOS Version|Windows Directory|(?:Input|System) Locale|Time Zone"
    r"|(?:Total|Available) Physical Memory|Virtual Memory: [A-Z]\w+(?: \w+)?|Page File Location\(s\)"
    r"|Domain|Logon Server|Hotfix\(s\)|Network Card\(s\)"
    r"|Hyper-V Requirements|Virtualization-based security):(?:\s.{0,300})?|\s{20}\s*\S.{0,300})"
)
_HWINFO = re.compile(
    r"\s*(CPU Brand Name|Number Of Processor Cores|Total Memory Size|Video Chipset|Video Memory"
    r"|Number Of Processor Packages \(Physical\)):\s+(\S.{0,200})"
)
_GBYTES = re.compile(r"(\d{1,5}) GBytes")


def read_systeminfo(lines: Sequence[str]) -> Claim | None:
    """Return the RAM from `systeminfo`, which names neither the processor's model nor cards."""
    totals = [m for line in lines if (m := _TOTAL.fullmatch(line))]
    if not totals:
        return None
    ram = Ram(total_gb=round(int(re.sub(r"\D", "", totals[0][1])) / 1024, 2))
    taken = frozenset(i for i, line in enumerate(lines) if _SYSTEMINFO.fullmatch(line))
    return Claim(Found(tool="systeminfo", ram=ram, os="windows"), taken)


def read_hwinfo(lines: Sequence[str]) -> Claim | None:
    """Return cards, CPU and RAM from HWiNFO's text report, which takes all lines between its first and last we know."""
    items = [(i, m[1], m[2].strip()) for i, line in enumerate(lines) if (m := _HWINFO.fullmatch(line))]
    values = {key: value for _, key, value in reversed(items)}
    if not {"CPU Brand Name", "Total Memory Size"} <= values.keys():
        return None
    cards: list[SeenGpu] = []
    for _, key, value in items:
        if key == "Video Chipset":
            cards.append(SeenGpu(name=value))
        elif key == "Video Memory" and cards and (size := _GBYTES.match(value)):
            cards[-1] = SeenGpu(name=cards[-1].name, total_mib=float(size[1]) * 1024)
    sockets = values.get("Number Of Processor Packages (Physical)", "")
    cores = values.get("Number Of Processor Cores", "")
    size = _GBYTES.match(values["Total Memory Size"])
    found = Found(
        tool="HWiNFO",
        seen=tuple(card for card in cards if not is_integrated(card.name)),
        cpu=Cpu(
            model=values["CPU Brand Name"],
            sockets=int(sockets) if sockets.isdecimal() else None,
            physical_cores=int(cores) if cores.isdecimal() else None,
        ),
        ram=Ram(total_gb=float(size[1])) if size else None,
        os="windows",
    )
    heads = [i for i, line in enumerate(lines) if line.strip() == "[Current Computer]" or "HWiNFO" in line]
    return Claim(found, frozenset(range(min([*heads, items[0][0]]), items[-1][0] + 1)))


def read_dxdiag(lines: Sequence[str]) -> Claim | None:
    """Return cards, CPU and RAM from a dxdiag report, whole or partial, without adapters that only draw the desktop."""
    pairs = [(i, m[1], m[2].strip()) for i, line in enumerate(lines) if (m := _PAIR.match(line))]
    cpu = next((m[1] for _, key, value in pairs if key == "Processor" and (m := _PROCESSORS.fullmatch(value))), None)
    ram = next((m[1] for _, key, value in pairs if key == "Memory" and (m := _MEMORY.fullmatch(value))), None)
    cards = list(_cards(pairs))
    if not cards and not (cpu and ram):
        return None
    dedicated = [card for card in cards if card.total_mib is None or card.total_mib >= _LEAST_MIB]
    names = [card.name for card in dedicated]
    twice = next((name for name in names if names.count(name) > 1), None)
    found = Found(
        tool="dxdiag",
        seen=tuple({card.name: card for card in dedicated}.values()),
        cpu=Cpu(model=cpu) if cpu else None,
        ram=Ram(total_gb=int(ram) / 1024) if ram else None,
        os="windows",
        notes=f"dxdiag lists a card for each of its monitors: {twice} is taken as one" if twice else None,
    )
    return Claim(found, _report(lines, pairs[0][0]))


def _cards(pairs: Sequence[tuple[int, str, str]]) -> Iterator[SeenGpu]:
    name = ""
    for _, key, value in pairs:
        if key == "Card name":
            name = value
        elif key == "Dedicated Memory" and name:
            size = _CARD_MEMORY.match(value)
            yield SeenGpu(name=name, total_mib=float(size[1]) if size else None)
            name = ""
    if name and not any(key == "Dedicated Memory" for _, key, _ in pairs) and not is_integrated(name):
        yield SeenGpu(name=name)  # of a report in parts


def _report(lines: Sequence[str], first: int) -> frozenset[int]:
    """Return the lines of a report: pairs and headings; all that follows, if it is complete."""
    taken = {i for i, line in enumerate(lines) if i >= first and (_PAIR.match(line) or _ENDS.fullmatch(line))}
    whole = any(_ENDS.fullmatch(lines[i]) for i in taken)
    taken |= {i for i, line in enumerate(lines) if _SECTION.fullmatch(line.strip())}
    return frozenset(taken | set(range(first, len(lines)))) if whole else frozenset(taken)


def read_msinfo(lines: Sequence[str]) -> Claim | None:
    """Return cards, CPU and RAM from msinfo32's summary and its page on displays."""

    items = [(i, m[1], m[2].strip()) for i, line in enumerate(lines) if (m := _ITEM.match(line))]
    cpus = [m for _, key, value in items if key == "Processor" and (m := _CORES.fullmatch(value))]
    stated = [value for _, key, value in items if key.startswith("Installed Physical Memory")]
    sizes = [m for value in stated if (m := _INSTALLED.match(value))]
    keys = {key for _, key, _ in items}
    names = [value for _, key, value in items if key == "Adapter Description"] if "Adapter RAM" in keys else []
    if not cpus and not sizes and not names:
        return None
    found = Found(
        tool="msinfo32",
        seen=tuple(SeenGpu(name=name) for name in names if not is_integrated(name)),
        cpu=Cpu(model=cpus[0][1], sockets=len(cpus), physical_cores=sum(int(m[2]) for m in cpus)) if cpus else None,
        ram=Ram(total_gb=_gigabytes(sizes[0])) if sizes else None,
        os="windows",
    )
    empty = {i for i, line in enumerate(lines) if line.strip() == "Installed Drivers"}
    return Claim(found, frozenset(i for i, _, _ in items) | empty)


def _gigabytes(size: re.Match[str]) -> float:
    return float(f"{size[1]}.{size[2] or 0}") * (1024 if size[3] == "TB" else 1)
