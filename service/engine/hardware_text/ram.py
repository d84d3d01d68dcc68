"""System memory as people write it: `512GB DDR5-4800 x8`, `8x32GB 3200`, `64 gigs of ram`, `192GB 62 GB/s`."""

from __future__ import annotations

import re

from service.engine.catalogue.names import gpu_rows
from service.engine.hardware import Ram
from service.engine.hardware_text.found import unreadable

SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s?(gib|gb|gigabytes?|gigs?|g|tib|tb|t)\b(?!/s)", re.I)
_GB = r"(?:gib|gb|gigs?|g)\b(?!/s)"
_MODULES = re.compile(rf"\(?(?<!\w)(\d{{1,3}})\s?[x×]\s?(\d{{1,4}}(?:\.\d{{1,3}})?)\s?{_GB}\)?", re.I)
_MODULES_OF = re.compile(rf"\b(\d{{1,3}})\s?[x×]?\s?(?:sticks?|dimms?|modules?)\sof\s(\d{{1,4}})\s?{_GB}", re.I)
_BARE_MODULES = re.compile(r"\((\d{1,2})\s?[x×]\s?(\d{1,4})\)", re.I)
_WORD = re.compile(
    r"\b(?:lp)?ddr\d|\bram\b|\bmemory\b|\bchannels?\b|\bmt/s\b|\b(?:r|u|lr|mr|so-?)?dimms?\b|\becc\b", re.I
)
_TYPE = re.compile(r"\b((?:lp)?ddr\d[xl]?)(?:[\s-]{0,2}(\d{3,5})\b)?", re.I)
_SPEED = re.compile(r"(?:@\s?)?\b(\d{3,5})\s?(?:mt/?s|mhz)\b|@\s?(\d{4,5})\b", re.I)
_CHANNELS = re.compile(r"(?:^|\s)[x×]\s?(\d{1,2})(?!\S)|\b(\d{1,2})[\s-]?(?:channels?|ch)\b", re.I)
_CHANNEL_WORD = re.compile(r"\b(dual|quad|hexa|octa)[ -]channel", re.I)
_CHANNEL_WORDS = {"dual": 2, "quad": 4, "hexa": 6, "octa": 8}
_MEASURED = re.compile(r"(?:measured|reads?|at)?\s{0,2}(\d{1,5}(?:\.\d{1,3})?)\s?gb/s", re.I)
_FREE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s?gi?b\s(?:free|available)", re.I)
# The transfer rates that modules are sold or run with, which alone are enough: `8x32GB 3200`.
_RATES = re.compile(
    r"(?<![\w.])(800|1066|1333|1600|1866|2133|2400|266[67]|2800|2933|3000|3200|3333|34(?:00|66)|3600|3733|3800|3866"
    r"|4000|4133|4266|4400|4600|4800|5200|5400|5600|5800|6000|6200|6400|6600|6800|7000|7200|7600|8000|8200|8400|8533"
    r"|8800)(?![\w.])"
)
# Words of memory that change no figure here.
_PLAIN = re.compile(
    r"\b(?:ecc|reg(?:istered)?|unbuffered|buffered|(?:r|u|lr|mr|so-?)?dimms?|sticks?|modules?|kit|xmp|expo|jedec|of|ram"
    r"|memory|system|total|installed|running|at|cl\s?\d{2}|\d{2}(?:-\d{2}){2,3}"
    r"|(?:single|dual|quad|[124])[ -]?r(?:ank(?:ed)?)?|channels?|mt/s|mhz)\b|[@()/:-]",
    re.I,
)


def gigabytes(size: re.Match[str]) -> float:
    """Return the gigabytes of a match of SIZE."""
    return float(size[1]) * (1024 if size[2].lower().startswith("t") else 1)


def read_ram(piece: str) -> tuple[Ram, str] | None:
    """Return the memory that a piece of text is, and what is left of the piece; None where it is something else.

    Raises InvalidHardware for sizes that contradict each other, and for a number that may be a GPU's name too.
    """
    measured, left = _cut(_MEASURED, piece)
    free, left = _cut(_FREE, left)
    modules, left = _cut(_MODULES, left)
    if modules is None:
        modules, left = _cut(_MODULES_OF, left)
    size, left = _cut(SIZE, left)
    if modules is None and size is not None:
        modules, left = _cut(_BARE_MODULES, left)
    kind, left = _cut(_TYPE, left)
    speed, left = _cut(_SPEED, left)
    word, left = _cut(_CHANNEL_WORD, left)
    channels, left = _cut(_CHANNELS, left)
    rate, left = _cut(_RATES, left) if not (speed or (kind and kind[2])) else (None, left)
    left = " ".join(_PLAIN.sub(" ", left).split())
    is_named = _WORD.search(piece) is not None or (speed is not None and _RATES.fullmatch(speed[1] or "") is not None)
    if not (is_named or ((size or modules) and not left)):
        return None
    if not any((measured, free, modules, size, kind, speed, channels, word)):
        raise unreadable(piece, "write RAM as `512GB DDR5-4800 x8`")
    each = float(modules[2]) if modules else gigabytes(size) if size else 0
    if rate is not None and not is_named and _is_card(rate[1], each):
        raise unreadable(
            piece, f"it may be a GPU or RAM: write `RX {rate[1]}`, or the RAM as `{each:g}GB DDR5-{rate[1]}`"
        )
    if kind and kind[2] and "-" not in kind[0] and not _RATES.fullmatch(kind[2]) and gpu_rows(kind[2]):
        raise unreadable(piece, f"`{kind[2]}` is a GPU: write a comma before it")
    mts = (kind[2] if kind else None) or (speed[1] or speed[2] if speed else None) or (rate[1] if rate else None)
    n_channels = int(channels[1] or channels[2]) if channels else _CHANNEL_WORDS[word[1].lower()] if word else None
    ram = Ram(
        total_gb=_total(piece, size, modules),
        free_gb=float(free[1]) if free else None,
        type=kind[1].upper() if kind else None,
        channels=n_channels or (int(modules[1]) if modules else None),
        mts=int(mts) if mts else None,
        measured_bandwidth_gbs=float(measured[1]) if measured else None,
    )
    return ram, left


def _total(piece: str, size: re.Match[str] | None, modules: re.Match[str] | None) -> float | None:
    if modules is None:
        return gigabytes(size) if size else None
    total = float(modules[1]) * float(modules[2])
    if size is not None and gigabytes(size) != total:
        raise unreadable(piece, f"the modules make {total:g} GB, and it says {size[0]}: leave out one of them")
    return total


def _is_card(number: str, gib: float) -> bool:
    return any(row.vram_gib == gib for row in gpu_rows(number))


def _cut(pattern: re.Pattern[str], text: str) -> tuple[re.Match[str] | None, str]:
    """The first match, and the text without it, so that no other pattern reads its numbers again."""
    m = pattern.search(text)
    return m, f"{text[: m.start()]} {text[m.end() :]}" if m else text
