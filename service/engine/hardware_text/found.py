"""What one piece of text says about a machine, and how several such findings become one description."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import msgspec

from service.engine.catalogue.names import complete, gpu_key, gpu_rows
from service.engine.errors import InvalidHardware
from service.engine.hardware import NO_GPU_NAMED, Backend, Cpu, Gpu, Hardware, Ram

MAX_CHARS = 64 << 10
CONTAINER = "cgroup"  # the tool of what a container may use
_MIB_A_GIB = 1024
TO_GB = {"MB": 1 / 1024, "MiB": 1 / 1024, "GB": 1.0, "GiB": 1.0, "TB": 1024.0}  # of memory, as tools write it
# A driver's total differs from the catalogue's by firmware and ECC; a runtime's (CUDA, HIP) also by its reserve.
_SAME_SIZE = 0.03


class SeenGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as a tool lists it; sizes in MiB. `name` may be cut off (`NVIDIA R...`).

    `index`: its number in PCI order; `device`: its number in an engine's list.
    """

    name: str
    index: int | None = None
    device: int | None = None
    uuid: str | None = None
    total_mib: float | None = None
    free_mib: float | None = None
    pcie: str | None = None
    display: bool | None = None


Part = TypeVar("Part", Cpu, Ram, SeenGpu)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Facts from one piece of text. `gpus`: stated by the person; `seen`: listed by a tool, which `tool` names.

    `notes`: text without usable figures.
    """

    tool: str = ""
    gpus: tuple[Gpu, ...] = ()
    come_with_cpu: bool = False  # the GPUs, which count only if a tool lists no card
    no_gpu: bool = False
    seen: tuple[SeenGpu, ...] = ()
    cpu: Cpu | None = None
    ram: Ram | None = None
    os: str | None = None
    backend: Backend | None = None
    notes: str | None = None


class Claim(msgspec.Struct, frozen=True):
    """What a recogniser found, and the line numbers it read, which no other recogniser gets."""

    found: Found
    lines: frozenset[int]


Recogniser: TypeAlias = Callable[[Sequence[str]], Claim | None]
"""Reads one format: gets all lines (those already taken are empty) and returns what it found, None if nothing."""


def unreadable(piece: str, right: str) -> InvalidHardware:
    """Return the error for unreadable text: it quotes the piece and says how to write it."""
    short = piece.strip()[:80]
    return InvalidHardware(f"`{short}` cannot be read: {right}", field="hardware")


def whole(text: str | None) -> int | None:
    """Return a count printed by a tool, None if it is not a number."""
    return int(text) if text and text.isdecimal() and len(text) < 6 else None


def cut(lines: Sequence[str], heads: Iterable[int]) -> list[Sequence[str]]:
    """Return the lines from each head to before the next one; `heads` are their numbers, in order."""
    return [lines[head:end] for head, end in pairwise((*heads, len(lines)))]


def combine(findings: Iterable[Found], gpus_required: bool) -> Hardware:
    """Return one description of everything found; earlier findings win over later ones.

    GPUs listed by several tools (nvidia-smi and llama-server) count once. Raises InvalidHardware if `gpus_required` but
    neither a GPU nor `no GPU` was found.
    """
    found = _without_idle_limits(list(findings))
    no_gpu = any(f.no_gpu and not f.tool for f in found)
    if no_gpu or any(not is_shared(card.name) for f in found for card in f.seen):
        found = [msgspec.structs.replace(f, gpus=()) if f.come_with_cpu else f for f in found]
    gpus = _gpus(found)
    if gpus and no_gpu:
        raise InvalidHardware(
            f"it says `no GPU` but names {gpus[0].name}: leave out one of them", field="hardware.gpus"
        )
    notes = [f.notes for f in found if f.notes]
    if gpus_required and not gpus and not any(f.no_gpu for f in found):
        if not any(f.cpu for f in found if not f.tool):
            read = f" (`{notes[0][:80]}` is not known here)" if notes else ""
            right = "name one, such as `RTX 3090`, or write `no GPU`"
            right += ", on a line of its own next to what was pasted" if any(f.tool for f in found) else ""
            raise InvalidHardware(f"no GPU found{read}: {right}", field="hardware.gpus")
        notes.append(NO_GPU_NAMED)
    return Hardware(
        gpus=gpus,
        cpu=merged(Cpu, [f.cpu for f in found if f.cpu is not None]),
        ram=_ram(found),
        os=next((f.os for f in found if f.os), None),
        notes="; ".join(notes) or None,
        backend=next((f.backend for f in found if f.backend), None),
    )


def _without_idle_limits(found: Sequence[Found]) -> list[Found]:
    """Leave out what a container may use of the memory if its host has no more than that."""
    hosts = [f.ram.total_gb for f in found if f.ram and f.ram.total_gb and f.tool != CONTAINER]
    there = min(hosts, default=math.inf)
    return [f for f in found if not (f.tool == CONTAINER and f.ram and (f.ram.total_gb or 0) >= there)]


def _ram(found: Sequence[Found]) -> Ram | None:
    """Return the RAM; in a container, whose tools show what is free on its host, without that."""
    ram = merged(Ram, [f.ram for f in found if f.ram is not None])
    is_hosts = any(f.tool == CONTAINER for f in found)
    return msgspec.structs.replace(ram, free_gb=None) if ram is not None and is_hosts else ram


def is_shared(name: str) -> bool:
    """Return whether a GPU has no memory of its own."""
    rows = gpu_rows(name)
    return bool(rows) and rows[0].unified


def merged(kind: type[Part], parts: Sequence[Part]) -> Part | None:
    """Return one part that takes each fact from the first of `parts` that states it; None if there are no parts."""
    if not parts:
        return None
    values: dict[str, Any] = {
        name: next((value for part in parts if (value := getattr(part, name)) is not None), None)
        for name in kind.__struct_fields__
    }
    return kind(**values)


def _gpus(found: Sequence[Found]) -> list[Gpu]:
    """Return the stated GPUs, with what a tool adds, then those of each tool that were not listed before."""
    stated = [gpu for f in found for gpu in f.gpus]
    by_tool: dict[str, list[SeenGpu]] = {}
    for f in found:
        by_tool.setdefault(f.tool, []).extend(f.seen)
    known = _counts(stated)
    seen: list[Gpu] = []
    for gpus in by_tool.values():
        cards = [_card(gpu) for gpu in _by_index(gpus)]
        stated = [part for gpu in stated for part in _with_facts(gpu, cards)]
        left = known.copy()
        for card in cards:
            key = gpu_key(card.name)
            if left[key] > 0:
                left[key] -= 1
            else:
                seen.append(card)
                known[key] += 1
    return _numbered([*stated, *_grouped(seen)], by_tool)


def _with_facts(stated: Gpu, listed: Sequence[Gpu]) -> Sequence[Gpu]:
    """Return stated cards with the facts of a tool that lists as many of the name; what is stated holds."""
    cards = [card for card in listed if gpu_key(card.name) == gpu_key(stated.name)]
    groups = _grouped(cards) if len(cards) == stated.count else []
    said = {k: v for k, v in msgspec.structs.asdict(stated).items() if v is not None and k not in ("name", "count")}
    if len(groups) > 1 and said:
        return [stated]
    return [msgspec.structs.replace(group, **said) for group in groups] or [stated]


def _numbered(gpus: Sequence[Gpu], by_tool: Mapping[str, Sequence[SeenGpu]]) -> list[Gpu]:
    """Return the GPUs with their numbers in an engine's list, if they differ and one list has as many of each name."""
    devices: dict[str, list[int]] = {}
    for seen in by_tool.values():
        if not devices and all(gpu.device is not None for gpu in seen):
            for gpu in seen:
                devices.setdefault(gpu_key(_whole_name(gpu)), []).append(gpu.device or 0)
    counts = _counts(gpus)
    if (
        len(counts) < 2
        or any(len(devices.get(key, ())) != n for key, n in counts.items())
        or any(gpu.device_order for gpu in gpus)
    ):
        return list(gpus)
    return [
        msgspec.structs.replace(gpu, device_order=[devices[gpu_key(gpu.name)].pop(0) for _ in range(gpu.count)])
        for gpu in gpus
    ]


def _counts(gpus: Iterable[Gpu]) -> Counter[str]:
    counts = Counter[str]()
    for gpu in gpus:
        counts[gpu_key(gpu.name)] += gpu.count
    return counts


def _by_index(gpus: Sequence[SeenGpu]) -> list[SeenGpu]:
    """Join lists of one tool (`nvidia-smi` and `nvidia-smi -L`) by number: they describe the same GPUs."""
    joined: dict[int, SeenGpu] = {}
    unnumbered = [gpu for gpu in gpus if gpu.index is None]
    for gpu in gpus:
        if gpu.index is not None:
            joined[gpu.index] = _joined(joined[gpu.index], gpu) if gpu.index in joined else gpu
    return [*joined.values(), *unnumbered]


def _joined(a: SeenGpu, b: SeenGpu) -> SeenGpu:
    if " MIG " in b.name:  # a slice, where `a` is the whole
        return msgspec.structs.replace(b, pcie=a.pcie)
    return msgspec.structs.replace(merged(SeenGpu, [a, b]) or a, name=b.name if is_cut(a.name) else a.name)


def is_cut(name: str) -> bool:
    """Return whether a tool cut off the name."""
    return name.endswith(("...", "…"))


def _card(gpu: SeenGpu) -> Gpu:
    name = _whole_name(gpu)
    rows = gpu_rows(name, None if gpu.total_mib is None else gpu.total_mib / _MIB_A_GIB)
    total = gpu.total_mib
    if rows and total is not None and not rows[0].unified:
        usual = rows[0].driver_mib or (rows[0].vram_gib or 0) * _MIB_A_GIB
        if abs(total - usual) <= _SAME_SIZE * usual:
            total = None if len({row.vram_gib for row in rows}) == 1 else (rows[0].vram_gib or 0) * _MIB_A_GIB
    return Gpu(
        name=name,
        pcie=gpu.pcie,
        vram_gib=None if total is None else round(total / _MIB_A_GIB, 3),
        free_gib=None if gpu.free_mib is None else round(gpu.free_mib / _MIB_A_GIB, 3),
        uuids=[gpu.uuid] if gpu.uuid else None,
        pci_order=[gpu.index] if gpu.index is not None else None,
        display=gpu.display,
    )


def names_of(gpu: SeenGpu) -> list[str]:
    """Return the name of a GPU; if a tool cut it off, all that it may be."""
    if not is_cut(gpu.name):
        return [gpu.name]
    rows = complete(gpu.name.rstrip(".… "), gpu.total_mib or 0)
    return list(dict.fromkeys(row.name for row in rows if len(row.name) > len(gpu.name)))  # a shorter one is whole


def _whole_name(gpu: SeenGpu) -> str:
    names = names_of(gpu)
    if len(names) == 1:
        return names[0]
    which = f"it may be {' or '.join(names[:5])}" if names else "no known GPU with that much memory begins like this"
    raise unreadable(gpu.name, f"the name is cut off, and {which}; paste `nvidia-smi -L` too")


def _grouped(cards: Sequence[Gpu]) -> list[Gpu]:
    """Merge cards that differ only in number and UUID into one entry with a count."""
    groups: dict[Gpu, list[Gpu]] = {}
    for card in cards:
        same = msgspec.structs.replace(card, uuids=None, pci_order=None)
        groups.setdefault(same, []).append(card)
    return [
        msgspec.structs.replace(
            same, count=len(members), uuids=_all(members, "uuids"), pci_order=_all(members, "pci_order")
        )
        for same, members in groups.items()
    ]


def _all(members: Sequence[Gpu], field: str) -> list[str] | list[int] | None:
    values = [value for member in members for value in getattr(member, field) or ()]
    return values if len(values) == len(members) else None
