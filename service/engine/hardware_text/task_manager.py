"""Windows' task manager: what `Copy` puts on the clipboard from its pages on CPU, memory and GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from service.engine.hardware import Cpu, Ram
from service.engine.hardware_text.cim import is_integrated
from service.engine.hardware_text.found import Claim, Found, SeenGpu, whole
from service.engine.hardware_text.lexicon import SIZE, TYPE

_PAGE = re.compile(r"[\s#]*(CPU|Memory|[GN]PU(?: \d{1,2})?|Disk \d{1,2}(?: \([A-Z: ]{1,40}\))?|Ethernet|Wi-?Fi)\s*")
_ITEM = re.compile(
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
        found = [(i, m) for i in filled[1:] if (m := _ITEM.fullmatch(lines[i]))]
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
