"""Changes of a machine in words: `+1 RTX 3090`, `PCIe 4 x16 instead of x4`; and the upgrades that are usual for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from service.engine.catalogue import resolve
from service.engine.catalogue.names import cpu_row, gpu_rows
from service.engine.errors import AdvisorError, InvalidInput
from service.engine.hardware import Card, Cpu, Gpu, Hardware, Ram, Rig
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.lexicon import NUMBERS
from service.engine.units import GIB

FIELD = "what_if"
MAX_CARDS = 16
Component: TypeAlias = Literal["GPU", "RAM", "RAM speed", "link", "CPU", "several"]

_EXAMPLES = (
    "+1 RTX 3090", "-1 RTX 4090", "256 GB more RAM", "DDR5-6000 x8", "PCIe 4 x16 instead of x4",
    "RTX 5090 instead of RTX 3090", "EPYC 9755", "no GPU", "which single upgrade helps most",
)  # fmt: skip
_BEST = re.compile(
    r"best|(?:which|what) (?:single )?upgrade.{0,60}"
    r"|what (?:should|can|would) (?:i|we|you) (?:buy|upgrade|add|get)(?: next| first)?",
    re.I,
)
_NO_GPU = re.compile(r"(?:no|without) (?:a |the |any )?gpus?|cpu[ -]only", re.I)
_VRAM = re.compile(r"\bv-?ram\b", re.I)
# How people ask for the same in a sentence: `swap the 3090 for a 5090`, `add two 3090s`, `remove the P40`.
_SWAP = re.compile(
    r"(?:swap|replace|exchange|trade)\s(?:the\s|my\s)?(.+?)\s(?:for|with|by)\s(?:an?\s|the\s)?(.+)", re.I
)
_REMOVE = re.compile(r"(?:remove|sell|take out)\s(?:the\s|my\s|an?\s)?(.+)", re.I)
_INSTEAD = re.compile(r"(.+)\sinstead", re.I)
_ONLY = re.compile(r"(?:it|that|(?:(?:my|the|this)\s)?(?:current\s|old\s)?(?:gpu|card|graphics card))", re.I)
_ALL = re.compile(r"both|them|all(?: of (?:them|it))?|(?:both |all )?(?:my |the |of the )?(?:gpus|cards)", re.I)
_RAISE = re.compile(r"upgrade\s(?:the\s)?(?:ram\s|memory\s)?to\s(.+)", re.I)
_ADDING = re.compile(r"(?:add|buy)(?:ing)?\s", re.I)
_ADD = re.compile(
    rf"(?P<add>{_ADDING.pattern})?(?:(?:an?|the)\s)?(?:(?P<n>one|two|three|four|five|six|[1-9]\d?)\s?x?\s)?"
    r"(?P<more>(?:another|more|extra|additional|second|third)\s)?(?P<what>.+)",
    re.I,
)
_MORE = re.compile(
    r"(?:another |an extra )?([1-9]\d{0,5})\s?(gb|gib|tb)(?: of)?(?: more| extra)?(?: ram| memory)?", re.I
)
_SAYS_MORE = re.compile(r"\b(?:more|extra|another)\b", re.I)
_LINK = re.compile(
    r"pci-?e?\s?(?:gen\s?)?([1-6])(?:\.0)?\s?(?:x\s?(\d{1,2}))?(?: for (?:all|the (.{1,60}?)))?"
    r"(?: instead of (?:pci-?e?\s?)?(?:([1-6])(?:\.0)?\s?)?(?:x\s?(\d{1,2}))?)?",
    re.I,
)
_PARTS = re.compile(r"\s*(?:[,;]|\band\b)\s*", re.I)
_SIGN = re.compile(r"([+\-−–])\s*(.+)")
_SPEEDS = {
    "DDR4": (2133, 2400, 2666, 2933, 3200),
    "DDR5": (4800, 5200, 5600, 6000, 6400),
}  # JEDEC's rates that modules are sold with


class Upgrade(NamedTuple):
    """A changed machine: the change in words, the component, and the GiB of VRAM and of RAM that it adds."""

    text: str
    component: Component
    hardware: Hardware
    vram_gib: float
    ram_gib: float


def asks_for_best(text: str) -> bool:
    """Return whether a question is which single upgrade helps most."""
    return _BEST.fullmatch(text.strip().rstrip("?").strip()) is not None


def changed(hardware: Hardware, rig: Rig, text: str) -> Upgrade:
    """Return the machine as `text` changes it. Raises InvalidInput, with examples, for what cannot be understood."""
    found, kinds = hardware, list[Component]()
    adding = _ADDING.match(text.strip())  # `add 2x 3090 and 64GB` adds both
    for i, part in enumerate(_PARTS.split(text.strip().rstrip("?."))):
        more = adding[0] if adding and i and part[:1].isdigit() else ""
        try:
            found, kind = _one(found, resolve(found), more + part.strip())
            resolve(found)
        except AdvisorError as error:
            if error.field == FIELD:
                raise
            raise InvalidInput(f"`{text[:120]}`: {error.detail}", field=FIELD, choices=error.choices) from error
        kinds.append(kind)
    kind = kinds[0] if len(set(kinds)) == 1 else "several"
    return _upgrade(text, kind, found, rig)


def usual(hardware: Hardware, rig: Rig) -> Iterator[Upgrade]:
    """Yield the usual single upgrades: one more of each card, twice the RAM, a full link, the next speed of memory."""
    if any(card.unified for card in rig.cards):
        return  # one chip: nothing can be added
    names = dict.fromkeys(card.name for card in rig.cards) or {"NVIDIA GeForce RTX 3090": None}
    for name in names if len(rig.cards) < MAX_CARDS else ():
        yield changed(hardware, rig, f"+1 {name}")
    yield changed(hardware, rig, f"{rig.ram_bytes // GIB} GB more RAM")
    yield from _wider_links(hardware, rig)
    yield from _faster_memory(hardware, rig)


def _upgrade(text: str, kind: Component, after: Hardware, rig: Rig) -> Upgrade:
    new = resolve(after)
    vram = sum(card.total for card in new.cards) - sum(card.total for card in rig.cards)
    return Upgrade(text, kind, after, round(vram / GIB, 2), round((new.ram_bytes - rig.ram_bytes) / GIB, 2))


def _wider_links(hardware: Hardware, rig: Rig) -> Iterator[Upgrade]:
    """The links that cards and platform have if none are stated, where these are wider in sum."""
    found = replace(hardware, gpus=[replace(gpu, pcie=None) for gpu in hardware.gpus])
    if _links(resolve(found).cards) > _links(rig.cards):
        yield _upgrade("the fastest link that cards and board support", "link", found, rig)


def _links(cards: Sequence[Card]) -> float:
    return sum(card.pcie_gbs for card in cards)


def _faster_memory(hardware: Hardware, rig: Rig) -> Iterator[Upgrade]:
    ram = hardware.ram or Ram()
    if ram.mts is None:
        return
    kind = (ram.type or ("DDR5" if ram.mts >= 4400 else "DDR4")).upper()
    faster = next((mts for mts in _SPEEDS.get(kind, ()) if mts > ram.mts), None)
    if faster:
        found = changed(hardware, rig, f"{kind}-{faster}{f' x{ram.channels}' if ram.channels else ''}")
        if resolve(found.hardware).cpu_bandwidth_gbs > rig.cpu_bandwidth_gbs:
            yield found


def _reworded(text: str) -> str:
    """Return a sentence as the examples would have it; the text itself where it is none."""
    swaps = ((_SWAP, r"\2 instead of \1"), (_INSTEAD, r"\1 instead of it"))
    for sentence, form in (*swaps, (_REMOVE, r"-1 \1"), (_RAISE, r"\1")):
        if found := sentence.fullmatch(text):
            return found.expand(form)
    added = _ADD.fullmatch(text)
    if added is None or not (added["add"] or added["more"]) or _MORE.fullmatch(text):
        return text
    if not re.search(r"\d", added["what"]):  # `more power`: no part that anyone sells
        return text
    n = NUMBERS.get((added["n"] or "one").lower(), added["n"])
    is_size = _MORE.fullmatch(added["what"]) is not None
    return f"+{added['what']}" if is_size else f"+{n} {added['what']}"


def _one(hardware: Hardware, rig: Rig, text: str) -> tuple[Hardware, Component]:
    if not text or len(text) > 200:
        raise _unclear(text)
    text = _reworded(text)
    if _NO_GPU.fullmatch(text):
        return replace(hardware, gpus=[]), "GPU"
    if link := _LINK.fullmatch(text):
        return _with_link(hardware, link, text), "link"
    if signed := _SIGN.fullmatch(text):
        return _signed(hardware, rig, signed[2], 1 if signed[1] == "+" else -1, text)
    if (more := _MORE.fullmatch(text)) and _SAYS_MORE.search(text):
        return _signed(hardware, rig, f"{more[1]} {more[2]} RAM", 1, text)
    new, instead, old = text.partition(" instead of ")
    if instead:
        return _replaced(hardware, rig, _parsed(new), old, text)
    return _stated(hardware, _parsed(text), text)


def _replaced(hardware: Hardware, rig: Rig, new: Hardware, old: str, text: str) -> tuple[Hardware, Component]:
    if machine := _whole_machine(new):
        return machine, "several"
    if not new.gpus:
        return _stated(hardware, new, text)
    _refuse_on_mac(rig, text)
    if _ALL.fullmatch(old) and len(new.gpus) == 1:
        return replace(hardware, gpus=new.gpus), "GPU"
    gone = replace(hardware, gpus=_only_kind(hardware, text)) if _ONLY.fullmatch(old) else _parsed(old)
    return _swapped(hardware, new, gone, text), "GPU"


def _whole_machine(found: Hardware) -> Hardware | None:
    """Return what was read if it is a machine by itself: a GPU, and the memory that it shares with its CPU."""
    if not found.gpus:
        return None
    machine = resolve(found)
    knows_ram = all(one.field != "hardware.ram.total_gb" for one in machine.assumed)
    return found if knows_ram and all(card.unified for card in machine.cards) else None


def _refuse_on_mac(rig: Rig, text: str) -> None:
    if any(card.backend == "metal" for card in rig.cards):
        raise InvalidInput(f"`{text[:120]}`: a Mac takes no other GPU", field=FIELD)


def _only_kind(hardware: Hardware, text: str) -> list[Gpu]:
    """The machine's GPUs, if there is one entry of them. Raises InvalidInput otherwise."""
    if len(hardware.gpus) != 1:
        there = ", ".join(gpu.name for gpu in hardware.gpus) or "there is no GPU"
        raise InvalidInput(f"`{text[:120]}`: instead of which GPU? ({there})", field=FIELD)
    return hardware.gpus


def _parsed(text: str) -> Hardware:
    found = parse_hardware(text, gpus_required=False)
    if found.notes:
        raise _unclear(text)
    if _VRAM.search(text) and not found.gpus:
        raise InvalidInput(f"`{text[:120]}`: which GPU has it? Name the card, as in `+1 RTX 3090`", field=FIELD)
    return found


def _signed(hardware: Hardware, rig: Rig, text: str, sign: int, asked: str) -> tuple[Hardware, Component]:
    more = _MORE.fullmatch(text)
    found = _parsed(f"{more[1]} {more[2]} RAM" if more else text)
    if found.gpus and not found.ram and not found.cpu:
        if sign > 0:
            _refuse_on_mac(rig, asked)
        take = _with_cards if sign > 0 else _without_cards
        for gpu in found.gpus:
            hardware = take(hardware, gpu)
        return hardware, "GPU"
    if found.ram and found.ram.total_gb and not found.cpu:
        total = rig.ram_bytes / GIB + sign * found.ram.total_gb
        if total < 1:
            raise InvalidInput(f"`{asked[:120]}`: the machine has {rig.ram_bytes / GIB:.0f} GB", field=FIELD)
        return replace(hardware, ram=replace(hardware.ram or Ram(), total_gb=total, free_gb=None)), "RAM"
    raise _unclear(asked)


def _with_cards(hardware: Hardware, new: Gpu) -> Hardware:
    """The new card gets its own entry: what others have stated (count, UUIDs, memory in use) does not apply to it."""
    return replace(hardware, gpus=[*hardware.gpus, new])


def _without_cards(hardware: Hardware, old: Gpu) -> Hardware:
    name, left, remaining = _name(old), old.count, list[Gpu]()
    for gpu in reversed(hardware.gpus):
        taken = min(left, gpu.count) if _name(gpu) == name else 0
        left -= taken
        if gpu.count > taken:
            remaining.insert(0, _fewer(gpu, gpu.count - taken))
    if left:
        there = ", ".join(f"{gpu.count}x {gpu.name}" for gpu in hardware.gpus) or "no GPU"
        raise InvalidInput(f"`-{old.count} {old.name[:80]}`: there is {there}", field=FIELD)
    return replace(hardware, gpus=remaining)


def _fewer(gpu: Gpu, count: int) -> Gpu:
    first = {
        name: list(getattr(gpu, name)[:count]) for name in ("uuids", "pci_order", "device_order") if getattr(gpu, name)
    }
    return replace(gpu, count=count, **first)


def _name(gpu: Gpu) -> str:
    rows = gpu_rows(gpu.name, gpu.vram_gib)
    return rows[0].name if rows else gpu.name.lower()


def _swapped(hardware: Hardware, new: Hardware, old: Hardware, text: str) -> Hardware:
    if len(new.gpus) != 1 or len(old.gpus) != 1:
        raise _unclear(text)
    return _with_cards(_without_cards(hardware, old.gpus[0]), new.gpus[0])


def _with_link(hardware: Hardware, link: re.Match[str], text: str) -> Hardware:
    """The hardware with another link for the cards named, or those with the link that is replaced, else for all."""
    if not hardware.gpus:
        raise InvalidInput(f"`{text[:120]}`: there is no GPU", field=FIELD)
    stated = f"{link[1]}.0 x{link[2] or 16}"
    named = _name(Gpu(name=link[3])) if link[3] else None
    before = f"x{link[5]}" if link[5] else None
    chosen = [
        gpu for gpu in hardware.gpus
        if (named is None or _name(gpu) == named) and (before is None or (gpu.pcie or "").endswith(before))
    ] or ([] if named else hardware.gpus)  # fmt: skip
    if not chosen:
        raise InvalidInput(f"`{text[:120]}`: there is no {link[3]}", field=FIELD)
    return replace(hardware, gpus=[replace(gpu, pcie=stated) if gpu in chosen else gpu for gpu in hardware.gpus])


def _stated(hardware: Hardware, found: Hardware, text: str) -> tuple[Hardware, Component]:
    """The hardware with RAM or a CPU that replaces what is there."""
    if found.gpus or (found.ram is None) == (found.cpu is None):
        raise _unclear(text)
    if found.cpu is not None:
        if found.cpu.model is None or cpu_row(found.cpu.model) is None:
            raise _unclear(text)
        sockets = found.cpu.sockets or (hardware.cpu.sockets if hardware.cpu else None)
        return replace(hardware, cpu=Cpu(model=found.cpu.model, sockets=sockets)), "CPU"
    old, new = hardware.ram or Ram(), found.ram or Ram()
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


def _unclear(text: str) -> InvalidInput:
    return InvalidInput(
        f"`{text[:120]}` was not understood as a change of the machine: write it as in the examples",
        field=FIELD,
        choices=_EXAMPLES,
    )
