"""Shorthand: `2x5090 + 2x4090, EPYC 9355, 512GB DDR5-4800 x8`.

Pieces are separated by commas, semicolons, line ends or ` + `. A piece is GPUs (`2x RTX 3090`, with what is known of
them behind: `24GB pcie 4.0 x8 [18.5 GiB free; display]`), a CPU (`2x EPYC 9115`), RAM (`512GB DDR5-4800 x8`: eight
filled channels), a Mac (`M3 Ultra 512GB`), a system, or `no GPU`. A name that no list has is quoted: `gpu "Name"
[24 GiB]`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from service.engine.catalogue.names import cpu_row, gpu_rows, nearest, spaced
from service.engine.errors import InvalidHardware
from service.engine.hardware import Cpu, Gpu, Ram
from service.engine.hardware_text.details import details
from service.engine.hardware_text.found import Claim, Found, merged, unreadable

MAX_PIECES = 100
_MAX_PIECE = 400
_KINDS = "write GPUs, CPU and RAM with commas between them, as in `2x RTX 3090, EPYC 9355, 512GB DDR5-4800 x8`"

_PLUS = re.compile(r"\s\+\s|\+(?=\s?\d{1,2}\s?[x×])|(?<=\d)\+(?=\d{4})|\s&\s")
# Where a CPU or RAM begins behind something else without a comma: `RTX 3090 Ryzen 9 7950X 128GB DDR5`.
_KIND_BEGINS = re.compile(
    r"(?:(?<=\s)|^)(?:(?:\d{1,2}\s?[x×]|dual|two)\s+)?(?:(?:amd|intel)\s+)?"
    r"(?:ryzen\s+threadripper|threadripper|ryzen|epyc|xeon|core\s+(?:i[3579]|ultra)|i[3579]-\d)"
    r"|(?:(?<=\s)|^)(?:\d{1,2}\s?[x×]\s?)?\d{1,5}\s?[gt]i?b\s+(?:of\s+)?(?:(?:lp)?ddr|ram\b|memory\b)",
    re.I,
)
_JOINS = frozenset(("and", "with", "w/", "plus", "ram", "memory", "cpu", "cpu:", "ram:"))
_COUNT = re.compile(r"^(\d{1,2})\s*[x×*]\s*(?!\d{1,4}\s?[gt]i?b\b)|^(dual|two|single|one|quad|four)\s+", re.I)
_COUNT_BEHIND = re.compile(r"\s\(?[x×]\s?(\d{1,2})\)?$")
_LINK_BEGINS = re.compile(r"(?:\bpci-?e?|\b(?:pci-?e?|gen)[\s-]{0,2}(?:gen\s?)?[1-6](?:\.\d)?|[\s@][1-6]\.\d)$", re.I)
_WORD_COUNTS = {"dual": 2, "two": 2, "single": 1, "one": 1, "quad": 4, "four": 4}
_NO_GPU = re.compile(r"(?:no|without|zero|0)\s?(?:dedicated\s|discrete\s)?gpus?|cpu[ -]only|none", re.I)
_SYSTEM = re.compile(
    r"(?:(?:ms\s)?windows|win)\s?(?:\d{1,2}|server[ \d]*)?|linux"
    r"|(?:ubuntu|debian|fedora|arch|mint|nixos|rocky|centos|rhel|proxmox|unraid)(?:\s?linux)?[ \d.]*"
    r"|mac\s?os[ \d.]*|macosx?|wsl\s?2?",
    re.I,
)
_MAC = re.compile(
    r"(?:(?:mac\s?(?:studio|mini|pro|book(?:\s?(?:pro|air))?)|imac)\s+)?(?:apple\s+)?(m[1-9](?:\s+(?:pro|max|ultra))?)(?:\s+\(?(\d{2,3}-core)(?:\s+gpu)?\)?)?",
    re.I,
)
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s?(gib|gb|g|tib|tb|t)\b(?!/s)", re.I)
_MODULES = re.compile(r"(?<!\w)(\d{1,3})\s?[x×]\s?(\d{1,4}(?:\.\d{1,3})?)\s?(?:gib|gb|g)\b(?!/s)", re.I)
_RAM_WORD = re.compile(r"\b(?:lp)?ddr\d|\bram\b|\bmemory\b|\bchannels?\b|\bmt/s\b|\b(?:r|u|lr|mr)dimms?\b", re.I)
_RAM_TYPE = re.compile(r"\b((?:lp)?ddr\d[xl]?)(?:[\s-]{0,2}(\d{3,5})\b)?", re.I)
_RAM_SPEED = re.compile(r"(?:@\s?)?\b(\d{3,5})\s?(?:mt/?s|mhz)\b|@\s?(\d{4,5})\b", re.I)
_CHANNELS = re.compile(r"(?:^|\s)[x×]\s?(\d{1,2})(?!\S)|\b(\d{1,2})[\s-]?(?:channels?|ch)\b", re.I)
_CHANNEL_WORD = re.compile(r"\b(dual|quad|hexa|octa)[ -]channel", re.I)
_CHANNEL_WORDS = {"dual": 2, "quad": 4, "hexa": 6, "octa": 8}
_MEASURED = re.compile(r"(?:measured|reads?|at)?\s{0,2}(\d{1,5}(?:\.\d{1,3})?)\s?gb/s", re.I)
_FREE_RAM = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s?gi?b\s(?:free|available)", re.I)
_CORES = re.compile(r"\(?\b(\d{1,4})[\s-]?(?:physical\s)?cores?\b\)?", re.I)
_GPU_WORD = re.compile(
    r"\b(?:rtx|gtx|rx|radeon|geforce|nvidia|tesla|quadro|instinct|mi\d{2,3}x?|arc|titan|gpus?|jetson)\b", re.I
)
_CPU_WORD = re.compile(
    r"\b(?:epyc|ryzen|xeon|threadripper|core|celeron|pentium|cpu|i[3579]-\d{4,5}\w{0,3}|ultra [579] \d{3})\b", re.I
)
# The GPU in a processor that shares its memory, by the catalogue's name of the processor (AMD's product pages).
_OWN_GPU = {
    "AMD Ryzen AI Max+ 395": "AMD Radeon 8060S",
    "AMD Ryzen AI Max 390": "AMD Radeon 8050S",
    "AMD Ryzen AI Max 385": "AMD Radeon 8050S",
}
_SOCKETS = re.compile(r"\b(\d{1,2}) sockets?\b", re.I)
_NAMELESS_CPU = re.compile(r"cpu(?:\s(\d{1,2}) sockets?)?(?:\s(\d{1,4}) cores?)?", re.I)
_QUOTED = re.compile(r'^(gpu|cpu)\s+"([^"]{1,200})"\s*(.{0,300})$', re.I)
_LEADING = re.compile(r"^(?:and|with|plus|an?|my|on|gpus?\s*:|cpu\s*:|ram\s*:|os\s*:|memory\s*:)\s+", re.I)
# A minus sign before a number, unlike the hyphen of a name, a bullet or `DDR5-4800`.
_NEGATIVE = re.compile(
    r"^\s*(?:\d{1,2}\s?[x×*]\s?)?[-−–](?=\d)"
    r"|(?<=[\s@x×])[-−–](?=\d{1,6}(?:\.\d{1,3})?\s?(?:[gmt]i?b\b|[gt]\b|mt/s|mhz|cores?\b|ghz|[x×]\s?\w))",
    re.I,
)
_NOISE_LINE = re.compile(
    r"^\s*(?:```\w{0,20}|~~~\w{0,20}|[-=+|_~#>*\s]*|(?:[\w.@:~/\\-]{0,60}[$#%>]|PS [^>]{0,80}>)\s.{0,200})\s*$"
)


def read_shorthand(lines: Sequence[str]) -> Claim | None:
    """Return what all lines that are left say. Raises InvalidHardware for a piece that cannot be read."""
    text = "\n".join(line for line in lines if not _NOISE_LINE.match(line))
    found = [_piece(piece) for piece in _pieces(text)]
    if not found:
        return None
    ram = [f.ram for f in found if f.ram is not None]
    cpu = [f.cpu for f in found if f.cpu is not None]
    if len(cpu) > 1 and len({c.model for c in cpu}) > 1:
        raise unreadable(f"{cpu[0].model}, {cpu[1].model}", "a machine has one kind of CPU; write `2x` for two sockets")
    gpus = tuple(gpu for f in found for gpu in f.gpus)
    no_gpu = any(f.no_gpu for f in found)
    together = Found(
        gpus=gpus if gpus or no_gpu or not cpu else _own_gpus(cpu[0]),
        no_gpu=no_gpu,
        cpu=cpu[0] if cpu else None,
        ram=merged(Ram, ram),  # `512GB` and `8 channel DDR5-4800` may be two pieces
        os=next((f.os for f in found if f.os), None),
    )
    return Claim(together, frozenset(range(len(lines))))


def _pieces(text: str) -> list[str]:
    """Split at commas, semicolons, line ends and plus signs that are outside of brackets and quotes."""
    pieces = [part for raw in _outside(text) for part in _kinds(raw if '"' in raw else spaced(raw))]
    if negative := next((piece for piece in pieces if '"' not in piece and _NEGATIVE.search(piece)), None):
        raise unreadable(negative, "a count or a size cannot be negative: leave out the minus sign")
    clean = [piece for piece in (_LEADING.sub("", p.strip(" \t.|*•-")).strip() for p in pieces) if piece]
    if len(clean) > MAX_PIECES:
        raise InvalidHardware(f"{len(clean)} pieces are too many, at most {MAX_PIECES}", field="hardware")
    return clean


def _kinds(piece: str) -> list[str]:
    """Split one piece where another kind of part begins in it."""
    if '"' in piece or "[" in piece or "(" in piece:
        return [piece]
    starts = [m.start() for m in _KIND_BEGINS.finditer(piece[:_MAX_PIECE])]
    cuts = [n for n in starts if n > 0 and piece[:n].strip().lower() not in _JOINS]
    return [piece[a:b].strip() for a, b in zip([0, *cuts], [*cuts, len(piece)], strict=True)]


def _outside(text: str) -> list[str]:
    parts, depth, quoted, start = [], 0, False, 0
    for i, c in enumerate(text):
        quoted ^= c == '"'
        depth += (c in "[(") - (c in "])") if not quoted else 0
        is_separator = c in ",;" or (c == "+" and text[i - 1 : i + 2] == " + ")
        if c == "\n" or (is_separator and depth <= 0 and not quoted):
            parts.append(text[start:i])
            start, depth, quoted = i + 1, 0, False
    parts.append(text[start:])
    return [piece for part in parts for piece in ([part] if '"' in part or "[" in part else _PLUS.split(part))]


def _piece(piece: str) -> Found:
    if len(piece) > _MAX_PIECE:
        raise unreadable(piece, f"{len(piece)} characters in one piece are too many; {_KINDS}")
    if _NO_GPU.fullmatch(piece):
        return Found(no_gpu=True)
    if _SYSTEM.fullmatch(piece):
        return Found(os=piece.lower())
    if m := _NAMELESS_CPU.fullmatch(piece):
        return Found(cpu=Cpu(sockets=int(m[1]) if m[1] else None, physical_cores=int(m[2]) if m[2] else None))
    count, rest = _counted(piece)
    if quoted := _QUOTED.match(rest):
        return _quoted(count, quoted[1].lower(), quoted[2], quoted[3])
    if found := _mac(rest):
        return found
    if _is_ram(piece):
        return Found(ram=_ram(piece))
    return _processor(piece, count, rest)


def _counted(piece: str) -> tuple[int, str]:
    if m := _COUNT.match(piece):
        return (int(m[1]) if m[1] else _WORD_COUNTS[m[2].lower()]), piece[m.end() :].strip()
    m = _COUNT_BEHIND.search(piece)
    if m and not _RAM_WORD.search(piece) and not _is_lanes(piece[: m.start()]):
        return int(m[1]), piece[: m.start()].strip()
    return 1, piece


def _is_lanes(before: str) -> bool:
    """Whether an `x8` behind `before` is the width of a link: not in `H100 PCIe x2`, where PCIe is part of the name."""
    return _LINK_BEGINS.search(before) is not None and not gpu_rows(before)


def _quoted(count: int, kind: str, name: str, rest: str) -> Found:
    if kind == "cpu":
        sockets, cores = _SOCKETS.search(rest), _CORES.search(rest)
        n_sockets = int(sockets[1]) if sockets else count if count > 1 else None
        return Found(cpu=Cpu(model=name, sockets=n_sockets, physical_cores=int(cores[1]) if cores else None))
    _, gpu = details(rest, Gpu(name=name, count=count))
    return Found(gpus=(gpu,))


def _mac(piece: str) -> Found | None:
    m = _MAC.match(piece)
    if m is None:
        return None
    name = f"Apple {m[1].upper().title() if len(m[1]) > 2 else m[1].upper()}"
    gpu = f"{name} {m[2]} GPU" if m[2] else name
    size = _SIZE.search(piece, m.end())
    left = _CORES.sub("", _SIZE.sub("", piece[m.end() :])).strip(" ()")
    if left.lower() not in ("", "ram", "unified", "unified memory", "memory", "mac studio", "macbook pro", "mac mini"):
        raise unreadable(piece, "write a Mac as `M3 Ultra 512GB`")
    known = gpu if gpu_rows(gpu) else name
    return Found(
        gpus=(Gpu(name=known),), cpu=Cpu(model=name), ram=Ram(total_gb=_gb(size)) if size else None, os="macos"
    )


def _gb(size: re.Match[str]) -> float:
    return float(size[1]) * (1024 if size[2].lower().startswith("t") else 1)


def _is_ram(piece: str) -> bool:
    if _GPU_WORD.search(piece):
        return False
    return bool(_RAM_WORD.search(piece) or _SIZE.fullmatch(piece) or _MODULES.fullmatch(piece))


def _ram(piece: str) -> Ram:
    measured, left = _cut(_MEASURED, piece)
    free, left = _cut(_FREE_RAM, left)
    modules, size, kind = _MODULES.search(left), _SIZE.search(left), _RAM_TYPE.search(left)
    speed, channels, word = _RAM_SPEED.search(left), _CHANNELS.search(left), _CHANNEL_WORD.search(left)
    if not any((measured, free, modules, size, kind, speed, channels, word)):
        raise unreadable(piece, "write RAM as `512GB DDR5-4800 x8`")
    n_channels = int(channels[1] or channels[2]) if channels else _CHANNEL_WORDS[word[1].lower()] if word else None
    mts = (kind[2] if kind else None) or (speed[1] or speed[2] if speed else None)
    return Ram(
        total_gb=float(modules[1]) * float(modules[2]) if modules else _gb(size) if size else None,
        free_gb=float(free[1]) if free else None,
        type=kind[1].upper() if kind else None,
        channels=n_channels or (int(modules[1]) if modules else None),
        mts=int(mts) if mts else None,
        measured_bandwidth_gbs=float(measured[1]) if measured else None,
    )


def _cut(pattern: re.Pattern[str], text: str) -> tuple[re.Match[str] | None, str]:
    """The first match, and the text without it, so that no other pattern reads its numbers again."""
    m = pattern.search(text)
    return m, f"{text[: m.start()]} {text[m.end() :]}" if m else text


def _processor(piece: str, count: int, rest: str) -> Found:
    if cpu_row(rest) is not None and not gpu_rows(rest):  # the G of `Ryzen 5 5600G` is no size
        return Found(cpu=_cpu(count, rest))
    name, gpu = details(rest, Gpu(name=rest, count=count))
    is_gpu, is_cpu = bool(gpu_rows(name)), cpu_row(_CORES.sub("", name)) is not None
    if is_gpu and gpu_rows(name)[0].unified and gpu_rows(name)[0].vram_gib is None:
        return _with_its_memory(gpu, piece)
    if _CPU_WORD.search(name) and not (is_gpu and not is_cpu):
        return Found(cpu=_cpu(count, name), ram=Ram(total_gb=gpu.vram_gib) if gpu.vram_gib else None)
    if _GPU_WORD.search(name) or (is_gpu and not is_cpu):
        return Found(gpus=(gpu,))
    if is_gpu and is_cpu:
        raise unreadable(piece, f"it is a GPU and a CPU: write `{gpu_rows(name)[0].name}` or `{_cpu_name(name)}`")
    if is_cpu:
        return Found(cpu=_cpu(count, name))
    near = (*nearest(name, n=2), *nearest(name, cpu=True, n=2))
    raise unreadable(piece, f"no GPU or CPU of that name{' (' + ', '.join(near) + '?)' if near else ''}; {_KINDS}")


def _with_its_memory(gpu: Gpu, piece: str) -> Found:
    """A GPU that shares the machine's memory: a size behind it is that of the machine, unless in brackets."""
    if "[" in piece or gpu.vram_gib is None:
        return Found(gpus=(gpu,))
    rows = gpu_rows(gpu.name, gpu.vram_gib)
    name = next((row.name for row in rows if row.name.endswith(f" {gpu.vram_gib:g}GB")), gpu.name)
    return Found(gpus=(msgspec.structs.replace(gpu, name=name, vram_gib=None),), ram=Ram(total_gb=gpu.vram_gib))


def _own_gpus(cpu: Cpu | None) -> tuple[Gpu, ...]:
    row = cpu_row(cpu.model) if cpu is not None and cpu.model else None
    return (Gpu(name=_OWN_GPU[row.name]),) if row is not None and row.name in _OWN_GPU else ()


def _cpu_name(name: str) -> str:
    row = cpu_row(name)
    return row.name if row else name


def _cpu(count: int, name: str) -> Cpu:
    cores = None if re.search(r"\d-core", name, re.I) else _CORES.search(name)
    model = name if cpu_row(name) else _CORES.sub("", name).strip(" (),")
    return Cpu(
        model=model, sockets=count if count > 1 else None, physical_cores=int(cores[1]) if cores is not None else None
    )
