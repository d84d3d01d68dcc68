"""dmidecode -t memory: the installed modules, their type and speed, and the channels they occupy."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from service.engine.hardware import Ram
from service.engine.hardware_text.found import Claim, Found

_START = re.compile(
    r"^(?:#\s*)?dmidecode \d|^Handle 0x[0-9A-Fa-f]{1,8}, DMI type \d|^Memory Device\s*$|^Physical Memory Array\s*$"
)
_HEAD = re.compile(r"^(?:SMBIOS \d.{0,60}|Getting SMBIOS data.{0,60}|Table at 0x.{0,40}|\d+ structures.{0,60})$")
_PAIR = re.compile(r"^\s+([A-Z][A-Za-z ]{1,50}?):\s?(.{0,200})$")
_SIZE = re.compile(r"^(\d{1,8}) (MB|MiB|GB|GiB|TB)$")
_SPEED = re.compile(r"^(\d{3,5}) (?:MT/s|MHz)$")
# `P0 CHANNEL A`, `P0_Node0_Channel0_Dimm1`, `Controller0-ChannelA-DIMM0`, `DIMM_A2`, `CPU1_DIMM_B1`.
_CHANNEL = re.compile(r"(?:^|[^A-Z])CHANNEL[ _-]{0,2}([A-Z0-9]{1,2})(?![A-Z0-9])")
_LETTER = re.compile(r"DIMM[ _-]{0,2}([A-P])\d?(?![A-Z])")
_OWNER = re.compile(r"(?:P|CPU|PROC|SOCKET|NODE|CONTROLLER)[ _-]{0,2}(\d)")
_TO_GB = {"MB": 1 / 1024, "MiB": 1 / 1024, "GB": 1.0, "GiB": 1.0, "TB": 1024.0}


def read_dmidecode(lines: Sequence[str]) -> Claim | None:
    """Return total, type, speed and occupied channels; a channel counts once however many modules it holds."""
    starts = [i for i, line in enumerate(lines) if _START.match(line)]
    if not starts:
        return None
    taken = {i for i, line in enumerate(lines) if _HEAD.match(line)} | set(starts)
    modules: list[dict[str, str]] = []
    inside: dict[str, str] | None = None
    for i in range(starts[0], len(lines)):
        line = lines[i]
        if line.strip() == "Memory Device":
            inside = {}
            modules.append(inside)
        elif not line.strip() or _START.match(line):
            inside = None if line.strip() else inside
        elif m := _PAIR.match(line):
            taken.add(i)
            if inside is not None:
                inside.setdefault(m[1], m[2].strip())
        elif line[:1].isspace():
            taken.add(i)
    filled = [module for module in modules if _SIZE.match(module.get("Size", ""))]
    return Claim(Found(tool="dmidecode", ram=_ram(filled) if filled else None), frozenset(taken))


def _ram(modules: Sequence[Mapping[str, str]]) -> Ram:
    speeds = [speed for module in modules if (speed := _speed(module)) is not None]
    kinds = Counter(module.get("Type", "Unknown") for module in modules)
    kind = kinds.most_common(1)[0][0]
    channels = {channel for module in modules if (channel := _channel(module))}
    return Ram(
        total_gb=sum(_gb(module["Size"]) for module in modules),
        type=None if kind in ("Unknown", "Other", "DRAM") else kind,
        channels=len(channels) if all(_channel(module) for module in modules) else len(modules),
        mts=min(speeds) if speeds else None,
    )


def _gb(size: str) -> float:
    m = _SIZE.match(size)
    return float(m[1]) * _TO_GB[m[2]] if m else 0.0


def _speed(module: Mapping[str, str]) -> int | None:
    for key in ("Configured Memory Speed", "Configured Clock Speed", "Speed"):
        if m := _SPEED.match(module.get(key, "")):
            return int(m[1])
    return None


def _channel(module: Mapping[str, str]) -> str:
    """Return a module's channel and its socket or controller; empty if the board does not tell."""
    for text in (module.get("Bank Locator", "").upper(), module.get("Locator", "").upper()):
        m = _CHANNEL.search(text) or _LETTER.search(text)
        if m:
            both = f"{module.get('Bank Locator', '')} {module.get('Locator', '')}".upper()
            return f"{'.'.join(_OWNER.findall(both))}:{m[1]}"
    return ""
