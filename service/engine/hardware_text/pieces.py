"""A text cut into pieces that each speak of one kind of part, and what is said that no figure depends on."""

from __future__ import annotations

import re

from service.engine.catalogue.names import cpu_row, gpu_rows, spaced
from service.engine.errors import InvalidHardware
from service.engine.hardware_text.found import unreadable
from service.engine.hardware_text.ram import SIZE, read_ram

MAX_PIECES = 100
_MAX_PIECE = 400

_SEPARATOR = re.compile(
    r"[,;]|\s\+\s|\+(?=\s?\d{1,2}\s?[x×])|(?<=\d)\+(?=\d{4})|(?<=[a-z])\+(?=\d{4}\D?)|\s&\s|\s/\s(?!x\s?\d)"
    r"|\s(?:and|plus)\s",
    re.I,
)
# Where a CPU or RAM begins behind something else without a comma: `RTX 3090 Ryzen 9 7950X 128GB DDR5`.
_KIND_BEGINS = re.compile(
    r"(?:(?<=\s)|^)(?:(?:\d{1,2}\s?[x×]|dual|two)\s+)?(?:(?:amd|intel)\s+)?"
    r"(?:ryzen\s+threadripper|threadripper|tr\s(?:pro\s)?\d{4}|ryzen|epyc|xeon|core\s+(?:i[3579]|ultra)|i[3579]-\d)"
    r"|(?:(?<=\s)|^)(?:\d{1,2}\s?[x×]\s?)?\d{1,5}\s?(?:[gt]i?b|g|gigs?)\s+(?:of\s+)?(?:(?:lp)?ddr|ram\b|memory\b|ecc\b)",
    re.I,
)
_GPU_BEGINS = re.compile(
    r"(?<=\s)(?:\d{1,2}\s?[x×]\s?)?(?:nvidia|geforce|rtx|gtx|radeon|rx\s?\d|tesla|quadro|instinct|arc\s[ab]\d)", re.I
)
_NO_GPU_BEGINS = re.compile(r"(?:cpu[ -]only|no gpus?)(?:\s?:)?\s+(?=\S)", re.I)
_NO_GPU_ENDS = re.compile(r"(?<=\s)(?:cpu[ -]only|(?:no|without(?: an?)?)\s(?:dedicated\s|discrete\s)?gpus?)\s*$", re.I)
_LABEL_BEGINS = re.compile(
    r"(?<=\S)(?<!\bno)[ \t]+(?=(?:gpus?|cpu|ram|memory|os)[ \t]?:[ \t])", re.I
)  # `cpu: 7950X ram: 64GB gpu: 4090`
_ONLY_COUNT = re.compile(r"\s*(?:\(?\d{1,2}\s?[x×]?\)?|and|with|w/|plus|ram|memory|cpu:?|ram:)?\s*", re.I)
_TRAILING = re.compile(r"(?:\s+(?:and|with|w/|plus|on|in)(?:\s(?:an?|the|my))?)+$", re.I)
_LEADING = re.compile(
    r"^(?:and|with|plus|an?|my|on|gpus?\s*:|cpu\s*:|ram\s*:|os\s*:|memory\s*:"
    r"|(?:gaming\s)?(?:laptop|notebook)(?:\s?:|\swith|\sw/|\shas)?(?:\san?)?"
    r"|(?:rig|specs?|setup|system|machine|pc|build|hardware|server|box)\s*:"
    r"|(?:i|we)(?:['’]ve|['’]m)?(?:\s(?:have|own|got|run|use|am|using|running))*)\s+",
    re.I,
)
# A minus sign before a number, unlike the hyphen of a name, a bullet or `DDR5-4800`.
_NEGATIVE = re.compile(
    r"^\s*(?:\d{1,2}\s?[x×*]\s?)?[-−–](?=\d)"
    r"|(?<=[\s@x×])[-−–](?=\d{1,6}(?:\.\d{1,3})?\s?(?:[gmt]i?b\b|[gt]\b|mt/s|mhz|cores?\b|ghz|[x×]\s?\w))",
    re.I,
)
_COUNT = re.compile(r"[x×]\s?\d{1,2}", re.I)
_FREE = re.compile(r"\s?(?:free|available|vram)", re.I)
_DISK = r"(?:nvme|ssds?|hdds?|m\.2|disks?|drives?|storage)"
# What a machine has besides, and how its parts are run: no figure of ours is taken from it.
_BESIDE = re.compile(
    r"(?:\b\d{1,2}\s?[x×]\s?)?\b\d{1,5}(?:\.\d{1,2})?\s?[gt]i?b\s(?:of\s)?(?:swap(?:\s?file|\s?partition|\s?space)?|zram|page\s?file)\b"
    r"|\b(?:swap(?:\s?file)?|zram|page\s?file)\s?[:=]?\s?(?:of\s)?\d{1,5}(?:\.\d{1,2})?\s?[gt]i?b\b|\bno\s(?:swap|page\s?file)\b"
    r"|(?:\b\d{1,2}\s?[x×]\s?)?\b\d{1,5}(?:\.\d{1,2})?\s?[gt]b\s(?:(?:pcie|gen\s?\d|[345]\.0|x4|sata|fast|samsung|intel|optane|wd|usb)\s){0,3}"
    rf"{_DISK}(?:\s{_DISK}|\sraid\s?\d?)*\b"
    r"|\b\d{3,4}\s?w(?:atts?)?\s(?:psu|power\ssupply)\b"
    r"|\(?(?:@\s?|\bat\s|\bwith\s)?(?:\b(?:power[\s-]?)?(?:limit(?:ed)?|capp?(?:ed)?|draw)\s?(?:to|at|of|is)?\s?[:=]?\s?|\bpl\s?[:=]?\s?)?"
    r"(?<![-\w.])\d{2,3}\s?w(?:atts?)?\b(?:\s(?:each|a\scard|tdp|power[\s-]limit|limit))?\)?"
    r"|\(?\b(?:under-?volted|over-?clocked|water-?cooled|headless|founders(?:\sedition)?|fe|evga|msi|zotac|palit|gainward"
    r"|pny|inno3d|suprim|ventus|aorus|ftw3|xc3|tuf|gaming|blower)\b\)?",
    re.I,
)


def pieces_of(text: str) -> tuple[list[str], list[str]]:
    """Return the pieces of a text, and what it says besides. Raises InvalidHardware for too many pieces, and for a
    number below 0.

    Pieces end at commas, semicolons, line ends, plus signs and `and` outside of brackets and quotes, and where another
    kind of part begins.
    """
    beside: list[str] = []
    lines = text if '"' in text else _LABEL_BEGINS.sub("\n", text)
    whole = [raw if '"' in raw else _without(spaced(raw), beside) for raw in _outside(lines)]
    pieces = [part for raw in whole for part in _kinds(raw)]
    if negative := next((piece for piece in pieces if '"' not in piece and _NEGATIVE.search(piece)), None):
        raise unreadable(negative, "a count or a size cannot be negative: leave out the minus sign")
    clean = [found for piece in pieces if (found := _trimmed(piece))]
    if len(clean) > MAX_PIECES:
        raise InvalidHardware(f"{len(clean)} pieces are too many, at most {MAX_PIECES}", field="hardware")
    return clean, beside


def _without(piece: str, beside: list[str]) -> str:
    """The piece without what it says besides, which is added to `beside`."""
    if "[" in piece or len(piece) > _MAX_PIECE:
        return piece
    beside += [m[0].strip(" ()@") for m in _BESIDE.finditer(piece)]
    return _BESIDE.sub(" ", piece)


def _trimmed(piece: str) -> str:
    piece = piece.strip(" \t.|*•-!?").rstrip("/: ")
    while (shorter := _TRAILING.sub("", _LEADING.sub("", piece)).strip()) != piece:
        piece = shorter
    return piece


def _kinds(piece: str) -> list[str]:
    """Split one piece where another kind of part begins in it."""
    if '"' in piece or "[" in piece:
        return [piece]
    head = piece[:_MAX_PIECE]
    starts = [m.start() for m in _KIND_BEGINS.finditer(head)]
    starts += [m.start() for m in SIZE.finditer(head) if _is_cpu(head[: m.start()])][:1]
    starts += [
        m.start() for m in SIZE.finditer(head) if _is_sized_gpu(head[: m.start()]) and not _FREE.match(head, m.end())
    ][:1]
    starts += [m.start() for m in _GPU_BEGINS.finditer(head) if _is_host(head[: m.start()])][:1]
    starts += [m.end() for m in [_NO_GPU_BEGINS.match(head)] if m]
    starts += [m.start() for m in [_NO_GPU_ENDS.search(head)] if m]
    cuts = [n for n in sorted(set(starts)) if n > 0 and not _ONLY_COUNT.fullmatch(head[:n]) and _closed(head[:n])]
    return [piece[a:b].strip() for a, b in zip([0, *cuts], [*cuts, len(piece)], strict=True)]


def _closed(text: str) -> bool:
    return text.count("(") <= text.count(")")


def _is_cpu(text: str) -> bool:
    return cpu_row(text) is not None and not gpu_rows(text)


def _is_sized_gpu(text: str) -> bool:
    """Whether a text is a GPU with its memory, behind which another size is that of the RAM: `3060 12GB 64GB`."""
    size = SIZE.search(text)
    behind = text[size.end() :].strip() if size else ""
    return (
        size is not None
        and (not behind or _COUNT.fullmatch(behind) is not None)
        and bool(gpu_rows(text[: size.start()].strip()))
    )


def _is_host(text: str) -> bool:
    """Whether a text is a CPU, or RAM, that a GPU's name may follow: not `Ryzen 7 8845HS w/`, whose GPU is its own."""
    return not re.search(r"(?:w/|with)\s*$", text, re.I) and (_is_cpu(text) or read_ram(text) is not None)


def _outside(text: str) -> list[str]:
    """Split at separators outside of brackets and quotes, which end with their line."""
    parts, depth, quoted, start, i = [], 0, False, 0, 0
    while i < len(text):
        c = text[i]
        quoted ^= c == '"'
        depth += (c in "[(") - (c in "])") if not quoted else 0
        separator = _SEPARATOR.match(text, i) if depth <= 0 and not quoted and c in ",;+& aApP\t" else None
        if c == "\n" or separator:
            parts.append(text[start:i])
            i = separator.end() if separator else i + 1
            start, depth, quoted = i, 0, False
        else:
            i += 1
    parts.append(text[start:])
    return parts
