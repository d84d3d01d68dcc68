"""Relations between parts that were read: which are the same, which come with another."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from service.engine.catalogue.families import family_of
from service.engine.catalogue.names import cpu_key, cpu_row, gpu_rows
from service.engine.hardware import OWN_GPU_USED, Cpu, Gpu
from service.engine.hardware_text import lexicon as lex
from service.engine.hardware_text.cards import usual
from service.engine.hardware_text.found import is_shared, merged, unreadable
from service.engine.hardware_text.mentions import Mention, may_be_several

# Integrated GPUs worth running models on, by the processor's catalogue name (AMD's product pages).
_OWN_GPU = {
    "AMD Ryzen AI Max+ 395": "AMD Radeon 8060S",
    "AMD Ryzen AI Max+ 392": "AMD Radeon 8060S",
    "AMD Ryzen AI Max+ 388": "AMD Radeon 8060S",
    "AMD Ryzen AI Max 390": "AMD Radeon 8050S",
    "AMD Ryzen AI Max 385": "AMD Radeon 8050S",
}

# Other integrated GPUs (AMD's and Intel's product pages), by a pattern of the processor's name: used where there is no
# other GPU, as they mostly read prompts faster than its cores.
_GRAPHICS = (
    (re.compile(r"\bhx (?:pro )?37[05]\b", re.I), "AMD Radeon 890M"),
    (re.compile(r"\bai 9 365\b|\bai 7 (?:pro )?360\b", re.I), "AMD Radeon 880M"),
    (re.compile(r"\bai 7 (?:pro )?350\b|\bryzen 7 ai 350\b", re.I), "AMD Radeon 860M"),
    (re.compile(r"\b(?:(?:7840|7940|874[05]|884[05]|8945)(?:h|hs|u)|8700g)\b|\bz1 extreme\b", re.I), "AMD Radeon 780M"),
    (re.compile(r"\bryzen (?:7 (?:pro )?(?:250|255|260)|9 270)\b", re.I), "AMD Radeon 780M"),
    (re.compile(r"\b8600g\b", re.I), "AMD Radeon 760M"),
    (re.compile(r"\b(?:6800|6900|7735)(?:h|hs|hx|u)\b", re.I), "AMD Radeon 680M"),
    (re.compile(r"\bultra [79] 2(?:58|68|88|56|66)v\b", re.I), "Intel Arc 140V"),
    (re.compile(r"\bultra 5 2(?:26|28|36|38)v\b", re.I), "Intel Arc 130V"),
    (re.compile(r"\bultra [79] 2[5-8]5h\b", re.I), "Intel Arc 140T"),
    (re.compile(r"\bultra 5 2[23]5h\b", re.I), "Intel Arc 130T"),
    (re.compile(r"\bultra [579] 1[3-8]5h\b", re.I), "Intel Arc Graphics 128EU"),
    (re.compile(r"\bultra 5 125h\b", re.I), "Intel Arc Graphics 112EU"),
)
# A processor's own GPU, and that it is there to be used.
_OWN = (
    r"\b(?:i-?gpu|(?:integrated|built-in|onboard)\s(?:\w+\s){0,2}(?:gpu|graphics)|arc\sgraphics"
    r"|\d{3,4}(?:v|hs?|u)\s(?:gpu|graphics))\b"
)
_OWN_GRAPHICS = re.compile(_OWN, re.I)
_OWN_IN_USE = re.compile(
    rf"(?<!\bno )(?<!\bnot )(?<!without )(?<!disabled ){_OWN}(?!\s(?:is\s)?(?:disabled|off|unused|not)\b)", re.I
)
# That no GPU is used, though the processor may have one.
_ONLY_CPU = re.compile(
    r"\bcpu[\s-](?:only|inference)\b|\bgpu\s(?:is\s)?(?:unused|not\s(?:used|in\suse))\b"
    r"|\b(?:only|just|purely|run(?:s|ning)?|inference|nur|solo|sólo|seulement)\s(?:(?:on|auf|sur)\s)?(?:(?:the|der|le)\s)?cpu\b"
    rf"|\b(?:no|without)\sgpu\spass|(?:n['’]t|\bnot|\bwithout)\s(?:use|using)\s(?:(?:the|its|my)\s)?{_OWN}",
    re.I,
)
_CODE_NAME = re.compile(r"strix|gfx1151", re.I)  # of the 8060S and the 8050S
_TWO_NODES = re.compile(r"\b2\snuma[\s-](?:nodes?|domains?)\b", re.I)
# That a socket has several nodes (sub-NUMA clusters and clusters on die of Intel's, nodes per socket of AMD's), or that
# there is one socket.
_DIVIDED = re.compile(
    r"\bsnc|sub-?numa|cluster[\s-]on[\s-]die|\bcod\b|\bnps[\s=:-]?[24]|\bhemisphere"
    r"|\bnuma[\s-](?:nodes?|domains?)\s?(?:per|a|/)\s?(?:socket|cpu)\b"
    r"|\b(?:single|one|1)(?:[\s-]socket|\s?x?\s(?:intel\s|amd\s)?(?:xeon|epyc))",
    re.I,
)
_NODES = re.compile(
    r"\b([1-9]\d?)\snuma[\s-](?:nodes?|domains?)\b(\s?(?:per|a|/)\s?(?:socket|cpu)\b)?"
    r"|\bnuma\snodes?\s?[:=]\s?([1-9]\d?)\b",
    re.I,
)
# AMD's nodes per socket, of which 0 is one node of all sockets, and Intel's clusters, of which 0 turns them off.
_NODES_A_SOCKET = re.compile(r"\b(?:nps|snc(?![\s=:-]{0,3}0))[\s=:-]{0,3}([0-8])\b", re.I)
_LEAST_CORES = 4
_MUCH_SMALLER = 1 / 3  # of the largest card's memory: a card that drives the display is then left to it
_SENTENCE_END = re.compile(r"[.!?;](?:\s|$)|\s[—–-]{1,2}\s")
_IS_LISTED = re.compile(r"[\d:]|\b(?:other|second|extra|spare)\b", re.I)  # `slot 2: 3090 on x4`, `another 3090 is`
_SAYS_MORE = re.compile(r"\s(?:is|are|has|have|was|runs?|sits?|goes|does|gets?|as|for|on|at|in|will)\b", re.I)
_OTHER_PARTS = frozenset(("cpu", "apple", "modules", "memory", "os", "channels", "sockets", "laptop"))
# GB of memory that Apple sells a chip with, by kind and generation (apple.com/mac, technical specifications).
_SOLD: dict[str, tuple[tuple[int, ...], ...]] = {
    "": ((8, 16), (8, 16, 24), (8, 16, 24), (16, 24, 32), (16, 24, 32)),
    "pro": ((16, 32), (16, 32), (18, 36), (24, 48, 64), (24, 48, 64)),
    "max": ((32, 64), (32, 64, 96), (36, 48, 64, 96, 128), (36, 48, 64, 128), (36, 48, 64, 128)),
    "ultra": ((64, 128), (64, 128, 192), (96, 256, 512)),
}


def sold_with(kind: str, generation: int) -> tuple[int, ...]:
    """Return the GB that a Mac with this chip is sold with; empty if unknown."""
    sizes = _SOLD[kind]
    return sizes[generation - 1] if generation <= len(sizes) else ()


def counted(gpus: Sequence[Gpu], said: Sequence[tuple[int, bool]], text: str) -> list[Gpu]:
    """Apply counts of cards stated apart from their names.

    `said`: each count, and whether it is of the card just named; an integrated GPU of the `text` may be one of them.
    Raises InvalidHardware if it contradicts.
    """
    out = list(gpus)
    for n, of_named in said:
        total = sum(gpu.count for gpu in out)
        if len(out) == 1 and out[0].count == 1 and of_named:
            out[0] = msgspec.structs.replace(out[0], count=n)
        elif n != total and not (n == total + 1 and re.search(r"\bigpu\b|integrated", text, re.I)):
            raise unreadable(f"{n} GPUs", f"it names {total}: write each with its number, as in `2x RTX 3090`")
    return out


def same_cards(gpus: Sequence[Gpu], gpu: Gpu) -> list[int]:
    """Return the places of the GPUs of the same name as `gpu`."""
    return [i for i, known in enumerate(gpus) if _are_alike(known.name, gpu.name)]


def _are_alike(one: str, other: str) -> bool:
    """Return whether two names may be of the same card."""
    return not {row.name for row in gpu_rows(one)}.isdisjoint(row.name for row in gpu_rows(other))


def is_apart(m: Mention, mentions: Sequence[Mention], text: str) -> bool:
    """Return whether other parts, or the end of a sentence, are between a GPU and the one before: no list goes on."""
    end = max((o.end for o in mentions if o.kind == "gpu" and o.end <= m.at), default=m.at)
    kinds, between = [o.kind for o in mentions if end <= o.at < m.at], text[end : m.at]
    is_new = re.search(r"[.!?]\s", between) is not None and ("word" in kinds or ":" in between)
    return is_new or not _OTHER_PARTS.isdisjoint(kinds)


def is_mentioned_again(m: Mention, mentions: Sequence[Mention], text: str) -> bool:
    """Return whether a card that was listed before is named again, to say more: `4090 + 3090 (3090 on a riser)`.

    That is so in a bracket opened since, or before a verb in a sentence of its own: `3090 + 3060. 3060 is for display`.
    """
    gpus = [o for o in mentions if o.kind in ("gpu", "either") and o.end <= m.at]
    end = next((o.end for o in gpus if _are_alike(o.name, m.name)), m.at)
    between = text[end : m.at]
    if between.count("(") > between.count(")"):
        return True
    if not _SAYS_MORE.match(text, m.end):
        return False
    ends = [found.end() for found in _SENTENCE_END.finditer(text, end, m.at)]
    first = next((o for o in gpus if ends and o.at >= ends[-1]), None)  # of its sentence: what it is, all are
    if first is not None:
        return is_mentioned_again(first, mentions, text)
    return bool(ends) and not _IS_LISTED.search(text, ends[-1], m.at)


def is_row(m: Mention, mentions: Sequence[Mention], text: str) -> bool:
    """Return whether a mention is on the line of one card, where others have lines of their own, as in a table."""
    lines = [text.count("\n", 0, o.at) for o in mentions if o.kind in ("gpu", "either")]
    return lines.count(text.count("\n", 0, m.at)) == 1 < len(set(lines))


def is_of_other_device(m: Mention, mentions: Sequence[Mention]) -> bool:
    """Return whether a drive, a network card or the like is mentioned just before: `SSD 2TB 7 GB/s`."""
    before = [o.text for o in mentions if o.end <= m.at][-1:]
    return any(lex.OTHER_DEVICE.search(text) for text in before)


def gpu_follows(m: Mention, mentions: Sequence[Mention]) -> bool:
    """Return whether a GPU is what is mentioned next."""
    after = next((o for o in mentions if o.at >= m.end), None)
    return after is not None and after.kind == "gpu" and after.gap in ("", "with")


def numbered(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPUs, giving those without numbers in the engine's list the numbers that are left.

    Raises InvalidHardware if that is unclear.
    """
    said = [n for gpu in gpus for n in gpu.device_order or ()]
    others = [gpu for gpu in gpus if not gpu.device_order]
    if not said or not others:
        return list(gpus)
    left = [n for n in range(sum(gpu.count for gpu in gpus)) if n not in said]
    if len(others) > 1 or len(left) != others[0].count:
        raise unreadable(", ".join(map(str, said)), "which number does each other GPU have? Write `Device 0: RTX 5090`")
    return [gpu if gpu.device_order else msgspec.structs.replace(gpu, device_order=left) for gpu in gpus]


def one_cpu(cpus: Sequence[Cpu], *, is_exact: bool) -> Cpu | None:
    """Return the CPU, which may be named in pieces (`Ryzen 9 5950X`, `16 cores`).

    `is_exact`: numbers are meant as they are written. Raises InvalidHardware for two CPUs.
    """
    models = list(dict.fromkeys(c.model for c in cpus if c.model))
    exact = [model for model in models if re.search(r"\d{3}", model)] or list(filter(cpu_row, models))
    if len({_identity(model) for model in exact}) > 1 or (not exact and len({_identity(m) for m in models}) > 1):
        raise unreadable(", ".join(models[:2]), "a machine has one kind of CPU; write `2x` for two sockets")
    named = [msgspec.structs.replace(c, model=None) if exact and c.model not in exact else c for c in cpus]
    cpu = merged(Cpu, named)
    return cpu if cpu is None or is_exact else _as_built(cpu)


def _as_built(cpu: Cpu) -> Cpu:
    """Return the CPU with its physical cores in all sockets.

    In `2x Xeon 8168, 24 cores` the cores are of one socket, in `5600X, 12 cores` they are threads. Raises
    InvalidHardware for more of either than there are.
    """
    row, sockets = cpu_row(cpu.model) if cpu.model else None, cpu.sockets or 1
    if row is None or cpu.model is None:
        guess = family_of(cpu.model) if cpu.model else None
        if guess is not None and guess.channels == 2 and cpu.physical_cores == 2 * guess.cores:  # a desktop's
            return msgspec.structs.replace(cpu, physical_cores=guess.cores)
        return cpu
    if sockets > row.sockets:
        raise unreadable(f"{sockets}x {cpu.model}", f"no board has {sockets} of them: how many sockets are there?")
    said, cores = cpu.physical_cores, row.cores * sockets
    if said == 2 * cores and cpu.sockets is None and row.sockets > 1:
        raise unreadable(
            f"{cpu.model}, {said} cores", f"it has {row.cores}: write `2x {cpu.model}` for two sockets, or leave it out"
        )
    threads = (row.cores + (row.performance_cores or row.cores)) * sockets
    if said in (row.cores, 2 * cores, threads):
        return msgspec.structs.replace(cpu, physical_cores=cores)
    if said is not None and said > cores:
        raise unreadable(f"{cpu.model}, {said} cores", f"it has {cores}: which is right?")
    return cpu


def sockets_by_threads(model: str | None, threads: int) -> int | None:
    """Return how many CPUs have so many threads together, as in `Xeon Gold 6154 (72 threads)`; None if one may."""
    row = cpu_row(model) if model else None
    sockets, rest = divmod(threads, 2 * row.cores) if row else (0, 0)
    return sockets if row and rest == 0 and 1 < sockets <= row.sockets else None


def sockets_by_nodes(model: str | None, text: str) -> int | None:
    """Return 2 for two NUMA nodes of a server CPU, which is one node unless its firmware is told to divide it."""
    row = (cpu_row(model) or family_of(model)) if model else None
    if row is None or row.sockets < 2 or not _TWO_NODES.search(text) or _DIVIDED.search(text):
        return None
    return 2


def nodes_of(text: str, sockets: int) -> int | None:
    """Return how many NUMA nodes a machine has, as in `8 NUMA nodes`, `NPS4`, or NPS0: one over both sockets."""
    if stated := _NODES.search(text):
        return int(stated[1] or stated[3]) * (sockets if stated[2] else 1)
    a_socket = _NODES_A_SOCKET.search(text)
    return max(int(a_socket[1]) * sockets, 1) if a_socket else None


def counts_nodes(text: str) -> bool:
    """Return whether a text says how many NUMA nodes there are, and nothing else."""
    return any(kind.fullmatch(text.strip(" ()")) for kind in (_NODES, _NODES_A_SOCKET))


def are_threads(model: str | None, n: int, text: str) -> bool:
    """Return whether a number with a desktop's CPU counts its threads, as GNOME's settings do: `i7-8700 × 12`.

    Raises InvalidHardware if it is smaller: no board has several.
    """
    if not model or n == 1 or may_be_several(model, n):
        return False
    row = cpu_row(model) or family_of(model)
    if n < (row.cores if row else _LEAST_CORES):
        raise unreadable(text, f"no board has {n} of them: describe only the one machine that will run the model")
    return True


def _identity(model: str) -> str:
    """Return a CPU's catalogue name, else its normalised name."""
    row = cpu_row(model)
    return row.name if row else cpu_key(model)


def in_engines_list(gpus: Sequence[Gpu], gpu: Gpu, numbers: list[int]) -> list[Gpu]:
    """Return the GPUs with `numbers` in the engine's own list for those of `gpu`'s name, mentioned before or now."""
    out = list(gpus)
    for i in same_cards(gpus, gpu):
        before = out[i]
        if before.device_order is None and before.count == len(numbers):
            out[i] = msgspec.structs.replace(before, device_order=numbers)
            return out
    return [*out, msgspec.structs.replace(gpu, count=len(numbers), device_order=numbers)]


def says_of_graphics(text: str) -> bool | None:
    """Return whether a text says that a processor's own GPU is there to be used, or that it is not; None: neither."""
    if _ONLY_CPU.search(text):
        return False
    return _OWN_IN_USE.search(text) is not None if _OWN_GRAPHICS.search(text) else None


def own_gpus(cpu: Cpu | None, *, is_used: bool) -> tuple[Gpu, ...]:
    """Return a processor's integrated GPU if it is large, or `is_used`: named, or the only one."""
    model = cpu.model if cpu is not None and cpu.model else ""
    name = _large_graphics(model)
    if name is None and is_used:
        name = next(iter(graphics_of(model)), None)
    return (Gpu(name=name),) if name else ()


def _large_graphics(model: str) -> str | None:
    row = cpu_row(model)
    return _OWN_GPU.get(row.name) if row else None


def taken_unasked(own: Sequence[Gpu], cpu: Cpu | None) -> list[str]:
    """Return what is said of a processor's GPU that is used although nobody named it; nothing of a large one."""
    if cpu is None or _large_graphics(cpu.model or ""):
        return []
    return [f"{gpu.name} {OWN_GPU_USED}" for gpu in own]


def is_of_taken(notes: str) -> bool:
    """Return whether notes say nothing but what `taken_unasked` says."""
    return notes.endswith(OWN_GPU_USED) and "; " not in notes


def graphics_of(text: str) -> tuple[str, ...]:
    """Return the integrated GPUs of processors that a text names, of those that models run on."""
    return tuple(graphics for pattern, graphics in _GRAPHICS if pattern.search(text))


def without_displays(gpus: Sequence[Gpu], for_display: Mapping[str, bool]) -> tuple[list[Gpu], list[str]]:
    """Return the cards, those that are left to a display with no free memory, and a note on each of these.

    One of several cards is left to its display if it does nothing else, or is much smaller than the largest card.
    `for_display`: names of cards that drive one, and whether they do nothing else.
    """
    largest = max((gpu.vram_gib or usual(gpu) for gpu in gpus), default=0)

    def is_left(gpu: Gpu) -> bool:
        is_small = (gpu.vram_gib or usual(gpu)) <= _MUCH_SMALLER * largest
        drives_one = gpu.display is True and gpu.count == 1 and gpu.name in for_display
        return drives_one and (for_display[gpu.name] or is_small)

    left = [gpu.name for gpu in gpus if is_left(gpu)]
    if len(left) == len(gpus):
        return list(gpus), []
    found = [msgspec.structs.replace(gpu, free_gib=0) if is_left(gpu) else gpu for gpu in gpus]
    return found, [f"{name}: left to the display; leave that out to use it as well" for name in left]


def without_own(gpus: Sequence[Gpu], of_cpu: Container[str], own: Sequence[Gpu]) -> tuple[list[Gpu], list[str]]:
    """Drop integrated GPUs that only a processor's name mentions (`of_cpu`) if there are cards; also return notes on
    them.

    Only Vulkan builds use both. `own`: the integrated GPU of the named processor, of which a code name says nothing.
    """
    gpus = [gpu for gpu in gpus if not (own and _CODE_NAME.search(gpu.name))]
    cards = [gpu for gpu in gpus if not is_shared(gpu.name)]
    left_out = [gpu for gpu in gpus if gpu.name in of_cpu] if cards else []
    kept = [gpu for gpu in gpus if gpu not in left_out]
    if not cards or any(is_shared(gpu.name) for gpu in kept):
        return kept, []
    return kept, not_counted(dict.fromkeys(gpu.name for gpu in (*left_out, *own)))


def not_counted(names: Iterable[str]) -> list[str]:
    """Return what is said of integrated GPUs that are there and not used."""
    return [f"{name} of the processor: not counted, name it as a part for a Vulkan build" for name in names]
