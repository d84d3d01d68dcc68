"""Whether two machines are the same one to a measurement: GPUs, CPU and memory."""

from __future__ import annotations

from collections import Counter
from typing import Literal, TypeAlias

import msgspec

from service.engine.catalogue import resolve
from service.engine.hardware import Hardware, Rig
from service.engine.units import GIB

MatchKind: TypeAlias = Literal["exact", "near"]
_SAME_SPEED = 0.05  # of memory: channels times MT/s


def match_kind(machine: Hardware, advised: Rig, other: Hardware, rig: Rig) -> MatchKind:
    """Return `exact` for the same GPUs and count, CPU, channels and memory speed within 5 %; else `near`.

    A CPU that was not stated is not known to be the same.
    """
    same_cpu = advised.cpu_model is not None and (advised.cpu_model, advised.sockets) == (rig.cpu_model, rig.sockets)
    same = _card_names(advised) == _card_names(rig) and same_cpu and _same_ram(machine, other)
    return "exact" if same else "near"


def _card_names(rig: Rig) -> Counter[tuple[str, int]]:
    return Counter((card.name, round(card.total / GIB)) for card in rig.cards)


def _same_ram(machine: Hardware, other: Hardware) -> bool:
    stated, there = machine.ram, other.ram
    if stated and there and stated.channels and there.channels and stated.channels != there.channels:
        return False
    one, two = _unmeasured_bandwidth(machine), _unmeasured_bandwidth(other)
    return abs(one - two) <= _SAME_SPEED * max(one, two)


def _unmeasured_bandwidth(hardware: Hardware) -> float:
    """GB/s by channels and speed: one of two machines may have measured its own."""
    ram = hardware.ram and msgspec.structs.replace(hardware.ram, measured_bandwidth_gbs=None)
    return resolve(msgspec.structs.replace(hardware, ram=ram)).cpu_bandwidth_gbs
