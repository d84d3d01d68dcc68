"""From the many spellings of a GPU's or a CPU's name to its rows in the catalogue."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from typing import TypeVar

import msgspec

from service.engine.catalogue.rows import CpuRow, GpuRow, known_cpus, known_gpus

Row = TypeVar("Row", bound="GpuRow | CpuRow")
MAX_NAME = 200
# A driver reports up to 4 % less than the nominal size; ECC on GDDR takes more, and such totals are in the catalogue.
_CLOSE = 0.04

# Words that names of one product have or lack.
_GPU_NOISE = frozenset((
    "nvidia", "geforce", "amd", "ati", "advanced", "micro", "devices", "inc", "radeon", "intel", "corporation",
    "graphics", "gpu", "gpus", "vga", "card", "cards", "generation", "edition", "series", "tesla", "instinct", "arc",
    "rtx", "gtx", "rx", "tm", "r", "design", "apple", "workstation", "miner", "mining", "hbm2", "hbm2e", "hbm3",
    "hbm3e", "gddr6", "gddr6x", "gddr7",
))  # fmt: skip
_CPU_NOISE = frozenset((
    "amd", "intel", "apple", "genuine", "cpu", "processor", "processors", "epyc", "ryzen", "threadripper", "xeon",
    "core", "gold", "silver", "platinum", "bronze", "tm", "r", "chip", "cores", "ai", "tr",
))  # fmt: skip
_MARKS = re.compile(r"\((?:tm|r|c)\)|[™®©]", re.I)
_PARENTHESES = re.compile(r"\([^()]{0,200}\)")
_SIZE = re.compile(r"(?<![\w.])(?P<gb>\d{1,4})[ -]?gi?b\b", re.I)
_WORDS = re.compile(r"[a-z0-9+]+")
_OF_NVIDIA = re.compile(r"\b(?:nvidia|geforce|[gr]tx|quadro|tesla)\b", re.I)
_JOINED = re.compile(
    r"\b(rtx|gtx|rx|geforce|quadro|tesla|titan|ryzen|threadripper|epyc|xeon|platinum|gold|silver|amd|intel|nvidia)(?=[am]?\d)|\b(m[1-9])(?=(?:pro|max|ultra)\b)",
    re.I,
)
_COUNT = re.compile(r"^\s*\d{1,2}\s*x\s+", re.I)
CORES = re.compile(r"\b\d{1,3}-cores?\b", re.I)
_PRO_BEHIND = re.compile(r"(?<!\d)([2456]000|4500)pro(?!\d)")  # `RTX 6000 Pro`
_OLD_QUADRO = re.compile(r"^[kmp]\d{4}m?$")  # `K4000`, `P4000`: no other card has such a number
_TITAN_RTX = re.compile(r"\btitan rtx\b|\brtx titan\b")  # another card than the GTX TITAN
_GENERATION = re.compile(r"\b\d{1,2}(?:st|nd|rd|th) gen\b", re.I)


def gpu_rows(name: str, vram_gib: float | None = None) -> tuple[GpuRow, ...]:
    """Return the rows that a GPU's name means, the nearest in memory first; none if the name is unknown.

    If a product exists in several sizes, a size in the name (`A100 80GB`) or `vram_gib` decides which is nearest. Words
    in parentheses may be part of the name (`RTX PRO 6000 (Max-Q)`); if no GPU has that name, it is read without them.
    """
    if share := _share(name):
        return (share,)
    whole = _MARKS.sub(" ", name[:MAX_NAME]).replace("(", " ").replace(")", " ")
    alone = remark_of(name)[0]
    # `M3 Ultra 80-core GPU`: the whole chip. Most names are the same in all three readings, and no card's.
    readings = dict.fromkeys((whole, alone, CORES.sub(" ", alone)))
    rows = next((rows for reading in readings if (rows := _rows_of_key(gpu_key(reading)))), ())
    if _OF_NVIDIA.search(whole):  # a `GTX 860M` is no Radeon 860M
        rows = tuple(row for row in rows if row.backend == "cuda" or not row.unified)
    else:  # and an `860M` is the Radeon
        rows = tuple(row for row in rows if row.unified) or rows
    size = vram_gib or size_in(name)
    return tuple(sorted(rows, key=lambda row: _off_by(row, size))) if size else rows


def _off_by(row: GpuRow, size: float) -> float:
    """Return how far a size is from a row's memory, or from a size in its name, if that is nearer."""
    return min(abs((gb or 0) - size) for gb in (row.vram_gib or size_in(row.name), *ram_named(row)))


def ram_named(row: GpuRow) -> frozenset[float]:
    """Return the GB in a GPU's names that are not its own memory: a `GH200 480GB` has 96, and its CPU the 480."""
    sizes = {size_in(name) for name in (row.name, *row.aliases)} - {None, row.vram_gib}
    return frozenset() if row.vram_gib is None else frozenset(filter(None, sizes))


# A part of a card. A virtual GPU's driver names it `NVIDIA L40S-24Q`, with 24 GB of an L40S, or `GRID A100-1-5C`, one
# compute slice of an A100 (MIG); `A100D` is the A100 of 80 GB (NVIDIA's Virtual GPU Software User Guide). CUDA and
# Kubernetes name such a slice `A100-SXM4-40GB MIG 1g.5gb` (NVIDIA's MIG User Guide, "MIG Device Names").
_MAKER = re.compile(r"^(?:nvidia[ -])?(?:grid )?", re.I)
_SHARE = re.compile(r"(?P<card>[\w .-]{1,60}?)-(?:(?P<part>[1-7])-)?(?P<gb>\d{1,3})[qcba]", re.I)
MIG = r"mig[ -]+(?=(?P<part>[1-7]))(?:[1-7]c\.)?[1-7]g\.(?P<gb>\d{1,3})gb"
_BOARD = re.compile(r"(?<=\d)([dlmpx]{1,2})$", re.I)
# Cards with seven compute slices and eight of memory; others (A30, RTX PRO) have as many of both.
_OF_SEVEN = re.compile(r"\b(?:G?B[23]00|[AH][18]00|G?H200|H20)")
# Eighths of the memory of a card of seven, by compute slices (NVIDIA's MIG User Guide, "Supported MIG Profiles").
MIG_EIGHTHS = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
_LIKE_SIZE = 0.1  # by which a slice's size in its name, times its share, may differ from the card's
# Of the card's memory, what every slice lacks at most: 4.75 GiB are listed for 1g.5gb and 39.25 for 3g.40gb of an A100,
# 9.62 and 39.38 for 1g.10gb and 3g.40gb of an H100, 5.81 and 11.69 for 1g.6gb and 2g.12gb of an A30 (posted outputs of
# `nvidia-smi` and `nvidia-smi mig -lgip`).
_KEPT = 0.01
_IS_SLICE = re.compile(r"\bmig\b|-[1-7]-\d", re.I)
_A_SLICE = "a slice of the card (MIG): its share of memory, bandwidth and compute"
_VIRTUAL = "a virtual GPU: its speed is that of the whole card while no other one computes"
_OF_MIG = re.compile(rf"\b{MIG}", re.I)
_SLICE = re.compile(rf"(?P<card>[\w .-]{{1,60}}?)[ -]+\(?{MIG}(?:\+\w{{1,9}})*\)?", re.I)


def memory_slices(row: GpuRow) -> int:
    """Return into how many parts MIG cuts a card's memory at most."""
    return 8 if _OF_SEVEN.search(row.name) else 4


def _share(name: str) -> GpuRow | None:
    """Return the row of a part of a card: of its memory, and where MIG cuts the card up, of its rates too."""
    own = _MAKER.sub("", name.strip()[:MAX_NAME])
    found = _SLICE.fullmatch(own) or _SHARE.fullmatch(own)
    if found is None:
        return None
    card, size = re.sub(r"[- ]dc$", " server edition", found["card"], flags=re.I), float(found["gb"])
    rows = _rows_of_key(gpu_key(card)) or _rows_of_key(gpu_key(_BOARD.sub("", card)))
    rows = tuple(row for row in rows if row.backend == "cuda" and not row.unified and (row.vram_gib or 0) >= size)
    if not rows:
        return None
    sized = size_in(found["card"]) or (999 if card.lower().endswith(("d", "dx")) else 0)
    if found["part"] and not sized:
        of_all = size * 8 / MIG_EIGHTHS.get(int(found["part"]), 8)
        rows = tuple(row for row in rows if abs((row.vram_gib or 0) - of_all) <= _LIKE_SIZE * of_all) or rows
    whole = min(rows, key=lambda row: abs((row.vram_gib or 0) - sized))
    named = msgspec.structs.replace(whole, name=f"NVIDIA {own}", vram_gib=size, driver_mib=None)
    if found["part"] is None:
        return named
    width = size / (whole.vram_gib or size)
    share = (whole.vram_gib or size) * (max(1, round(width * memory_slices(whole))) / memory_slices(whole) - _KEPT)
    part = int(found["part"]) / 7 if _OF_SEVEN.search(whole.name) else width
    return msgspec.structs.replace(
        named,
        driver_mib=round(min(share, size) * 1024),
        bandwidth_gbs=whole.bandwidth_gbs and whole.bandwidth_gbs * width,
        fp16_tflops=whole.fp16_tflops and round(whole.fp16_tflops * part, 1),
        int8_tops=whole.int8_tops and round(whole.int8_tops * part, 1),
    )


def _rows_of_key(key: str) -> tuple[GpuRow, ...]:
    of_laptop = key.replace("maxq", "laptop")  # `RTX 2070 Max-Q`
    others = (key.removeprefix("quadro"), of_laptop, _OLD_QUADRO.sub(r"quadro\g<0>", key))
    return next((rows for k in (key, *others) if (rows := _gpu_index().get(k))), ())


_REMARK = re.compile(r"\(([^()]*)\)?\s*$")
_SHOWN = 120  # characters of a remark in an answer
_MOST_WORDS = 8  # of a product's name
_SHORTEST_KEY = 3


def gpu_meant(name: str, vram_gib: float | None = None) -> tuple[tuple[GpuRow, ...], str]:
    """Return the rows that a name means, and a sentence on how a remark in parentheses after it was read, else "".

    If the remark names another card, the name counts, unless no card has that name, or only the other card has the
    memory that is stated (`vram_gib`).
    """
    alone, remark = remark_of(name)
    rows = gpu_rows(name, vram_gib)
    if _share(name):
        return rows, _A_SLICE if _IS_SLICE.search(name) else _VIRTUAL
    if not remark or gpu_key(f"{alone} {remark}") in (*_gpu_index(), gpu_key(alone)):
        return rows, ""
    others = gpus_named_in(remark)
    other = gpu_rows(others[-1], vram_gib) if others else ()
    quoted = f"`{remark[:_SHOWN]}`"
    if not other or (rows and gpu_key(alone) in map(gpu_key, others)):
        return rows, f"the remark {quoted} after the name affects no figure"
    if not rows:
        return other, f"`{alone[:_SHOWN]}` alone is not a card of the catalogue; its remark says {quoted}"
    if vram_gib is not None and vram_gib not in {row.vram_gib for row in rows} and vram_gib == other[0].vram_gib:
        return other, f"of the name and its remark {quoted}, this card has the {vram_gib:g} GiB stated"
    return rows, f"the remark {quoted} names another card: taken by the name"


def remark_of(name: str) -> tuple[str, str]:
    """Return a GPU's name, and the remark in parentheses after it, "" if there is none."""
    plain = _MARKS.sub(" ", name).strip()
    found = _REMARK.search(plain)
    return (plain[: found.start()].strip(), (found[1] or "").strip()) if found and found.start() > 0 else (name, "")


def gpus_named_in(text: str) -> tuple[str, ...]:
    """Return the names of known GPUs in a text, spelt as in the text, each as long as it can be read."""
    words = re.findall(r"[\w+.-]+", spaced(text[:MAX_NAME]))
    found: list[str] = []
    start = 0
    while start < len(words):
        ends = range(min(start + _MOST_WORDS, len(words)), start, -1)
        names = (" ".join(words[start:end]) for end in ends)
        name = next((n for n in names if len(gpu_key(n)) >= _SHORTEST_KEY and gpu_rows(n)), None)
        start += len(name.split()) if name else 1
        found += [name] if name else []
    return tuple(dict.fromkeys(found))


def complete(prefix: str, total_mib: float) -> tuple[GpuRow, ...]:
    """Return the rows whose name begins with `prefix` (nvidia-smi cuts long names) and whose memory is `total_mib`."""
    start = prefix.lower().strip()
    found = [
        row for row in known_gpus() if _starts(row, start) and abs(_total_mib(row) - total_mib) <= _CLOSE * total_mib
    ]
    exact = [row for row in found if row.driver_mib == round(total_mib)]
    return tuple(exact or found)


def cpu_row(name: str) -> CpuRow | None:
    """Return the row that a CPU's name means, None if there is none."""
    rows = _cpu_index().get(cpu_key(name))
    return rows[0] if rows else None


def misspelt(name: str) -> tuple[str, ...]:
    """Return GPUs and CPUs that a text with a number may be a misspelling of, those of each kind if it is near to one.

    None if it is near to no name of the catalogue.
    """
    if len(name) > _LONGEST_NAME or not re.search(r"\d", name):
        return ()
    is_gpu = difflib.get_close_matches(gpu_key(name), _gpu_index(), 1, _MISSPELT)
    is_cpu = difflib.get_close_matches(cpu_key(name), _cpu_index(), 1, _MISSPELT)
    return (*(nearest(name, n=2) if is_gpu else ()), *(nearest(name, cpu=True, n=2) if is_cpu else ()))


_MISSPELT = 0.74  # of difflib's ratio: one wrong character of four (`309O`)
_LONGEST_NAME = 60
_ALIKE = 0.3  # of difflib's ratio, for names without a product line
_GPU_LINES = frozenset({"rtx", "gtx", "rx", "arc", "quadro", "tesla", "instinct", "pro"})
_CPU_LINES = frozenset({"ryzen", "threadripper", "epyc", "xeon", "core", "i3", "i5", "i7", "i9", "ultra"})
_MAKERS = {
    "NVIDIA": frozenset({"nvidia", "geforce", "rtx", "gtx", "gt", "quadro", "tesla", "titan"}),
    "AMD": frozenset({"amd", "radeon", "rx", "instinct", "firepro", "ryzen", "threadripper", "epyc", "athlon", "fx"}),
    "Intel": frozenset({"intel", "arc", "xeon", "i3", "i5", "i7", "i9", "pentium", "celeron"}),
    "Apple": frozenset({"apple"}),
}


@lru_cache(maxsize=256)  # one machine is resolved several times on the way to an answer
def nearest(name: str, cpu: bool = False, n: int = 5) -> tuple[str, ...]:
    """Return the `n` names of the catalogue that are most like `name`: of its maker, those of its product line first.

    Of equally near ones, that with the nearest number is first: `Ryzen 5 3600` for `2600`.
    """
    names = {k: rows[0].name for k, rows in (_cpu_index() if cpu else _gpu_index()).items()}
    key = cpu_key(name) if cpu else gpu_key(name)
    line, makers, number = _product_line(name), _makers(name), _number(name)
    matcher = difflib.SequenceMatcher(b=key)

    def likeness(candidate: str) -> tuple[bool, int, float, int]:
        matcher.set_seq1(candidate)
        own = names[candidate]
        shared, off = len(line & _product_line(own)), abs(_number(own) - number)
        return len(key) > 2 and key in candidate, shared, matcher.ratio(), -off

    of_maker = [k for k in names if not makers or makers & _makers(names[k])]
    scored = sorted(((likeness(k), k) for k in of_maker), reverse=True)
    close = [names[k] for (holds, shared, ratio, _), k in scored if holds or shared or ratio >= _ALIKE]
    return tuple(dict.fromkeys(close))[:n]


def _number(name: str) -> int:
    found = re.search(r"\d{3,5}", name)
    return int(found[0]) if found else 0


def _makers(name: str) -> frozenset[str]:
    words = _words_of(name)
    return frozenset(maker for maker, own in _MAKERS.items() if own & words)


def _product_line(name: str) -> frozenset[str]:
    return (_GPU_LINES | _CPU_LINES) & _words_of(name)


def _words_of(name: str) -> frozenset[str]:
    return frozenset(_WORDS.findall(_plain(name).replace("-", " ")))


def spaced(name: str) -> str:
    """Return `name` with a space between a product line and its number: `RTX3090` and `Ryzen9 7950X` lack it."""
    return _JOINED.sub(lambda m: f"{m[0]} ", name)


def size_in(name: str) -> float | None:
    """Return the memory in GiB that a GPU's name states, None if it states none."""
    found = _OF_MIG.search(name) or _SIZE.search(name)
    return float(found["gb"]) if found else None


def gpu_key(name: str) -> str:
    """Return what is left of a GPU's name without maker, product line, memory size and ways of spelling it."""
    plain = _SIZE.sub(" ", _plain(name)).replace("mobile", "laptop").replace("max-q", "maxq")
    plain = _TITAN_RTX.sub("titanrtx", plain.replace("-", " "))
    words = [word for word in _WORDS.findall(plain) if word not in _GPU_NOISE]
    return _PRO_BEHIND.sub(r"pro\1", "".join(words))


def cpu_key(name: str) -> str:
    """Return what is left of a CPU's name without maker, product line, clock and ways of spelling it."""
    plain = re.split(r"@| w/| with ", _COUNT.sub("", _plain(name)))[0]
    plain = re.sub(r"\b(?:threadripper|tr) pro\b|(?<=\bhx) pro\b|(?<=\bmax) pro\b|(?<=\bmax\+) pro\b", "", plain)
    words = [word for word in _WORDS.findall(CORES.sub(" ", plain).replace("-", " ")) if word not in _CPU_NOISE]
    is_ryzen_class = len(words) > 1 and re.fullmatch(r"r?[3579]|\d", words[0]) is not None  # `Ryzen 5`, `R5`
    return "".join(words[1:] if is_ryzen_class else words)


def _plain(name: str) -> str:
    lower = spaced(_GENERATION.sub(" ", _MARKS.sub(" ", " ".join(name[:MAX_NAME].lower().split()))))
    return _PARENTHESES.sub(" ", lower)


@cache
def _gpu_index() -> Mapping[str, tuple[GpuRow, ...]]:
    return _index(known_gpus(), gpu_key)


@cache
def _cpu_index() -> Mapping[str, tuple[CpuRow, ...]]:
    index = dict(_index(known_cpus(), cpu_key))
    for row in known_cpus():  # `13900k` for `i9-13900k`, `285k` for `Ultra 9 285K`, `2680v4` for `E5-2680 v4`
        short = re.sub(
            r"^(?:i[3579]|ultra[3579]|w[3579]?(?=\d{4})|hx|max|e[57](?=\d+\w?v\d))(?=\d{3})", "", cpu_key(row.name)
        )
        index.setdefault(short, (row,))
        index.setdefault(short.removesuffix("+"), (row,))  # `Xeon 8480` for `8480+`: Intel has no other 8480
    return index


def _index(rows: Iterable[Row], key: Callable[[str], str]) -> dict[str, tuple[Row, ...]]:
    index: dict[str, tuple[Row, ...]] = {}
    for row in rows:
        spellings: dict[str, None] = dict.fromkeys(key(name) for name in (row.name, *row.aliases))
        for spelling in spellings:
            index[spelling] = (*index.get(spelling, ()), row)
    return index


def _starts(row: GpuRow, start: str) -> bool:
    return row.name.lower().startswith(start) or row.name.lower().startswith(f"nvidia {start}")


def _total_mib(row: GpuRow) -> float:
    return row.driver_mib or 1024 * (row.vram_gib or 0)
