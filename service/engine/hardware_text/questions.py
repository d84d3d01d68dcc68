"""Questions to ask about a text: alternatives, plans, and words that may be part of the machine."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from itertools import pairwise

from service.engine.catalogue.limits import MAX_GPUS
from service.engine.catalogue.names import gpu_rows, misspelt, nearest
from service.engine.errors import InvalidHardware
from service.engine.hardware import Gpu, Hardware
from service.engine.hardware_text import lexicon as lex
from service.engine.hardware_text.cards import INSTALLED, fits, usual
from service.engine.hardware_text.found import unreadable
from service.engine.hardware_text.mentions import Mention, Size

KINDS = "write GPUs, CPU and RAM with commas between them, as in `2x RTX 3090, EPYC 9355, 512GB DDR5-4800 x8`"
OF_WHAT = f"of what? A machine has {MAX_GPUS} GPUs at most; {KINDS}"
MACHINE = "describe only the one machine that will run the model"

_MOBILE = re.compile(r"\d(?:MX?|S)(?: XT)?$|\bMX\d|laptop", re.I)  # names of GPUs that only laptops have
_LANES = (4, 8, 16)
_OF_OPTION = 3  # characters between its name and its value
_BARE = 3  # characters, beyond which a card is known by its number alone
_OF_ONE = re.compile(
    r"(?<!each )(?<!every )(?<!no )\b(?:one|first|second|third|fourth|1st|2nd|3rd|4th|last|other)\b"
    r"(?:\sof\s(?:them|the\s(?:cards|gpus)))?(?:\s(?:one|card|gpu))?(?:\s(?:is|sits|runs|running|connected|only|on|at|in|via|an?|the))*\s?$",
    re.I,
)
_ON_A_BOARD = {
    "Tesla K80": 2, "Tesla M60": 2, "Tesla M10": 4, "NVIDIA A16": 4, "AMD Instinct MI250": 2, "AMD Instinct MI250X": 2,
    "AMD Radeon Pro W6800X Duo": 2, "AMD Radeon Pro Vega II Duo": 2,
}  # fmt: skip
_MEMORY_DECIDES = re.compile(r"Apple M|AMD Radeon 80[56]0S")  # sold with 8 to 512 GB, all of it the GPU's


def ask_about_shared_memory(hardware: Hardware, text: str) -> None:
    """Raise InvalidHardware for a Mac or Strix Halo without stated memory, on which everything depends.

    A name in quotes is our own form of a machine given as JSON, where memory may be left out.
    """
    stated = hardware.ram is not None and (hardware.ram.total_gb or hardware.ram.free_gb)
    for gpu in hardware.gpus if not stated else ():
        rows = gpu_rows(gpu.name)
        if rows and gpu.vram_gib is None and f'"{gpu.name}"' not in text and _MEMORY_DECIDES.match(rows[0].name):
            raise unreadable(
                gpu.name, f"how much memory does it have? Write it after the name, as in `{rows[0].name}, 128GB`"
            )


def ask_about_version(hardware: Hardware) -> None:
    """Raise InvalidHardware for `E5-2680` with DDR4, which only its v3 and v4 take."""
    cpu, ram = hardware.cpu, hardware.ram
    old = re.search(r"\be5[-\s]?([1246]6\d\d[alw]?)\b(?!\s?v\d)", cpu.model, re.I) if cpu and cpu.model else None
    if cpu and old and ram and (ram.type or "").upper() == "DDR4":
        raise unreadable(f"{cpu.model}, DDR4", f"which version is it? Write `E5-{old[1]} v3` or `E5-{old[1]} v4`")


def ask_about_unknown(gpus: Sequence[Gpu], quoted: Container[str]) -> None:
    """Raise InvalidHardware for a card missing from the catalogue if only its size is stated: more must be known."""
    for gpu in gpus:
        if gpu.name not in quoted and gpu.vram_gib and not gpu.bandwidth_gbs and not gpu_rows(gpu.name):
            near = ", ".join(nearest(gpu.name, n=3))
            right = f'`gpu "{gpu.name}" [{gpu.vram_gib:g} GiB; 900 GB/s]`'
            raise unreadable(gpu.name, f"no GPU of that name is known ({near}?); to use it anyway, write {right}")


def ask_about_boards(gpus: Sequence[Gpu], quoted: Container[str], text: str) -> None:
    """Raise InvalidHardware for `2x K80`, a board of two GPUs, if the memory of one GPU is not stated with it."""
    for gpu in gpus:
        rows = gpu_rows(gpu.name)
        n = _ON_A_BOARD.get(rows[0].name, 1) if rows and gpu.name not in quoted else 1
        if n > 1 and not re.search(rf"(?<!\d){rows[0].vram_gib:g}(?:\.0)?\s?g", text, re.I):
            each = f"{n} GPUs of {rows[0].vram_gib:g} GB"
            right = f"`{n * gpu.count}x {gpu.name} {rows[0].vram_gib:g}GB`"
            raise unreadable(f"{gpu.count}x {gpu.name}", f"a board of it has {each}: write {right}")


def are_of_macs(gpus: Sequence[Gpu]) -> bool:
    """Return whether all cards are such as Apple sold in Macs with Intel's processors."""
    rows = [gpu_rows(gpu.name) for gpu in gpus]
    return all(found and re.search(r"Radeon Pro|FirePro D", found[0].name) for found in rows)


def ask_about_machines(hardware: Hardware, text: str) -> None:
    """Raise InvalidHardware for GPUs that are not in one machine: two that share the RAM, or a Mac's and a card.

    Names in quotes are taken as they are.
    """
    gpus = [gpu for gpu in hardware.gpus if f'"{gpu.name}"' not in text]
    named = {rows[0].name if (rows := gpu_rows(gpu.name)) else gpu.name: rows[:1] for gpu in gpus}
    shared = [row for rows in named.values() for row in rows if row.unified]
    whole = [row.name for row in shared if row.backend in ("metal", "cuda")]  # and a Jetson's or a DGX Spark's
    if len(named) > 1 and (whole or len(shared) > 1):
        names = " + ".join(named)
        said = f"no machine with the {whole[0]} has another GPU" if whole else "no machine has both"
        raise unreadable(names, f"{said}. Several machines? {MACHINE.capitalize()}")


def ask_about_laptop(gpu: Gpu, *, is_known: bool) -> None:
    """Raise InvalidHardware for a laptop's GPU of which the catalogue knows only the desktop card.

    A laptop's usually has less memory. `is_known`: its memory is stated.
    """
    rows = gpu_rows(gpu.name)
    if rows and not is_known and gpu.vram_gib is None and not rows[0].unified and not _MOBILE.search(rows[0].name):
        said = f"only {rows[0].name} for desktops is known"
        raise unreadable(f"{gpu.name} laptop", f"{said}: write the laptop's memory after it, as `{gpu.name} [8 GiB]`")


def ask_about_plural(m: Mention, counts: Sequence[int] = ()) -> None:
    """Raise InvalidHardware for a plural without a count, and for one that may be another card's name.

    `counts`: those of cards stated apart, of which a plural gets the last: `4 GPUs, A10Gs`.

    `2 L40s` and `4x V100s` may be the card with or without an S; `4070s` may be several or a SUPER.
    """
    if m.plural and m.count is None and counts:
        m.count = counts[-1]
    if m.plural and m.count is None:
        one = f"`{m.name} SUPER`" if gpu_rows(f"{m.name} SUPER") else ""
        raise unreadable(m.text, f"write how many of them in front: `2x {m.name}`{', or ' + one if one else ''}")
    if m.plural and re.search(r"\ds$", m.text, re.I) and gpu_rows(f"{m.name} SUPER") and m.name.isdigit():
        raise unreadable(m.text, f"write how many of them in front: `{m.count}x {m.name}`, or `{m.name} SUPER`")
    if (m.count or 1) > 1 and re.search(r"\d{4}s$", m.name) and gpu_rows(f"{m.name[:-1]} SUPER"):  # `2x 1660s`
        card = m.name[:-1]
        raise unreadable(m.text, f"write which card it is: `{m.count}x {card}`, or `{m.count}x {card} SUPER`")
    if (m.count or 1) == 1 or not re.search(r"[a-z]\d+s$", m.name, re.I) or not m.name.endswith("s"):
        return
    without, rows = gpu_rows(m.name[:-1]), gpu_rows(m.name)
    alike = {row.vram_gib for row in without} == {row.vram_gib for row in rows}
    is_name = alike and re.match(r"\(?\d+\s?[x*]", m.text) is not None  # `4x L40s`: nothing in it asks for a plural
    if without and not is_name and not {row.name for row in without} & {row.name for row in rows}:
        said = f"`{m.count}x {m.name[:-1]}` or `{m.count}x {m.name[:-1]}S`"
        raise unreadable(m.text, f"which card is it? Write {said}")


def ask_about_repeated(m: Mention, gpus: Sequence[Gpu], same: Sequence[int]) -> None:
    """Raise InvalidHardware for a GPU named again, amid others or with another number: `My 3090 rig: …, 2x 3090`."""
    if same != [len(gpus) - 1] or gpus[-1].count != (m.count or 1):
        raise unreadable(m.text, f"it was named before: how many are there in total? Write `2x {m.name}` once")


def ask_about_some(m: Mention, text: str) -> None:
    """Raise InvalidHardware for `several 3090`."""
    after = text[m.end : m.end + 30].lower()
    if re.match(r"\s+(?:of\s+)?(?:rtx|gtx|rx|nvidia|amd|[a-z]{0,2}\d{2,4})", after):
        raise unreadable(f"{m.text}{after.rstrip()}", "how many are there? Write `2x`")


def ask_whose(text: str, stated: Sequence[Size], cards: Sequence[Gpu]) -> None:
    """Raise InvalidHardware for `RTX 5090 with 32GB of RAM`, which is also the card's own memory."""
    if len(stated) != 1 or not cards or stated[0].at == 0:
        return
    size, gpu = stated[0], cards[0]
    together = sum((card.vram_gib or usual(card)) * card.count for card in cards)
    n_cards = sum(card.count for card in cards)
    listed = "," in text[: size.at][-3:] or "\n" in text[: size.at][-3:]  # lists end with the RAM
    may_be_all = size.gb == together and (n_cards == 1 or not listed or size.total)
    names_all = size.role == "bare" and (n_cards > 1 or size.gpu >= 0) and gpu.vram_gib is None and may_be_all
    if names_all and not any(row.unified for row in gpu_rows(gpu.name)):
        raise unreadable(size.text, f"is it the memory of the GPU or the machine's? Write `{size.gb:g}GB system RAM`")
    if len(cards) != 1:
        return
    unified = any(row.unified for row in gpu_rows(gpu.name))
    joined = re.search(r"(?:\bwith|\bhas|\bonly)\s+(?:only\s+|just\s+)?$", text[: size.at], re.I)
    if size.gb not in INSTALLED:  # `Quadro P6000, 24GB RAM`
        joined = joined or re.search(rf"{re.escape(gpu.name)},\s?$", text[: size.at], re.I)
    plainly = re.search(r"system|ddr\d", text[size.end : size.end + 14], re.I)
    may_be_either = gpu.vram_gib is None and (fits(gpu, size.gb) or size.gb == together) and not unified
    if size.role == "ram" and size.gpu == 0 and joined and may_be_either and not plainly:
        raise unreadable(
            size.text, f"is it the card's memory or the machine's? Write `{gpu.name}, {size.gb:g}GB system RAM`"
        )


def times_sockets(m: Mention, text: str, sockets: int | None) -> int:
    """Return how often the machine has a size: once a socket in `8x32GB per CPU`.

    Raises InvalidHardware if the sockets are unknown.
    """
    behind = lex.ROLE_PER_CPU.search(text[m.end : m.end + 48])
    if behind and sockets is None:
        raise unreadable(f"{m.text}{behind[0]}", "how much RAM does the machine have? Write the sum of all sockets")
    return sockets or 1 if behind else 1


Modules = tuple[float, int, str]  # their GB together, how many there are, and how that was written


def joined(kits: Sequence[Modules], stated: Container[float]) -> Modules:
    """Return several kits of modules together if that is the size that is stated, else the last one.

    Raises InvalidHardware if none is stated: `2x32GB, 2x16GB` may be both, or one that replaces the other.
    """
    texts = " + ".join(text for _, _, text in kits)
    whole = (sum(gb for gb, _, _ in kits), sum(n for _, n, _ in kits), texts)
    if whole[0] in stated and kits[-1][0] not in stated:
        return whole
    if not stated and len({kit[:2] for kit in kits}) > 1:
        raise unreadable(texts, f"are they {whole[0]:g} GB together? Write `{whole[0]:g}GB RAM`")
    return kits[-1]


def ask_about_lanes(n: int, name: str, said: str, mentions: Sequence[Mention]) -> None:
    """Raise InvalidHardware for `5090 (x16), 4090 (x4)` and `5090, 4090, second card x4`, where numbers of lanes look
    like those of cards. `said`: the text from the card's name to the number."""
    behind = [
        int(o.hit[1])
        for before, o in pairwise([o for o in mentions if o.kind != "size"])
        if o.kind == "count" and before.kind == "gpu" and before.count is None and o.hit[1]
    ]
    of_one = _OF_ONE.search(re.sub(r"x\d+\W*$", "", said)) is not None
    if n in _LANES and (of_one or n == max(_LANES) or sum(count in _LANES for count in behind) > 1):
        raise unreadable(said, f"{n} cards, or a link? Write `{n}x {name}`, or `{name} pcie x{n}`")


def ask_about_link_of_one(m: Mention, text: str, mentions: Sequence[Mention], n_cards: int) -> None:
    """Raise InvalidHardware for `4x 3090, one on x1`, where the link of one is the only one that is stated."""
    said = _OF_ONE.search(text, max(0, m.at - 60), m.at)
    of_one = [o for o in mentions if o.kind in ("link", "count") and _OF_ONE.search(text, max(0, o.at - 60), o.at)]
    if said and n_cards > 1 and len(of_one) == 1:
        right = "`3x RTX 3090 pcie 4.0 x16, RTX 3090 pcie 3.0 x1`"
        raise unreadable(
            f"{said[0]}{m.text}", f"which links do the other cards have? Write it after each, as in {right}"
        )


def ask_about_bare_link(m: Mention) -> None:
    """Raise InvalidHardware for `2x16` alone."""
    if bare := re.fullmatch(r"([1-6])\s?x\s?(4|8|16)", m.text) if m.gap == "," else None:
        right = f"`{bare[1]}x{bare[2]}GB RAM`, or `PCIe {bare[1]}.0 x{bare[2]}` after the GPU"
        raise unreadable(m.text, f"RAM or a link? Write {right}")


def ask_about_limits(text: str) -> None:
    """Raise InvalidHardware for memory that shall stay free: the request has limits for that."""
    if m := lex.TO_KEEP.search(text):
        of_ram = re.search(r"(?<!v)\bram\b|(?:system|main)\smemory", m[0], re.I)
        of_card = re.search(r"\bv-?ram\b|\b(?:gpu|card)s?\b|\bdisplay\b|\d{4}", m[0], re.I)
        limits = [] if of_ram and not of_card else ["`reserve_mib` (`--reserve-mib`), MiB to keep free on every GPU"]
        limits += [] if of_card and not of_ram else ["`max_ram_gib` (`--max-ram-gib`), the most GiB of RAM to use"]
        said = f"`{m[0].strip()}` is a limit, not hardware: leave it out"
        raise InvalidHardware(f"{said}, and give {'; or '.join(limits)}", field="hardware")


def ask_about_plans(text: str, mentions: Sequence[Mention]) -> None:
    """Raise InvalidHardware if a text names alternatives, or what its writer may buy."""
    parts = ("gpu", "cpu", "either", "apple", "size", "mac")
    for i, m in enumerate(mentions):
        label = lex.LABEL.match(text, m.end)
        labelled = range(label.end(), label.end() + len(label[1] or label[2] or "")) if label else ()
        around = [o for o in mentions if (o.clause == m.clause or o.at in labelled) and o.kind in parts]
        if m.kind == "doubt" and i + 1 < len(mentions) and any(o.kind in parts for o in mentions[i + 1 : i + 3]):
            start = max(text.rfind(c, 0, max(0, m.at - 30)) for c in " \n") + 1
            said = text[start : m.end + 30].strip()
            raise unreadable(said, f"which of the two? {MACHINE}")
        if m.kind == "plan" and any(o.kind in ("gpu", "apple", "either", "mac", "size") for o in around):
            said = text[min(m.at, around[0].at) : max(m.end, around[-1].end)]
            raise unreadable(said, f"no GPU or CPU of that name alone, as it may be a plan: {MACHINE}")


def _is_named_by(m: Mention, before: Mention | None, mentions: Sequence[Mention]) -> bool:
    """Return whether a number is that of the word before it, as in `node 2` or `moe_layers: 26`, and of no part."""
    if (
        before is None
        or before.kind != "word"
        or m.gap == ","
        or m.at - before.end > (_OF_OPTION if "_" in before.text else 1)
    ):
        return False
    parts = [o for o in mentions if o.clause == m.clause and o.kind in ("gpu", "either", "apple", "cpu")]
    return before.text.isascii() and not parts and not lex.COUNTING.fullmatch(before.text)


def ask_about_word(m: Mention, i: int, mentions: Sequence[Mention]) -> None:
    """Raise InvalidHardware for a word that may be a part: a number, or almost a name."""
    before = mentions[i - 1] if i else None
    is_models = before is not None and before.kind == "word" and m.at - before.end == 1
    if lex.HARMLESS.fullmatch(m.text) or (is_models and re.fullmatch("8b|24b|32b", m.text, re.I)):  # `ministral 8b`
        return
    is_behind = before is not None and m.at - before.end == 1 and lex.OF_COMPUTER.fullmatch(before.text) is not None
    if is_behind and lex.MODEL_OF_COMPUTER.fullmatch(m.text):
        return
    if m.text.lower() in lex.NUMBERS or re.fullmatch(r"\d{1,2}x", m.text, re.I):
        raise unreadable(m.text, f"of what? {KINDS}")
    if before and before.kind == "gpu" and m.gap == "" and re.fullmatch(r"ti|super|xtx?|gre|max-?q", m.text, re.I):
        cards = ", ".join(nearest(f"{before.name} {m.text}", n=3))
        raise unreadable(f"{before.text} {m.text}", f"no GPU of that name ({cards}?); {KINDS}")
    behind = mentions[i + 1] if i + 1 < len(mentions) else None
    counts_behind = (
        behind and behind.kind == "gpu" and behind.at <= m.end + 1 and re.fullmatch(r"\d[\d.e]+x", m.text, re.I)
    )
    counts_before = before and before.kind == "gpu" and m.gap == "with" and re.fullmatch(r"\d{5,}", m.text)
    if counts_behind or counts_before:
        raise unreadable(m.text, f"a machine has a whole number of GPUs, {MAX_GPUS} at most; {KINDS}")
    if (
        behind
        and behind.kind == "size"
        and behind.gap != ","
        and re.fullmatch(r"[a-z]{1,3}\d{2,4}[a-z]?", m.text, re.I)
    ):
        raise unreadable(f"{m.text} {behind.text}", f"no GPU of that name; {KINDS}")
    if any(len(part) > _BARE and "." not in part and gpu_rows(part) for part in m.text.split("-")[:-1]):
        raise unreadable(m.text, f"no GPU of that name; {KINDS}")
    if not re.search(r"\d", m.text) or i > 60 or re.fullmatch(r"\d+(?:\.\d+)+\w?", m.text):
        return
    if re.fullmatch(r"\d{1,2}", m.text) and not _is_named_by(m, before, mentions):
        raise unreadable(m.text, f"the number of what? {KINDS}")
    if re.fullmatch(r"\d+[kmgt]i?b", m.text, re.I):
        raise unreadable(m.text, f"no size of a machine's RAM or VRAM; {KINDS}")
    digits = re.fullmatch(r"\d{3,4}", m.text)
    if re.fullmatch(r"\d{3,}", m.text) and behind and behind.kind == "gpu" and behind.at <= m.end + 1:
        raise unreadable(f"{m.text} {behind.text}", f"a machine has {MAX_GPUS} GPUs at most; {KINDS}")
    near = misspelt(m.text) if not digits else ()
    if digits or near or re.fullmatch(r"\d+\w?b", m.text, re.I):
        meant = f" ({', '.join(near)}?)" if near else ""
        raise unreadable(m.text, f"no GPU or CPU of that name{meant}; {KINDS}")
