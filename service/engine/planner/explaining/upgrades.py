"""Changes of a machine in words: `+1 RTX 3090`, `PCIe 4 x16 instead of x4`; and the upgrades that are usual for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from service.engine.catalogue import resolve
from service.engine.catalogue.names import cpu_row, gpu_rows
from service.engine.errors import AdvisorError, InvalidInput
from service.engine.hardware import Card, Cpu, Gpu, Hardware, Ram, Rig, os_family
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.lexicon import NUMBERS
from service.engine.hardware_text.parts import graphics_of, is_of_taken
from service.engine.planner.explaining.memory_asked import (
    FIELD,
    RATE,
    definite,
    has_modules,
    kind_of,
    memory_of,
    most_memory,
    on_its_board,
    rates_of,
    with_memory,
)
from service.engine.units import GIB

MAX_CARDS = 16
_FIRST_CARD = "NVIDIA GeForce RTX 3090"  # for a machine without any
Component: TypeAlias = Literal["GPU", "RAM", "RAM speed", "link", "CPU", "system", "several"]

_EXAMPLES = (
    "+1 RTX 3090", "-1 RTX 4090", "256 GB more RAM", "DDR5-6000 x8", "PCIe 4 x16 instead of x4",
    "RTX 5090 instead of RTX 3090", "EPYC 9755", "no GPU", "Linux instead of Windows", "headless",
    "which single upgrade helps most",
)  # fmt: skip
_BEST = re.compile(
    r"best|(?:which|what) (?:single )?upgrade.{0,60}"
    r"|what (?:should|can|would) (?:i|we|you) (?:buy|upgrade|add|get)(?: next| first)?",
    re.I,
)
_NO_GPU = re.compile(r"(?:no|without) (?:a |the |any )?gpus?|cpu[ -]only", re.I)
_VRAM = re.compile(r"\bv-?ram\b", re.I)
# How people ask for the same in a sentence: `swap the 3090 for a 5090`, `add two 3090s`, `what if I had 128GB RAM`.
_TALK = re.compile(
    r"^(?:and\s)?(?:(?:what|how)\s(?:if|about)\s|if\s|with\s|(?:what\s|how\smuch\s(?:faster\s)?)?(?:would|should|could|is)\s"
    r"(?:it\s(?:be\s(?:faster\s)?with|worth)\s)?)(?:(?:i|we)\s)?(?:(?:had|have|got|get|used?|ran|run)\s)?"
    r"|\s(?:help|gain|(?:give|bring)(?:\s(?:me|us))?|be\s(?:any\s)?(?:better|faster)|be\sworth\sit|worth\sit)$",
    re.I,
)
_SWAP = re.compile(
    r"(?:swap|replace|exchange|trade|upgrade|raise|overclock|(?:go|switch|change)(?=\sfrom))\s(?:from\s)?(?:an?\s|the\s|my\s)?(.+?)\s(?:for|with|by|to)\s(?:an?\s|the\s)?(.+)",
    re.I,
)
_TO = re.compile(r"(?:upgrade|switch|move|change|go)\sto\s(?:an?\s)?(.+)", re.I)
_INSTEAD = re.compile(r"(.+)\sinstead", re.I)
_REMOVE = re.compile(
    r"(?:remove|sell|drop|without|take out)\s(?:the\s|my\s|an?\s|of\s)?(?:(one|two|both|three|four|[1-9])\s)?(.+)", re.I
)
_ONLY = re.compile(r"(?:it|that|(?:(?:my|the|this)\s)?(?:current\s|old\s)?(?:gpu|card|graphics card))", re.I)
_NTH = re.compile(r"(?:add\s|buy\s)?(?:an?\s|the\s)?(second|third)\s", re.I)
_ALL = re.compile(r"both|them|all(?: of (?:them|it))?|(?:both |all )?(?:my |the |of the )?(?:gpus|cards)", re.I)
_SCREEN, _IN_CPU = (
    r"(?:monitor|display|screen)s?",
    r"(?:i-?gpu|integrated (?:gpu|graphics)|onboard(?: graphics)?|motherboard|cpu)",
)
_HEADLESS = re.compile(
    rf"headless|(?:no|without(?: an?)?) {_SCREEN}(?: .{{1,40}})?"
    rf"|use\s(?:the\s)?{_IN_CPU}\sfor\s(?:the\s|my\s)?{_SCREEN}"
    rf"|(?:(?:move|plug|connect|put|attach|run|drive)\s)?(?:the\s|my\s)?{_SCREEN}\s(?:(?:plugged|connected|attached)\s)?"
    rf"(?:on|to|into|in|from|via|off)\s(?:the\s|my\s)?{_IN_CPU}",
    re.I,
)
_ADDING = re.compile(r"(?:add|buy)(?:ing|ed)?\s", re.I)
_ADD = re.compile(
    rf"(?P<add>{_ADDING.pattern})?(?:(?:an?|the)\s)?(?:(?P<n>one|two|three|four|five|six|[1-9]\d?)\s?x?\s)?"
    r"(?P<more>(?:another|more|extra|additional|second|third)\s)?(?P<what>.+)",
    re.I,
)
# What people ask that the speed model does not know, and why.
_NOT_COUNTED = (
    (
        r"(?:with|without|no|add|remove|use|via|the|an?|\s)*(?:nv-?link|p2p)(?:\s(?:bridge|on|off|between .{1,40}))?",
        "links from card to card do not count here, only that of each card to RAM: with whole layers on each card, "
        "some KiB a token go from card to card",
    ),
    (
        r".*\b(?:ssds?|nvme|hdd|hard (?:drive|disk)|(?:faster|second) (?:drive|disk)|raid\s?0)\b.*",
        "a drive counts only for a model larger than RAM and VRAM together, and then as one of 7 GB/s (PCIe 4.0 NVMe); "
        "ask how much more RAM would gain, as in `64 GB more RAM`",
    ),
    (
        r"(?!.*\b(?:ram|memory)\b).*\b(?:overclock|undervolt|power.?limit)\w*\b.*",
        "clocks and power limits of cards do not count here: cards are taken as they are sold",
    ),
)
_EITHER = re.compile(r"\b(?:or|vs\.?|versus)\b", re.I)
_MODULES = re.compile(r"\d{1,2}\s?x\s?\d{1,3}\s?(?:gb|gib|g)\b", re.I)
_MORE = re.compile(
    r"(?:another |an extra )?([1-9]\d{0,5})\s?(gb|gib|tb)(?: of)?(?: more| extra)?(?: ram| memory)?", re.I
)
_SAYS_MORE = re.compile(r"\b(?:more|extra|another)\b", re.I)
_TO_CARD = r"(?:(?:pci-?e?\s?(?:gen\s?)?|gen\s?)([1-6])(?:\.0)?(?:\s?x\s?(\d{1,2}))?|(?:pci-?e\s)?x\s?(\d{1,2}))"
_LINK = re.compile(
    rf"{_TO_CARD}(?: for (?:all|the (.{{1,60}}?)))?"
    r"(?: instead of (?:pci-?e?\s?)?(?:([1-6])(?:\.0)?\s?)?(?:x\s?(\d{1,2}))?)?",
    re.I,
)
# `3090 at PCIe 4.0 x16`, `move the 3090 to an x8 slot`, `both at x8`
_AT_LINK = re.compile(
    rf"(?:(?:move|put|run)\s)?(?:the\s|my\s|both\s|all\s)?([^+−–-].{{1,60}}?)\s(?:at|on|in|into|to)\s(?:an?\s|the\s)?(?:full\s)?"
    rf"({_TO_CARD})(?:\s(?:slots?|lanes?|risers?|each))?",
    re.I,
)
_PARTS = re.compile(r"\s*(?:[,;]|\band\b)\s*", re.I)
_SIGN = re.compile(r"([+\-−–])\s*(.+)")


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
    found, kinds, said = hardware, list[Component](), list[str]()
    text = text.strip().rstrip("?.").strip()
    asked = _TALK.sub("", text)
    adding = _ADDING.match(asked)  # `add 2x 3090 and 64GB` adds both
    for i, part in enumerate(_PARTS.split(asked)):
        more = adding[0] if adding and i and part[:1].isdigit() else ""
        try:
            meant = definite(found, part.strip())
            said += [meant] if meant != part.strip() else []
            found, kind = _one(found, resolve(found), more + meant)
        except AdvisorError as error:
            if error.field == FIELD:
                raise
            raise InvalidInput(f"`{text[:120]}`: {error.detail}", field=FIELD, choices=error.choices) from error
        kinds.append(kind)
    kind = kinds[0] if len(set(kinds)) == 1 else "several"
    memory = memory_of(found)
    said += [memory] if memory and found.cpu != hardware.cpu and memory != memory_of(hardware) else []
    aloud = f" ({', '.join(said)})" if said else ""
    return _upgrade(f"{text}{aloud}", kind, found, rig)


def usual(hardware: Hardware, rig: Rig) -> Iterator[Upgrade]:
    """Yield the usual single upgrades: one more of each card, twice the RAM or as
    much as its board takes, a full link, the next speed of memory."""
    shared = any(card.unified for card in rig.cards)
    if shared and not has_modules(hardware):
        return  # one chip: nothing can be added
    sizes = [
        (card.name, gpu.vram_gib) for gpu in hardware.gpus for card in resolve(replace(hardware, gpus=[gpu])).cards
    ]
    more_fit = len(rig.cards) < MAX_CARDS and not shared
    for name, gib in dict.fromkeys(sizes or [(_FIRST_CARD, None)]) if more_fit else ():
        yield changed(hardware, rig, f"+1 {name} {gib:g}GB" if gib else f"+1 {name}")
    ram_gb = rig.ram_bytes // GIB
    more = min(2 * ram_gb, most_memory(hardware) or 2 * ram_gb) - ram_gb
    if more > 0:
        yield changed(hardware, rig, f"{more} GB more RAM")
    widest = replace(hardware, gpus=[replace(gpu, pcie=None) for gpu in hardware.gpus])  # of cards and platform
    if _links(resolve(widest).cards) > _links(rig.cards):
        yield _upgrade("the fastest link that cards and board support", "link", widest, rig)
    yield from _faster_memory(hardware, rig)


def _upgrade(text: str, kind: Component, after: Hardware, rig: Rig) -> Upgrade:
    new = resolve(after)
    vram = sum(card.total for card in new.cards) - sum(card.total for card in rig.cards)
    return Upgrade(text, kind, after, round(vram / GIB, 2), round((new.ram_bytes - rig.ram_bytes) / GIB, 2))


def _links(cards: Sequence[Card]) -> float:
    return sum(card.pcie_gbs for card in cards)


def _faster_memory(hardware: Hardware, rig: Rig) -> Iterator[Upgrade]:
    ram = hardware.ram or Ram()
    rates = rates_of(hardware) if ram.mts else ()
    if rates:
        kind, channels = kind_of(hardware), f" x{ram.channels}" if ram.channels else ""
        found = changed(hardware, rig, f"{kind}-{rates[0]}{channels}")
        if resolve(found.hardware).cpu_bandwidth_gbs > rig.cpu_bandwidth_gbs:
            yield found


def _reworded(text: str) -> str:
    """Return a sentence as the examples would have it; the text itself where it is none."""
    text = re.sub(r"^(?:swap\s)?(.+?)\s?(?:->|→|=>)\s?(.+)$", r"swap \1 for \2", text, flags=re.I)
    if (gone := _REMOVE.fullmatch(text)) and not _NO_GPU.fullmatch(text):
        n = "2" if (gone[1] or "").lower() == "both" else NUMBERS.get((gone[1] or "one").lower(), gone[1])
        return f"-{n} {gone[2]}"
    swaps = ((_SWAP, r"\2 instead of \1"), (_INSTEAD, r"\1 instead of it"), (_TO, r"\1 instead of it"))
    for sentence, form in swaps:
        if found := sentence.fullmatch(text):
            return found.expand(form)
    added = _ADD.fullmatch(text)
    if added is None or not (added["add"] or added["more"]) or _MORE.fullmatch(text):
        at = _AT_LINK.fullmatch(text)
        return f"{at[2]} for {'all' if _ALL.fullmatch(at[1]) else f'the {at[1]}'}" if at else text
    if not re.search(r"\d", added["what"]):  # `more power`: no part that anyone sells
        return text
    n = NUMBERS.get((added["n"] or "one").lower(), added["n"])
    is_size = _MORE.fullmatch(added["what"]) or _MODULES.match(added["what"])
    return f"+{n}x{added['what']}" if is_size and added["n"] else f"+{'' if is_size else f'{n} '}{added['what']}"


def _one(hardware: Hardware, rig: Rig, text: str) -> tuple[Hardware, Component]:
    if not text or len(text) > 200:
        raise _unclear(text)
    if why := next((why for pattern, why in _NOT_COUNTED if re.fullmatch(pattern, text, re.I)), None):
        raise InvalidInput(f"`{text[:120]}`: {why}", field=FIELD)
    if _EITHER.search(text):
        raise InvalidInput(f"`{text[:120]}`: which of the two? ask each as a question of its own", field=FIELD)
    nth = _NTH.match(text)
    if _HEADLESS.fullmatch(text):
        return _without_display(hardware, rig, text), "GPU"
    text = _reworded(re.sub(r"\b(x\d{1,2})(?:/\1)+\b", r"\1", text))  # `x8/x8`
    if _NO_GPU.fullmatch(text):
        return replace(hardware, gpus=[]), "GPU"
    if link := _LINK.fullmatch(text):
        return _with_link(hardware, link, text), "link"
    if signed := _SIGN.fullmatch(text):
        found, kind = _signed(hardware, rig, signed[2], 1 if signed[1] == "+" else -1, text)
        if nth:
            _refuse_if_there(found.gpus, nth[1].lower(), text)
        return found, kind
    if (more := _MORE.fullmatch(text)) and _SAYS_MORE.search(text):
        return _signed(hardware, rig, f"{more[1]} {more[2]} RAM", 1, text)
    new, instead, old = text.partition(" instead of ")
    if instead:
        return _replaced(hardware, rig, _parsed(new), old, text)
    return _stated(hardware, _parsed(text), text)


def _refuse_if_there(gpus: Sequence[Gpu], nth: str, text: str) -> None:
    """Raise InvalidInput for a `second 3090` where there were two: the last of `gpus` is the one that came."""
    n = sum(gpu.count for gpu in gpus if _name(gpu) == _name(gpus[-1]))
    if n > {"second": 2, "third": 3}[nth]:
        said = f"there are {n - gpus[-1].count} already: write `{text}` for another"
        raise InvalidInput(f"`{nth} {gpus[-1].name[:80]}`: {said}", field=FIELD)


def _without_display(hardware: Hardware, rig: Rig, text: str) -> Hardware:
    """The hardware with no monitor on its cards, and all of the memory free of the card that had it."""
    if not any(card.display for card in rig.cards):
        said = "no card is said to drive a monitor, so nothing is kept free for one"
        raise InvalidInput(f"`{text[:120]}`: {said}: mark it in the hardware, as in `RTX 3090 [display]`", field=FIELD)
    freed = [replace(gpu, display=False, free_gib=None if gpu.display else gpu.free_gib) for gpu in hardware.gpus]
    return replace(hardware, gpus=freed)


def _replaced(hardware: Hardware, rig: Rig, new: Hardware, old: str, text: str) -> tuple[Hardware, Component]:
    if machine := _whole_machine(new):
        return machine, "several"
    if not new.gpus:
        return _stated(hardware, new, text)
    _refuse_on_mac(rig, text)
    if _ALL.fullmatch(old) and len(new.gpus) == 1:
        return replace(hardware, gpus=new.gpus), "GPU"
    gone = replace(hardware, gpus=_only_kind(hardware, text)) if _ONLY.fullmatch(old) else _parsed(old)
    if len(new.gpus) != 1 or len(gone.gpus) != 1:
        raise _unclear(text)
    return _with_cards(_without_cards(hardware, gone.gpus[0]), new.gpus[0]), "GPU"


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
    text = f"RAM at {text}" if RATE.fullmatch(text) else text
    found = parse_hardware(text, gpus_required=False)
    if found.notes and is_of_taken(found.notes):  # of a processor; with RAM it is a machine by itself
        found = replace(found, gpus=found.gpus if found.ram else [], notes=None)
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
    """The new card gets its own entry: what others have stated (count, UUIDs, memory in use) does not apply to it.

    A processor's own GPU is left out beside it, as in a request that names both.
    """
    own = graphics_of((hardware.cpu and hardware.cpu.model) or "")
    return replace(hardware, gpus=[*(gpu for gpu in hardware.gpus if gpu.name not in own), new])


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


def _with_link(hardware: Hardware, link: re.Match[str], text: str) -> Hardware:
    """The hardware with another link for the cards named, or those with the link that is replaced, else for all."""
    if not hardware.gpus:
        raise InvalidInput(f"`{text[:120]}`: there is no GPU", field=FIELD)
    generation, width, old = link[1], link[2] or link[3], link[6]
    named = {_name(Gpu(name=name)) for name in (link[4], link[4].removesuffix("s"))} if link[4] else None
    before = f"x{old}" if old else None
    chosen = [
        gpu for gpu in hardware.gpus
        if (named is None or _name(gpu) in named) and (before is None or (gpu.pcie or "").endswith(before))
    ] or ([] if named else hardware.gpus)  # fmt: skip
    if not chosen:
        raise InvalidInput(f"`{text[:120]}`: there is no {link[4]}", field=FIELD)
    linked = [replace(gpu, pcie=_link(gpu, generation, width)) if gpu in chosen else gpu for gpu in hardware.gpus]
    return replace(hardware, gpus=linked)


def _link(gpu: Gpu, generation: str | None, width: str | None) -> str:
    """The link of a card with another generation or number of lanes: what is not said stays as it was."""
    now = re.fullmatch(r"(?:([1-6])\.0)?\s?(?:x(\d{1,2}))?", gpu.pcie or "")
    generation, width = generation or (now and now[1]), width or (now and now[2])
    return " ".join([*([f"{generation}.0"] if generation else []), *([f"x{width}"] if width else [])])


def _stated(hardware: Hardware, found: Hardware, text: str) -> tuple[Hardware, Component]:
    """The hardware with RAM, a CPU or a system that replaces what is there, or the whole machine that was found."""
    if machine := _whole_machine(found):
        return machine, "several"
    if found.gpus and not hardware.gpus and not found.ram and not found.cpu:
        return replace(hardware, gpus=found.gpus), "GPU"
    if found.gpus:
        sizes = [f" {gpu.vram_gib:g}GB" if gpu.vram_gib else "" for gpu in found.gpus]
        cards = " + ".join(f"{gpu.count}x {gpu.name}{gb}" for gpu, gb in zip(found.gpus, sizes, strict=True))
        right = f"write `+{cards}` or `{cards} instead of all`"
        raise InvalidInput(f"`{text[:120]}`: besides the GPUs there, or instead of them? {right}", field=FIELD)
    kinds = list[Component]()
    if found.cpu is not None:
        if found.cpu.model is None or cpu_row(found.cpu.model) is None:
            raise _unclear(text)
        sockets = found.cpu.sockets or (hardware.cpu.sockets if hardware.cpu else None)
        other = replace(hardware, cpu=Cpu(model=found.cpu.model, sockets=sockets))
        hardware = on_its_board(other, hardware)
        kinds.append("CPU")
    if found.ram is not None:
        hardware, kind = with_memory(hardware, found.ram, text)
        kinds.append(kind)
    if found.os is not None:
        hardware = _with_system(hardware, found.os, text)
        kinds.append("system")
    if not kinds:
        raise _unclear(text)
    return hardware, kinds[0] if len(kinds) == 1 else "several"


def _with_system(hardware: Hardware, system: str, text: str) -> Hardware:
    rig = resolve(hardware)
    if any(card.backend == "metal" for card in rig.cards):
        raise _unclear(text)
    if (today := os_family(hardware.os or rig.os)) == os_family(system):
        right = "if it runs another, name that in the hardware, as in `RTX 3090, 64GB RAM, Windows 11`"
        raise InvalidInput(f"`{text[:120]}`: the machine is taken to run {today}: {right}", field=FIELD)
    return replace(hardware, os=system)


def _unclear(text: str) -> InvalidInput:
    return InvalidInput(
        f"`{text[:120]}` was not understood as a change of the machine: write it as in the examples",
        field=FIELD,
        choices=_EXAMPLES,
    )
