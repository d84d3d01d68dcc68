"""Intel's System Support Utility, whose report people with Arc cards attach: `Key:"value"` under `- "Heading"`.

`Adapter RAM` is not read: of an Arc B580 with 12 GiB it says 2.00 GB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from service.engine.hardware import Cpu, Ram
from service.engine.hardware_text.cim import is_integrated
from service.engine.hardware_text.found import Claim, Found, SeenGpu, whole

_PAIR = re.compile(r'^\s*(?:- )?"?([A-Z][^":]{1,60})"?:"(.{0,900})"$')
_HEADING = re.compile(r'^\s*- "?([^":]{1,120})"?$')
_SECTIONS = frozenset((
    "Display", "Displays", "Graphics", "Memory", "Motherboard", "Networking", "Operating System", "Processor",
    "Storage",
))  # fmt: skip
_SIGNS = frozenset(
    ("Adapter DAC Type", "BaseBoard Manufacturer", "Physical Memory (Installed)", "Embedded Controller Version")
)
_ADAPTER = frozenset(("Adapter Compatibility", "Adapter DAC Type", "Adapter RAM"))
_SIZE = re.compile(r"^(\d{1,5})(?:[.,](\d{1,2}))? (GB|TB)$")
_CHANNEL = re.compile(r"(?:Controller(\d).?)?CHANNEL ?([A-H])", re.I)


def read_ssu(lines: Sequence[str]) -> Claim | None:
    """Return cards, CPU and RAM of a report; integrated graphics are left out."""
    pairs = {i: (_known(m[1]), m[2].strip()) for i, line in enumerate(lines) if (m := _PAIR.match(line))}
    if not _SIGNS & {key for key, _ in pairs.values()}:
        return None
    headings = {i: _known(m[1]) for i, line in enumerate(lines) if (m := _HEADING.match(line)) and i not in pairs}
    records = list(_records(pairs, headings))
    cpus = [value.split(" ,")[0].split("   ")[0].strip() for key, value in pairs.values() if key == "Processor"]
    cards = [
        name
        for section, name, record in records
        if section in ("Display", "Graphics") and _ADAPTER & record.keys() and not is_integrated(name)
    ]
    found = Found(
        tool="Intel's support utility",
        seen=tuple(SeenGpu(name=name) for name in cards),
        cpu=Cpu(model=cpus[0], sockets=len(cpus) if len(cpus) > 1 else None) if cpus else None,
        ram=_ram(records, dict(pairs.values())),
    )
    computer = {
        i for i, line in enumerate(lines) if line.strip() in ("Computer:", "# Scanned Hardware", "## Scanned Hardware")
    }
    return Claim(found, frozenset(pairs.keys() | headings.keys() | computer))


def _known(key: str) -> str:
    """Return a key or heading as the report spells it."""
    plain = " ".join(key.split())
    return next((known for known in _SECTIONS | _SIGNS | _ADAPTER if known.lower() == plain.lower()), plain)


def _records(pairs: dict[int, tuple[str, str]], headings: dict[int, str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield section, heading and pairs of each part; sections are told by their names, as pastes lose the indent."""
    section, name, record = "", "", dict[str, str]()
    for i in sorted(pairs.keys() | headings.keys()):
        if i in pairs:
            record.setdefault(*pairs[i])
            continue
        if record:
            yield section, name, record
        record = {}
        section, name = (headings[i], "") if headings[i] in _SECTIONS else (section, headings[i])
    yield section, name, record


def _ram(records: Sequence[tuple[str, str, dict[str, str]]], all_pairs: dict[str, str]) -> Ram | None:
    total = _SIZE.match(all_pairs.get("Physical Memory (Installed)", ""))
    if total is None:
        return None
    sticks = [
        record for section, _, record in records if section == "Memory" and _SIZE.match(record.get("Capacity", ""))
    ]
    speeds = [whole(re.split(r"\D", stick.get("Configured Clock Speed", ""), maxsplit=1)[0]) for stick in sticks]
    known = [speed for speed in speeds if speed]
    places = [_CHANNEL.search(s.get("Channel", "")) if s.get("Data Width") == "64 bits" else None for s in sticks]
    channels = {(place[1], place[2].upper()) for place in places if place}
    kinds = {stick.get("Memory Type", "") for stick in sticks}
    return Ram(
        total_gb=float(f"{total[1]}.{total[2] or 0}") * (1024 if total[3] == "TB" else 1),
        type=next(iter(kinds)) if len(kinds) == 1 and kinds <= {"DDR3", "DDR4", "DDR5", "LPDDR4", "LPDDR5"} else None,
        channels=len(channels) if sticks and all(places) else None,
        mts=min(known) if known else None,
    )
