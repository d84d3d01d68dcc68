"""From the many spellings of a GPU's or a CPU's name to its rows in the catalogue."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TypeVar

from service.engine.catalogue.rows import CpuRow, GpuRow, known_cpus, known_gpus

Row = TypeVar("Row", bound="GpuRow | CpuRow")
MAX_NAME = 200
# A driver reports up to 4 % less than the nominal size; ECC on GDDR takes more, and such totals are in the catalogue.
_CLOSE = 0.04

# Words that names of one product have or lack.
_GPU_NOISE = frozenset(
    (
        "nvidia",
        "geforce",
        "amd",
        "ati",
        "advanced",
        "micro",
        "devices",
        "inc",
        "radeon",
        "intel",
        "corporation",
        "graphics",
        "gpu",
        "vga",
        "card",
        "generation",
        "edition",
        "series",
        "tesla",
        "instinct",
        "arc",
        "rtx",
        "gtx",
        "rx",
        "tm",
        "r",
        "design",
        "apple",
        "workstation",
        "hbm2",
        "hbm2e",
        "hbm3",
        "hbm3e",
        "gddr6",
        "gddr6x",
        "gddr7",
    )
)
_CPU_NOISE = frozenset(
    (
        "amd",
        "intel",
        "apple",
        "genuine",
        "cpu",
        "processor",
        "processors",
        "epyc",
        "ryzen",
        "threadripper",
        "xeon",
        "core",
        "gold",
        "silver",
        "platinum",
        "bronze",
        "tm",
        "r",
        "chip",
        "cores",
        "ai",
    )
)
_MARKS = re.compile(r"\((?:tm|r|c)\)|[™®©]", re.I)
_PARENTHESES = re.compile(r"\([^()]{0,200}\)")
_SIZE = re.compile(r"(?<![\w.])(\d{1,4})[ -]?gi?b\b", re.I)
_WORDS = re.compile(r"[a-z0-9+]+")
_JOINED = re.compile(
    r"\b(rtx|gtx|rx|geforce|quadro|tesla|titan|ryzen|threadripper|epyc|xeon)(?=[am]?\d)|\b(m[1-9])(?=(?:pro|max|ultra)\b)",
    re.I,
)
_COUNT = re.compile(r"^\s*\d{1,2}\s*x\s+", re.I)
_CORES = re.compile(r"\b\d{1,3}-cores?\b", re.I)
_GENERATION = re.compile(r"\b\d{1,2}(?:st|nd|rd|th) gen\b", re.I)


def gpu_rows(name: str, vram_gib: float | None = None) -> tuple[GpuRow, ...]:
    """Return the rows that a GPU's name means, the nearest in memory first; empty when there is none.

    A size in the name (`A100 80GB`) or `vram_gib` decides between several sizes of one product.
    """
    key = gpu_key(name)
    rows = _gpu_index().get(key) or _gpu_index().get(key.removeprefix("quadro"), ())
    size = vram_gib or size_in(name)
    return tuple(sorted(rows, key=lambda row: abs((row.vram_gib or size_in(row.name) or 0) - size))) if size else rows


def complete(prefix: str, total_mib: float) -> tuple[GpuRow, ...]:
    """Return the rows whose name begins with `prefix` (nvidia-smi cuts long names) and whose memory is `total_mib`."""
    start = prefix.lower().strip()
    found = [
        row for row in known_gpus() if _starts(row, start) and abs(_total_mib(row) - total_mib) <= _CLOSE * total_mib
    ]
    exact = [row for row in found if row.driver_mib == round(total_mib)]
    return tuple(exact or found)


def cpu_row(name: str) -> CpuRow | None:
    """Return the row that a CPU's name means, None when there is none."""
    rows = _cpu_index().get(cpu_key(name))
    return rows[0] if rows else None


_ALIKE = 0.3  # of difflib's ratio, for names without a product line
_GPU_LINES = frozenset({"rtx", "gtx", "rx", "arc", "quadro", "tesla", "instinct", "pro"})
_CPU_LINES = frozenset({"ryzen", "threadripper", "epyc", "xeon", "core", "i3", "i5", "i7", "i9", "ultra"})


def nearest(name: str, cpu: bool = False, n: int = 5) -> tuple[str, ...]:
    """Return the `n` names of the catalogue that are most like `name`: those of its product line first."""
    keys = {k: rows[0].name for k, rows in (_cpu_index() if cpu else _gpu_index()).items()}
    key = cpu_key(name) if cpu else gpu_key(name)
    line = _product_line(name)
    matcher = difflib.SequenceMatcher(b=key)

    def likeness(candidate: str) -> tuple[bool, int, float]:
        matcher.set_seq1(candidate)
        return len(key) > 2 and key in candidate, len(line & _product_line(keys[candidate])), matcher.ratio()

    scored = sorted(((likeness(k), k) for k in keys), reverse=True)
    close = [keys[k] for (holds, shared, ratio), k in scored if holds or shared or ratio >= _ALIKE]
    return tuple(dict.fromkeys(close))[:n]


def _product_line(name: str) -> frozenset[str]:
    return (_GPU_LINES | _CPU_LINES) & frozenset(_WORDS.findall(_plain(name).replace("-", " ")))


def spaced(name: str) -> str:
    """Return `name` with a space between a product line and its number: `RTX3090` and `Ryzen9 7950X` lack it."""
    return _JOINED.sub(lambda m: f"{m[0]} ", name)


def size_in(name: str) -> float | None:
    """Return the memory in GiB that is written in a GPU's name, None when there is none."""
    found = _SIZE.search(name)
    return float(found[1]) if found else None


def gpu_key(name: str) -> str:
    """Return a GPU's name without maker, product line, memory size and spelling."""
    plain = _SIZE.sub(" ", _plain(name)).replace("mobile", "laptop").replace("max-q", "maxq")
    words = _WORDS.findall(plain.replace("-", " "))
    return "".join(word for word in words if word not in _GPU_NOISE)


def cpu_key(name: str) -> str:
    """Return a CPU's name without maker, product line, clock and spelling."""
    plain = re.split(r"@| w/| with ", _COUNT.sub("", _plain(name)))[0].replace("threadripper pro", "")
    words = [word for word in _WORDS.findall(_CORES.sub(" ", plain).replace("-", " ")) if word not in _CPU_NOISE]
    is_ryzen_class = len(words) > 1 and words[0].isdigit() and len(words[0]) == 1
    return "".join(words[1:] if is_ryzen_class else words)


def _plain(name: str) -> str:
    lower = spaced(_GENERATION.sub(" ", _MARKS.sub(" ", name[:MAX_NAME].lower())))
    return _PARENTHESES.sub(" ", lower)


@cache
def _gpu_index() -> Mapping[str, tuple[GpuRow, ...]]:
    return _index(known_gpus(), gpu_key)


@cache
def _cpu_index() -> Mapping[str, tuple[CpuRow, ...]]:
    index = dict(_index(known_cpus(), cpu_key))
    for row in known_cpus():  # `13900k` for `i9-13900k`, `285k` for `Ultra 9 285K`
        short = re.sub(r"^(?:i[3579]|ultra[3579]|w[3579]?|hx|max)(?=\d{3})", "", cpu_key(row.name))
        index.setdefault(short, (row,))
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
