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
from service.engine.units import GIB

FIELD = "what_if"
MAX_CARDS = 16
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
    r"^(?:and\s)?(?:(?:what|how)\s(?:if|about)\s|if\s|would\s|with\s)(?:(?:i|we)\s)?(?:(?:had|have|got|get|used?|ran|run)\s)?"
    r"|\s(?:help|be\s(?:any\s)?(?:better|faster)|be\sworth\sit)$",
    re.I,
)
_SWAP = re.compile(
    r"(?:swap|replace|exchange|trade|upgrade|raise|overclock)\s(?:from\s)?(?:an?\s|the\s|my\s)?(.+?)\s(?:for|with|by|to)\s(?:an?\s|the\s)?(.+)",
    re.I,
)
_TO = re.compile(r"(?:upgrade|switch|move|change|go)\sto\s(?:an?\s)?(.+)", re.I)
_INSTEAD = re.compile(r"(.+)\sinstead", re.I)
_REMOVE = re.compile(
    r"(?:remove|sell|take out)\s(?:the\s|my\s|an?\s|of\s)?(?:(one|two|both|three|four|[1-9])\s)?(.+)", re.I
)
_ONLY = re.compile(r"(?:it|that|(?:(?:my|the|this)\s)?(?:current\s|old\s)?(?:gpu|card|graphics card))", re.I)
_ALL = re.compile(r"both|them|all(?: of (?:them|it))?|(?:both |all )?(?:my |the |of the )?(?:gpus|cards)", re.I)
_RATE = re.compile(r"(\d{4,5})(?:\s?(?:mt/s|mts|mhz))?", re.I)
_PROFILE = re.compile(
    r"(?:with\s|enabled?\s|enabling\s|turn(?:ing)?\son\s)?(?:xmp|expo|docp)\b(?:\son|\senabled)?(?:\s(?:at|to|@)\s(.+))?",
    re.I,
)
_FASTER = re.compile(
    r"(?:an?\s|some\s|buy\s|get\s)?(?:faster|quicker|better)\s(?:ram|memory|ddr\d?)(?:\s(?:sticks?|kit|modules?|speeds?))?",
    re.I,
)
_DOUBLE = re.compile(r"(?:double|twice|2x)\s(?:the\s|my\s|as much\s)?(?:ram|memory)", re.I)
_HEADLESS = re.compile(
    r"headless|(?:no|without(?: an?)?) (?:monitor|display|screen)s?(?: .{1,40})?"
    r"|(?:(?:move|plug|connect|put|attach)\s)?(?:the\s|my\s)?(?:monitor|display|screen)s?\s(?:on|to|into|in|from|via)\s(?:the\s|my\s)?"
    r"(?:i-?gpu|integrated (?:gpu|graphics)|onboard(?: graphics)?|motherboard|mainboard|cpu)",
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
        r"(?:overclock|undervolt|power.?limit)\w*\b(?!.*\b(?:ram|memory)\b).*",
        "clocks and power limits of cards do not count here: cards are taken as they are sold",
    ),
)
_MODULES = re.compile(r"\d{1,2}\s?x\s?\d{1,3}\s?(?:gb|gib|g)\b", re.I)
_MORE = re.compile(
    r"(?:another |an extra )?([1-9]\d{0,5})\s?(gb|gib|tb)(?: of)?(?: more| extra)?(?: ram| memory)?", re.I
)
_SAYS_MORE = re.compile(r"\b(?:more|extra|another)\b", re.I)
_TO_CARD = r"(?:pci-?e?\s?(?:gen\s?)?([1-6])(?:\.0)?(?:\s?x\s?(\d{1,2}))?|(?:pci-?e\s)?x\s?(\d{1,2}))"
_LINK = re.compile(
    rf"{_TO_CARD}(?: for (?:all|the (.{{1,60}}?)))?"
    r"(?: instead of (?:pci-?e?\s?)?(?:([1-6])(?:\.0)?\s?)?(?:x\s?(\d{1,2}))?)?",
    re.I,
)
# `3090 at PCIe 4.0 x16`, `move the 3090 to an x8 slot`, `both at x8`
_AT_LINK = re.compile(
    rf"(?:(?:move|put|run)\s)?(?:the\s|my\s)?([^+−–-].{{1,60}}?)\s(?:at|on|in|into|to)\s(?:an?\s|the\s)?(?:full\s)?"
    rf"({_TO_CARD})(?:\s(?:slots?|lanes?|risers?|each))?",
    re.I,
)
_PARTS = re.compile(r"\s*(?:[,;]|\band\b)\s*", re.I)
_SIGN = re.compile(r"([+\-−–])\s*(.+)")
_SPEEDS = {
    "DDR4": (2133, 2400, 2666, 2933, 3200),
    "DDR5": (4800, 5200, 5600, 6000, 6400),
}  # JEDEC's rates that modules are sold with
_DDR5_FROM = 4400
_DESKTOP_CHANNELS = 2  # CPUs with more take no faster modules than their makers state
_OF_TWO_KINDS = ("alder lake", "raptor lake")  # with boards for DDR4 and for DDR5


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
            definite = _definite(found, part.strip())
            said += [definite] if definite != part.strip() else []
            before, (found, kind) = found, _one(found, resolve(found), more + definite)
            found = _on_its_board(found) if kind == "CPU" else found
            said += [_memory(found)] if kind == "CPU" and _memory(found) != _memory(before) else []
        except AdvisorError as error:
            if error.field == FIELD:
                raise
            raise InvalidInput(f"`{text[:120]}`: {error.detail}", field=FIELD, choices=error.choices) from error
        kinds.append(kind)
    kind = kinds[0] if len(set(kinds)) == 1 else "several"
    aloud = f" ({', '.join(said)})" if said else ""
    return _upgrade(f"{text}{aloud}", kind, found, rig)


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
    rates = _rates(hardware) if ram.mts else ()
    if rates:
        kind, channels = _kind(hardware), f" x{ram.channels}" if ram.channels else ""
        found = changed(hardware, rig, f"{kind}-{rates[0]}{channels}")
        if resolve(found.hardware).cpu_bandwidth_gbs > rig.cpu_bandwidth_gbs:
            yield found


def _rates(hardware: Hardware) -> list[int]:
    """The rates at which modules of the machine's kind are sold that are faster than its own, and that a server's CPU
    takes."""
    row = cpu_row(hardware.cpu.model) if hardware.cpu and hardware.cpu.model else None
    most = row.mts if row and row.mts and (row.channels or 0) > _DESKTOP_CHANNELS else None
    return [mts for mts in _SPEEDS.get(_kind(hardware), ()) if _mts(hardware) < mts <= (most or mts)]


def _mts(hardware: Hardware) -> int:
    stated = (hardware.ram or Ram()).mts
    return stated or next((int(a.value) for a in resolve(hardware).assumed if a.field == "hardware.ram.mts"), 0)


def _kind(hardware: Hardware) -> str:
    ram = hardware.ram or Ram()
    row = cpu_row(hardware.cpu.model) if hardware.cpu and hardware.cpu.model else None
    of_cpu = row.memory if row and ram.mts is None else None
    return (ram.type or of_cpu or ("DDR5" if _mts(hardware) >= _DDR5_FROM else "DDR4")).upper()


def _memory(hardware: Hardware) -> str:
    """Kind, rate and channels of the RAM, as stated or as taken: `DDR5-4800 x12`."""
    channels = (hardware.ram or Ram()).channels or next(
        (a.value for a in resolve(hardware).assumed if a.field == "hardware.ram.channels"), ""
    )
    return f"{_kind(hardware)}-{_mts(hardware)} x{channels}"


def _definite(hardware: Hardware, text: str) -> str:
    """Return what a vague change is taken for: `faster RAM` for the fastest that is sold; others as they are."""
    ram_gb = resolve(hardware).ram_bytes / GIB
    if _DOUBLE.fullmatch(text):
        return f"{ram_gb:.0f} GB more RAM"
    profile = _PROFILE.fullmatch(text)
    if profile and profile[1]:
        return profile[1] if not _RATE.fullmatch(profile[1]) else f"RAM at {profile[1]}"
    if not profile and not _FASTER.fullmatch(text):
        return text
    rates, kind = _rates(hardware), _kind(hardware)
    if kind not in _SPEEDS:
        raise InvalidInput(f"`{text[:120]}`: {kind} is soldered: no other can be put in", field=FIELD)
    if profile or not rates:
        example = f"{kind}-{rates[-1]}" if rates else "DDR4-3600" if kind == "DDR4" else "DDR5-8000"
        now = f"the RAM is taken as {kind}-{_mts(hardware)}"
        raise InvalidInput(f"`{text[:120]}`: {now}; how fast would it be? Write it as in `{example}`", field=FIELD)
    return f"{kind}-{rates[-1]}"


def _on_its_board(hardware: Hardware) -> Hardware:
    """The hardware with RAM of the kind that its CPU takes, at the usual rate, if it was of another."""
    ram, kind = hardware.ram or Ram(), _only_memory(hardware)
    if ram.type is None or kind is None or ram.type.upper() == kind:
        return hardware
    return replace(hardware, ram=Ram(total_gb=ram.total_gb, type=kind))


def _only_memory(hardware: Hardware) -> str | None:
    """The kind of modules that a CPU takes; None if it is unknown, or if there are boards for two."""
    row = cpu_row(hardware.cpu.model) if hardware.cpu and hardware.cpu.model else None
    return row.memory if row and row.memory in _SPEEDS and row.generation not in _OF_TWO_KINDS else None


def _reworded(text: str) -> str:
    """Return a sentence as the examples would have it; the text itself where it is none."""
    if gone := _REMOVE.fullmatch(text):
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
    if _HEADLESS.fullmatch(text):
        return _without_display(hardware, text), "GPU"
    text = _reworded(re.sub(r"\b(x\d{1,2})(?:/\1)+\b", r"\1", text))  # `x8/x8`
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


def _without_display(hardware: Hardware, text: str) -> Hardware:
    """The hardware with no monitor on its cards, and all of the memory free of the card that had it."""
    if not any(gpu.display for gpu in hardware.gpus):
        said = "no card is said to drive a monitor, so nothing is kept free for one"
        raise InvalidInput(f"`{text[:120]}`: {said}: mark it in the hardware, as in `RTX 3090 [display]`", field=FIELD)
    freed = [replace(gpu, display=None, free_gib=None) if gpu.display else gpu for gpu in hardware.gpus]
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
    text = f"RAM at {text}" if _RATE.fullmatch(text) else text
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
        hardware = replace(hardware, cpu=Cpu(model=found.cpu.model, sockets=sockets))
        kinds.append("CPU")
    if found.ram is not None:
        hardware, kind = _with_memory(hardware, found.ram, text)
        kinds.append(kind)
    if found.os is not None:
        hardware = _with_system(hardware, found.os, text)
        kinds.append("system")
    if not kinds:
        raise _unclear(text)
    return hardware, kinds[0] if len(kinds) == 1 else "several"


def _with_memory(hardware: Hardware, new: Ram, text: str) -> tuple[Hardware, Component]:
    old, kind = hardware.ram or Ram(), _only_memory(hardware)
    if new.type and kind and new.type.upper() != kind and (old.type or kind).upper() == kind and hardware.cpu:
        raise InvalidInput(f"`{text[:120]}`: the {hardware.cpu.model} takes {kind}", field=FIELD)
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
