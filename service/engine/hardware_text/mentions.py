"""Finds every part of a machine that a text mentions, in order, and every other word: nothing is skipped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache

import msgspec

from service.engine.catalogue.families import family_of
from service.engine.catalogue.names import cpu_row, gpu_key, gpu_rows
from service.engine.catalogue.rows import known_cpus, known_gpus
from service.engine.hardware_text import lexicon as lex

_MOST_WORDS = 10  # of a product's name
_LONGEST_NAME = 80


class Mention(msgspec.Struct, kw_only=True):
    """One mention in a text. `kind`: as in `_PATTERNS`, or gpu | cpu | either | word.

    `gap`: what separates it from the previous mention: "" (only spaces), "with" (a joining word or sign), "words"
    (other filler words), "," (a separator). `count`: how many it states, None if it does not.
    """

    kind: str
    text: str
    gap: str = ","
    count: int | None = None
    plural: bool = False
    match: re.Match[str] | None = None
    size: re.Match[str] | None = None
    name: str = ""
    clause: int = 0
    at: int = 0
    end: int = 0

    @property
    def hit(self) -> re.Match[str]:
        """Return the match of the pattern that found it."""
        if self.match is None:
            raise ValueError(f"{self.kind} is found without a pattern")
        return self.match

    @property
    def is_of_gpu_cores(self) -> bool:
        """Return whether it counts a GPU's cores, which say something only once a Mac's chip is known."""
        return self.kind == "cores" and re.search("gpu|graphics", self.text, re.I) is not None


class Size(msgspec.Struct):
    """A stated size. `role`: ram | wsl | vram | gpu (after a card) | before (a card) | bare. `gpu`: its number."""

    gb: float
    role: str
    text: str
    at: int
    end: int
    gpu: int = -1
    each: bool = False
    total: bool = False
    in_use: bool = False  # what a program takes, which may be less than there is
    own: bool = False  # explicitly the card's
    near: bool = False  # on the card's line, with no other part between
    limit: bool = False  # of what a GPU may use of the machine's memory: no memory besides
    behind: bool = False  # right behind the card: `3070 with 8GB of RAM`


_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("quoted", lex.QUOTED),
    ("brackets", lex.BRACKETS),
    ("numbers", lex.DEVICE_NUMBERS),
    ("no_ecc", lex.NO_ECC),
    ("no_gpu", lex.NO_GPU),
    ("nameless", lex.NAMELESS_CPU),
    ("aside", lex.NOTE),
    ("cards", lex.CARDS),
    ("free", lex.FREE),
    ("used", lex.USED),
    ("copies", lex.COPIES),
    ("bandwidth", lex.BANDWIDTH),
    ("cores", lex.CORES),
    ("modules", lex.MODULES),
    ("link", lex.LINK),
    ("switch", lex.SWITCH),
    ("range", lex.RANGE),
    ("memory", lex.TYPE),
    ("speed", lex.SPEED),
    ("channels", lex.CHANNELS),
    ("sockets", lex.SOCKETS),
)
_LATER: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("size", lex.SIZE),
    ("rate", lex.RATE),
    ("count", lex.COUNT_BEHIND),
    ("some", lex.SOME),
    ("ram_word", lex.RAM_WORD),
    ("laptop", lex.LAPTOP),
    ("backend", lex.BACKEND),
    ("os", lex.SYSTEM),
    ("mac", lex.MAC_BODY),
    ("doubt", lex.ALTERNATIVE),
    ("plan", lex.PLAN),
)


_NOTHING = frozenset(
    ("name", "i", "my", "the", "and", "to", "is", "it", "this", "that", "be", "you", "have", "am", "so")
)


def mentions_of(text: str, most: int) -> Iterator[Mention]:
    """Yield what a text that went through `plain` mentions, up to `most` mentions."""
    at, gap, clause, n = 0, ",", 0, 0
    boards = dict(_boards(text)) if lex.BOARD_WORD.search(text) else {}
    while at < len(text) and n < most:
        if m := lex.SPACES.match(text, at):
            at = m.end()
            continue
        if m := lex.SEPARATOR.match(text, at):
            gap = {"": "with", "words": "words"}.get(gap, ",") if m[0].strip() == "(" else ","
            clause, at = clause + 1, m.end()
            continue
        end = boards.get(at)
        found = (Mention(kind="aside", text=text[at:end]), end) if end else _mention(text, at)
        if found is None:
            word = lex.WORD.match(text, at)
            end = word.end() if word else at + 1
            said = text[at:end]
            if lex.REJOINING.fullmatch(said):
                gap = "with"
            elif lex.JOINING.fullmatch(said):
                gap = gap if gap in (",", "words") else "with"
            elif word is None or lex.FILLER.fullmatch(said):
                gap = gap if gap == "," else "words"
            else:
                yield Mention(kind="word", text=said, gap=gap, clause=clause, at=at, end=end)
                gap, n = "words", n + 1
            at = end
            continue
        mention, end = found
        mention.gap, mention.clause, mention.at, mention.end = gap, clause, at, end
        yield mention
        n, gap, at = n + 1, "", end


def _boards(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the name of a board begins and ends: `5950X X570 motherboard` names a processor in front of it."""
    for m in lex.BOARD.finditer(text):
        parts = [_named(text, word.start()) for word in lex.WORD.finditer(text, m.start(), m.end())]
        start = max(
            [m.start(), *(end for part in parts if part and re.search(r"\d", part[0].name) for end in part[1:])]
        )
        yield start + len(text[start:]) - len(text[start:].lstrip()), m.end()


def _mention(text: str, at: int) -> tuple[Mention, int] | None:
    word = lex.WORD.match(text, at)
    if word and word[0].lower() in _NOTHING:
        return None
    line = _line_end(text, at)
    for kind, pattern in _PATTERNS:
        if (m := pattern.match(text, at, line)) and not (kind == "modules" and _gpu_behind(text, m)):
            return Mention(kind=kind, text=m[0].strip(), match=m), m.end()
    if found := _counted(text, at):
        return found
    if named := _named(text, at):
        return named
    for kind, pattern in _LATER:
        if m := pattern.match(text, at, line):
            return Mention(kind=kind, text=m[0].strip(), match=m), m.end()
    return None


def _line_end(text: str, at: int) -> int:
    """Return where the line ends that a part of a text is on: no part goes on in the next one."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _gpu_behind(text: str, modules: re.Match[str]) -> bool:
    """Return whether a GPU follows: `2x 24GB 3090` are cards, `2x16GB 3200` modules."""
    start = lex.SIZE_BEFORE.match(text, modules.start(2)) if modules[2] else None
    end = start.end() if start else modules.end() if modules[8] else None
    if end is None or "\n" in text[modules.start() : end]:
        return False
    end = gap.end() if (gap := lex.SPACES.match(text, end)) else end
    found = _named(text, _past_bracket(text, end))
    return found is not None and found[0].kind in ("gpu", "apple") and not lex.RATE.match(text, end)


def may_be_several(cpu: str, n: int) -> bool:
    """Return whether boards exist with so many of a CPU, as in `2 7763`; otherwise the number means something else."""
    row = cpu_row(cpu)
    return n <= row.sockets if row and cpu.isdigit() else lex.ONE_A_BOARD.search(cpu) is None


def _past_bracket(text: str, at: int) -> int:
    """Return where a name starts that may be in brackets after its size: `3x 24GB (3090)`."""
    return at + 1 if text[at : at + 1] == "(" else at


def _counted(text: str, at: int) -> tuple[Mention, int] | None:
    """Return a name with the count before it, and perhaps its memory between: `2x 24GB 3090`, `two MI50s`."""
    m = lex.COUNT.match(text, at, _line_end(text, at))
    if m is None and text[:at].rstrip(" ")[-1:] in ("", "\n", ",", ";", "+", "("):
        m = lex.COUNT_BEFORE.match(text, at)
    if m is None or (m[3] and lex.TIERED.match(text, at) and _named(text, at)):  # `5 7600X`
        return None
    if m[1] and len(m[1]) > 2 and (cpu := _named(text, at)) and cpu[0].kind == "cpu":  # `5900x 3090`
        return None
    size = lex.SIZE_BEFORE.match(text, m.end())
    start = _past_bracket(text, size.end()) if size else m.end()
    sold_by = lex.SOLD_BY.match(text, start)
    found = _named(text, start) or (_named(text, sold_by.end()) if sold_by else None)
    if found is None or (m[3] and found[0].kind == "cpu" and not may_be_several(found[0].name, int(m[3]))):
        return None  # `Framework 13 7840U`
    mention, end = found
    word = re.sub(r"\s+", " ", m[2] or "").lower()
    mention.count = int(m[1] or m[3] or lex.NUMBERS[word])
    mention.size = size
    mention.text = text[at:end]
    return mention, end


def _named(text: str, at: int) -> tuple[Mention, int] | None:
    """Return the GPU or CPU whose name starts here, taking the longest known name."""
    line_end = _line_end(text, at)
    if m := lex.APPLE.match(text, at, line_end):
        return Mention(kind="apple", text=m[0], match=m), m.end()
    first = lex.WORD.match(text, at)
    if first is None or not (any(c.isdigit() for c in first[0]) or re.split(r"\W", first[0].lower())[0] in _starts()):
        return None
    if (m := lex.SIZE.match(text, at)) and not (_ends_in_g(m[0]) and m.end() == first.end()):
        return None
    gpu_end, plural = _longest(text, at, _is_gpu)
    cpu_end, _ = _longest(text, at, _is_cpu)
    line = lex.CPU_LINE.match(text, at, line_end)
    if line and line.end() > max(gpu_end, cpu_end) and not (gpu_end and gpu_rows(text[at:gpu_end])[0].unified):
        cpu_end = max(cpu_end, line.end())
    end = max(gpu_end, cpu_end)
    if end == at or end == 0:
        unknown = lex.GPU_LINE.match(text, at, line_end)
        if unknown is None:
            return None
        return Mention(kind="gpu", text=unknown[0], name=unknown[0].strip()), unknown.end()
    name = text[at:end]
    kind = "gpu" if gpu_end > cpu_end else "cpu"
    if gpu_end == cpu_end or name in lex.ALSO_CPUS:
        kind = "gpu" if gpu_rows(name)[0].unified or lex.OLD_RADEON.fullmatch(name) else "either"
    if kind == "gpu":
        if m := lex.LINK_AT_END.search(name):
            end -= len(m[0]) if lex.GENERATION.match(text, end) else 0
        name = text[at:end]
        if plural and re.search(r"\dS$", name) and gpu_rows(f"{name[:-1]} SUPER"):  # `1660S`, where `1660s` are several
            name, plural = f"{name[:-1]} SUPER", False
        if not plural:
            name = _mobile(name)
    return Mention(kind=kind, text=text[at:end], name=_singular(name) if plural else name, plural=plural), end


def _mobile(name: str) -> str:
    """Return the name of a laptop's GPU in full: `3060m`, and an RTX 3050 Ti, which only laptops have."""
    m = re.fullmatch(r"(.*\d{4}(?: ?ti)?)(m?)", name, re.I)
    is_laptops = m and gpu_rows(f"{m[1]} laptop") and (m[2] or not gpu_rows(name))
    return f"{m[1]} laptop" if m and is_laptops else name


def _longest(text: str, at: int, known: Callable[[str], bool]) -> tuple[int, bool]:
    """Return the end of the longest known name from here (0 for none), and whether it is plural."""
    ends: list[int] = []
    end = at
    while len(ends) < _MOST_WORDS and (m := lex.NEXT_WORD.match(text, end)) and m.end() - at <= _LONGEST_NAME:
        word = m[0].strip().lower()
        if (
            word == "and"
            or not word.isascii()
            or (lex.JOINING.fullmatch(word) and not (word == "x" and text[at:end].lower().endswith(("titan", "fury"))))
        ):
            break
        end = m.end()
        ends += [end - 1, end] if m[0].endswith(")") else [end]
    for end in reversed(ends):
        name = text[at:end]
        if (
            name.count("(") != name.count(")")
            or lex.BRAND_AT_END.search(name)
            or (lex.SIZE_AT_END.search(name) and not lex.SIZE_IN_NAME.search(name) and not _ends_in_g(name))
        ):
            continue
        if known(name):
            return end, False
        if known(_mobile(name)) and _mobile(name) != name:
            return end, False
        one = _singular(name)
        if one != name and known(one):
            return end, True
    return 0, False


def _ends_in_g(name: str) -> bool:
    """Return whether this is a CPU that looks like a size, such as `5600G`."""
    return cpu_row(name) is not None or lex.APU.search(name) is not None


def _singular(name: str) -> str:
    return re.sub(r"['’]?s$|(?<=\d)er$", "", name, flags=re.I)  # `3090er`, in German


@lru_cache(8192)
def _is_gpu(name: str) -> bool:
    bare = name.strip().isdigit()
    key = gpu_key(name)
    if (
        len(key) < 2
        or re.search(r"\d\.\d", name)
        or (bare and re.search(r"000$|^[1-9]50$", name))
        or (key == "titan" and "gtx" not in name.lower())
    ):
        return False
    return bool(gpu_rows(name.replace("(", " ").replace(")", " ")))


@lru_cache(8192)
def _is_cpu(name: str) -> bool:
    if "(" in name or re.search(r"\d\.\d", name):
        return False
    return cpu_row(name) is not None or (lex.CPU_NUMBER.fullmatch(name) is not None and family_of(name) is not None)


@cache
def _starts() -> frozenset[str]:
    """Return the first words of part names, besides those with a digit."""
    names = [n for row in known_gpus() for n in (row.name, *row.aliases)]
    names += [n for row in known_cpus() for n in (row.name, *row.aliases)]
    return frozenset(name.lower().split()[0] for name in names) | lex.LINE_WORDS
