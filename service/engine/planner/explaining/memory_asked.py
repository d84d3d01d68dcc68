"""Changes of a machine's RAM in words, and the RAM that its CPU takes."""

from __future__ import annotations

import re
from typing import Literal

from msgspec.structs import replace

from service.engine.catalogue import resolve
from service.engine.catalogue.names import cpu_row
from service.engine.catalogue.rows import CpuRow
from service.engine.errors import InvalidInput
from service.engine.hardware import Hardware, Ram
from service.engine.units import GIB

FIELD = "what_if"
RATE = re.compile(r"(\d{4,5})(?:\s?(?:mt/s|mts|mhz))?", re.I)
_PROFILE = re.compile(
    r"(?:with\s|enabled?\s|enabling\s|turn(?:ing)?\son\s)?(?:xmp|expo|docp)\b(?:\son|\senabled)?(?:\s(?:at|to|@)\s(.+))?",
    re.I,
)
_FASTER = re.compile(
    r"(?:an?\s|some\s|buy\s|get\s)?(?:faster|quicker|better)\s(?:ram|memory|ddr\d?)(?:\s(?:sticks?|kit|modules?|speeds?))?",
    re.I,
)
_DOUBLE = re.compile(r"(?:double|twice|2x)\s(?:the\s|my\s|as much\s)?(?:ram|memory)", re.I)
_SPEEDS = {
    "DDR4": (2133, 2400, 2666, 2933, 3200),
    "DDR5": (4800, 5200, 5600, 6000, 6400),
}  # JEDEC's rates that modules are sold with
_DDR5_FROM = 4400
_FASTEST_DDR4 = 5333  # MT/s of the fastest kits that were sold (G.Skill, 2020); most are of 3,200 to 3,600
_DESKTOP_CHANNELS = 2  # CPUs with more take no faster modules than their makers state
# What four slots take: modules of 64 GB since the end of 2023 (tomshardware.com, 2023-12-15), of 32 GB.
_MOST_GB = {"DDR5": 256, "DDR4": 128}
_TWO_MODULES_GB = 128
_OF_TWO_KINDS = ("alder lake", "raptor lake")  # with boards for DDR4 and for DDR5


def _cpu(hardware: Hardware) -> CpuRow | None:
    return cpu_row(hardware.cpu.model) if hardware.cpu and hardware.cpu.model else None


def rates_of(hardware: Hardware) -> list[int]:
    """The rates at which modules of the machine's kind are sold that are faster than its own, and that a server's CPU
    takes."""
    row = _cpu(hardware)
    most = row.mts if row and row.mts and (row.channels or 0) > _DESKTOP_CHANNELS else None
    return [mts for mts in _SPEEDS.get(kind_of(hardware), ()) if _mts(hardware) < mts <= (most or mts)]


def _mts(hardware: Hardware) -> int:
    stated = (hardware.ram or Ram()).mts
    return stated or next((int(a.value) for a in resolve(hardware).assumed if a.field == "hardware.ram.mts"), 0)


def kind_of(hardware: Hardware) -> str:
    """The kind of the RAM: as stated, by its rate, or as its CPU takes."""
    ram = hardware.ram or Ram()
    row = _cpu(hardware)
    of_cpu = row.memory if row and ram.mts is None else None
    return (ram.type or of_cpu or ("DDR5" if _mts(hardware) >= _DDR5_FROM else "DDR4")).upper()


def has_modules(hardware: Hardware) -> bool:
    """Return whether the RAM is known to be of a kind that is sold as modules."""
    return _cpu(hardware) is not None and kind_of(hardware) in _SPEEDS


def memory_of(hardware: Hardware) -> str:
    """Kind, rate and channels of the RAM, as stated or as taken: `DDR5-4800 x12`; nothing of a chip's own memory."""
    if not (mts := _mts(hardware)):
        return ""
    channels = (hardware.ram or Ram()).channels or next(
        (a.value for a in resolve(hardware).assumed if a.field == "hardware.ram.channels"), ""
    )
    return f"{kind_of(hardware)}-{mts} x{channels}"


def definite(hardware: Hardware, text: str) -> str:
    """Return what a vague change is taken for: `faster RAM` for the fastest that is sold; others as they are."""
    ram_gb = resolve(hardware).ram_bytes / GIB
    if _DOUBLE.fullmatch(text):
        return f"{ram_gb:.0f} GB more RAM"
    profile = _PROFILE.fullmatch(text)
    if profile and profile[1]:
        return profile[1] if not RATE.fullmatch(profile[1]) else f"RAM at {profile[1]}"
    if not profile and not _FASTER.fullmatch(text):
        return text
    rates, kind = rates_of(hardware), kind_of(hardware)
    if kind not in _SPEEDS:
        raise InvalidInput(f"`{text[:120]}`: {kind} is soldered: no other can be put in", field=FIELD)
    if profile or not rates:
        example = f"{kind}-{rates[-1]}" if rates else "DDR4-3600" if kind == "DDR4" else "DDR5-8000"
        now = f"the RAM is taken as {kind}-{_mts(hardware)}"
        raise InvalidInput(f"`{text[:120]}`: {now}; how fast would it be? Write it as in `{example}`", field=FIELD)
    return f"{kind}-{rates[-1]}"


def on_its_board(hardware: Hardware, before: Hardware) -> Hardware:
    """The hardware with another CPU: RAM of the kind and at the rate that it takes, in all of its channels. The modules
    are kept where both have as many channels and take the same kind."""
    ram, kind = hardware.ram or Ram(), _only_memory(hardware)
    old, new = _cpu(before), _cpu(hardware)
    same = old is not None and new is not None and old.channels == new.channels
    if kind and (ram.type or ram.mts) and (not same or kind_of(hardware) != kind):
        return replace(hardware, ram=Ram(total_gb=ram.total_gb, type=kind))
    return hardware if same else replace(hardware, ram=replace(ram, channels=None, measured_bandwidth_gbs=None))


def most_memory(hardware: Hardware) -> int | None:
    """The GB that a desktop's board takes at most; None for other machines, and where the CPU is not known."""
    row = _cpu(hardware)
    is_desktop = (
        row is not None and row.channels == _DESKTOP_CHANNELS and ((hardware.cpu and hardware.cpu.sockets) or 1) < 2
    )
    return _MOST_GB.get(kind_of(hardware)) if is_desktop else None


def needs_four_modules(hardware: Hardware, n_bytes: int) -> bool:
    """Whether so much RAM is more than two modules of DDR5 that a desktop takes."""
    return kind_of(hardware) == "DDR5" and most_memory(hardware) is not None and n_bytes > _TWO_MODULES_GB * GIB


def board_needed(before: Hardware, after: Hardware) -> str:
    """What a CPU of another kind or make needs besides, in words; nothing where it may fit the board."""
    old, new = _cpu(before), _cpu(after)
    if old is None or new is None or old.name == new.name or kind_of(after) not in _SPEEDS:
        return ""
    if old.channels != new.channels or kind_of(before) != kind_of(after):
        return "another board, and modules for it"
    return "another board" if old.name.split()[0] != new.name.split()[0] else ""


def _only_memory(hardware: Hardware) -> str | None:
    """The kind of modules that a CPU takes; None if it is unknown, or if there are boards for two."""
    row = _cpu(hardware)
    return row.memory if row and row.memory in _SPEEDS and row.generation not in _OF_TWO_KINDS else None


def with_memory(hardware: Hardware, new: Ram, text: str) -> tuple[Hardware, Literal["RAM", "RAM speed"]]:
    """The hardware with what is said of its RAM. Raises InvalidInput for what its CPU does not take."""
    old, kind = hardware.ram or Ram(), _only_memory(hardware)
    if new.type and kind and new.type.upper() != kind and (old.type or kind).upper() == kind and hardware.cpu:
        raise InvalidInput(f"`{text[:120]}`: the {hardware.cpu.model} takes {kind}", field=FIELD)
    row, sockets = _cpu(hardware), (hardware.cpu.sockets if hardware.cpu else None) or 1
    if row and new.channels and re.search(r"channel", text, re.I) and new.channels > (row.channels or 2) * sockets:
        raise InvalidInput(f"`{text[:120]}`: the {row.name} has {(row.channels or 2) * sockets} channels", field=FIELD)
    if kind == "DDR4" and (new.mts or 0) > _FASTEST_DDR4 and hardware.cpu:
        takes = f"the {hardware.cpu.model} takes DDR4, which is not sold at {new.mts} MT/s"
        raise InvalidInput(f"`{text[:120]}`: {takes}", field=FIELD)
    speed = new.mts is not None or new.channels is not None
    ram = Ram(
        total_gb=new.total_gb or old.total_gb,
        free_gb=None if new.total_gb else old.free_gb,
        type=new.type or old.type,
        channels=new.channels or old.channels,
        mts=new.mts or old.mts,
        measured_bandwidth_gbs=new.measured_bandwidth_gbs or (None if speed else old.measured_bandwidth_gbs),
    )
    return replace(hardware, ram=ram), "RAM speed" if speed or new.measured_bandwidth_gbs else "RAM"
