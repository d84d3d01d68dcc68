"""Speccy's summary of a Windows machine: a heading on a line of its own, and below it what there is.

The memory that it gives for cards is 32 bits wide (2047 or 4095 MB of any larger card): no size is taken from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from service.engine.catalogue.names import gpu_rows
from service.engine.hardware import Cpu, Ram
from service.engine.hardware_text.cards import laptops_cpu
from service.engine.hardware_text.cim import is_integrated
from service.engine.hardware_text.found import TO_GB, Claim, Found, SeenGpu

_HEADING = re.compile(
    r"(?:.{0,60}\s)?(Operating System)"
    r"|(CPU|RAM|Motherboard|Graphics|(?:Hard|Optical) Drives|Storage|Audio|Peripherals|Network)"
)
_FIRST = re.compile(r"(?:Speccy\s)?Summary:?", re.I)
_DEGREES = re.compile(r"\s+-?\d{1,3} ?(?:°|&#\d+;)?\s?[CF]$")
_CLOCK = re.compile(r"\s@ [\d.,]{1,6} ?GHz$")
_RAM = re.compile(
    r"(\d{1,5}(?:[.,]\d{1,2})?) ?(GB|MB|TB)(?: (Single|Dual|Triple|Quad)-Channel)?(?: (DDR\d\w?|Unknown))?"
    r"(?: @ (\d{3,4}) ?MHz)?(?: \([\d-]{3,20}\))?"
)
_MAKERS = ("Intel ", "AMD ")
_CHANNELS = {"Single": 1, "Dual": 2, "Triple": 3, "Quad": 4}
_CARD = re.compile(r"(?:\d{2,5} ?MB )?(?:ATI (?=AMD))?((?:NVIDIA|AMD|ATI|Intel)\b.{3,80}?)(?: \([^()]{2,60}\))?")


def read_speccy(lines: Sequence[str]) -> Claim | None:
    """Return cards, CPU and RAM from a summary."""
    heads = [(i, m[1] or m[2]) for i, line in enumerate(lines) if (m := _HEADING.fullmatch(line.strip()))]
    sections = {name: _below(lines, i, heads) for i, name in reversed(heads)}
    stated = [m for i in sections.get("RAM", ())[:1] if (m := _RAM.fullmatch(_item(lines[i])))]
    cpus = [_CLOCK.sub("", text) for i in sections.get("CPU", ()) if (text := _item(lines[i])).startswith(_MAKERS)]
    if not (stated and cpus and "Graphics" in sections):
        return None
    listed = [m[1] for i in sections["Graphics"] if (m := _CARD.fullmatch(_item(lines[i])))]
    cards = [name for name in listed if not is_integrated(name)]
    cpu = Cpu(model=cpus[0], sockets=len(cpus) if len(cpus) > 1 else None)
    if laptops_cpu([cpu]) and len(cards) == 1 and gpu_rows(f"{cards[0]} laptop"):  # Windows names it as a desktop's
        cards = [f"{cards[0]} laptop"]
    found = Found(
        tool="Speccy",
        seen=tuple(SeenGpu(name=name) for name in cards),
        cpu=cpu,
        ram=_ram(stated[0]),
        os="windows",
    )
    taken = {i for i, _ in heads} | {i for section in sections.values() for i in section}
    return Claim(found, frozenset(taken | {i for i, line in enumerate(lines) if _FIRST.fullmatch(line.strip())}))


def _item(line: str) -> str:
    return re.sub(r"\s+", " ", _DEGREES.sub("", line.strip())).strip()


def _below(lines: Sequence[str], head: int, heads: Sequence[tuple[int, str]]) -> list[int]:
    """Return the lines of a section: up to the next heading; of the last one the first, and those indented like it."""
    after = next((i for i, _ in heads if i > head), None)
    return list(range(head + 1, after)) if after is not None else list(_last(lines, head))


def _last(lines: Sequence[str], head: int) -> Iterator[int]:
    depth = None
    for i in range(head + 1, len(lines)):
        indent = len(lines[i]) - len(lines[i].lstrip())
        if not lines[i].strip() or (depth is not None and (indent != depth or not indent)):
            return
        depth = indent
        yield i


def _ram(m: re.Match[str]) -> Ram:
    kind = m[4] if m[4] not in (None, "Unknown") else None
    return Ram(
        total_gb=float(m[1].replace(",", ".")) * TO_GB[m[2]],
        type=kind,
        channels=_CHANNELS.get(m[3]),
        mts=2 * int(m[5]) if m[5] else None,
    )
