"""Windows: the reports of dxdiag, msinfo32, systeminfo and HWiNFO, and what the task manager copies.

dxdiag lists a card once for each monitor on it, so cards of one name are taken as one. msinfo32's `Adapter RAM` is
32 bits wide: no size is taken from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from service.engine.hardware import Cpu, Ram
from service.engine.hardware_text.cim import is_integrated
from service.engine.hardware_text.found import Claim, Found, SeenGpu, whole
from service.engine.hardware_text.lexicon import SIZE, TYPE

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

_PAGE = re.compile(r"[\s#]*(CPU|Memory|[GN]PU(?: \d{1,2})?|Disk \d{1,2}(?: \([A-Z: ]{1,40}\))?|Ethernet|Wi-?Fi)\s*")
_PAGES_ITEM = re.compile(
    r"\s*(Base speed|Sockets|Cores|Logical processors|Virtualization|L[123] cache|Speed|Slots used|Form factor|Up time"
    r"|Hardware reserved|Utili[sz]ation|Processes|Threads|Handles|Available|Cached|Committed|Paged pool|Non-paged pool"
    r"|In use(?: \(Compressed\))?|Dedicated GPU memory|Shared GPU memory|GPU Memory|(?:GPU )?Temperature|Driver version"
    r"|Driver date|DirectX version|Physical location|3D|Copy|Compute_\d|Video (?:Encode|Decode|Processing)"
    r"|Capacity|Formatted|System disk|Page file|Type|Active time|Average response time|(?:Read|Write) speed"
    r"|Adapter name|DNS name|SSID|Connection type|IPv[46] address|Signal strength|Send|Receive)"
    r"(?:\s*:\s*|\s+|$)(.{0,100})",
    re.I,
)
_OF_ITS_OWN = (
    "base speed", "logical processors", "slots used", "dedicated gpu memory", "shared gpu memory", "formatted", "send",
)  # fmt: skip
_USED_OF = re.compile(r"(\d{1,4}(?:[.,]\d)?)\s?/\s?(\d{1,4}(?:[.,]\d)?) GB")
_MIB_A_GIB = 1024


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
    is_whole = any(_ENDS.fullmatch(lines[i]) for i in taken)
    taken |= {i for i, line in enumerate(lines) if _SECTION.fullmatch(line.strip())}
    return frozenset(taken | set(range(first, len(lines)))) if is_whole else frozenset(taken)


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


def read_task_manager(lines: Sequence[str]) -> Claim | None:
    """Return cards, CPU and RAM from the task manager's pages, without adapters that share the RAM."""
    pages = list(_pages(lines))
    if not pages:
        return None
    cards, cpu, ram = [], None, None
    for kind, name, items, _ in pages:
        if kind == "CPU":
            cpu = Cpu(model=name, sockets=whole(items.get("sockets")), physical_cores=whole(items.get("cores")))
        elif kind == "Memory":
            ram = _ram(name, items)
        elif kind.startswith("GPU") and not is_integrated(name):
            used = _USED_OF.match(items.get("dedicated gpu memory", ""))
            total = _gib(used[2]) * _MIB_A_GIB if used else None
            free = total - _gib(used[1]) * _MIB_A_GIB if used and total else None
            cards.append(SeenGpu(name=name, total_mib=total, free_mib=free))
    found = Found(tool="task manager", seen=tuple(cards), cpu=cpu, ram=ram, os="windows")
    return Claim(found, frozenset(i for _, _, _, taken in pages for i in taken))


def _pages(lines: Sequence[str]) -> Iterator[tuple[str, str, dict[str, str], list[int]]]:
    """Yield each page's kind, name, items and line numbers: a heading, what it is, and at least one item of its own."""
    heads = [i for i, line in enumerate(lines) if _PAGE.fullmatch(line)]
    for head, end in zip(heads, (*heads[1:], len(lines)), strict=False):
        filled = [i for i in range(head + 1, end) if lines[i].strip()]
        found = [(i, m) for i in filled[1:] if (m := _PAGES_ITEM.fullmatch(lines[i]))]
        items = {m[1].lower(): m[2].strip() for _, m in found}
        if not any(key in items for key in _OF_ITS_OWN):
            continue
        yield lines[head].strip(" \t#"), lines[filled[0]].strip(), items, [head, filled[0], *(i for i, _ in found)]


def _ram(name: str, items: dict[str, str]) -> Ram | None:
    size = SIZE.search(name.replace(",", "."))
    kind, speed = TYPE.search(name), re.match(r"\d{3,5}", items.get("speed", ""))
    if size is None:
        return None
    return Ram(total_gb=float(size[1]), type=kind[1].upper() if kind else None, mts=int(speed[0]) if speed else None)


def _gib(text: str) -> float:
    return float(text.replace(",", "."))
