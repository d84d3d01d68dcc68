"""Shorthand: `2x5090 + 2x4090, EPYC 9355, 512GB DDR5-4800 x8`.

Pieces are separated by commas, semicolons, line ends, ` + ` or `and`. A piece is GPUs (`2x RTX 3090`, with what is
known of them behind: `24GB pcie 4.0 x8 [18.5 GiB free; display]`), a CPU (`2x EPYC 9115`), RAM (`512GB DDR5-4800 x8`:
eight filled channels), a Mac (`M3 Ultra 512GB`), a link of the GPUs before it (`x16/x4`), a system, or `no GPU`. A name
that no list has is quoted: `gpu "Name" [24 GiB]`. What is neither hardware nor like it is kept as a note.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from service.engine.catalogue.names import cpu_row, gpu_rows, gpus_named_in, is_like_a_name, nearest
from service.engine.hardware import Cpu, Gpu, Ram
from service.engine.hardware_text.details import details, is_link, link_of, widths_of
from service.engine.hardware_text.found import Claim, Found, merged, unreadable
from service.engine.hardware_text.pieces import pieces_of
from service.engine.hardware_text.ram import SIZE, gigabytes, read_ram

_MAX_PIECE = 400
_KINDS = "write GPUs, CPU and RAM with commas between them, as in `2x RTX 3090, EPYC 9355, 512GB DDR5-4800 x8`"
_LINKS = "write the link behind the GPU that has it, as in `RTX 3090 pcie 3.0 x4`"

_COUNT = re.compile(
    r"^(?:\(?(\d{1,2})\s*[x×*]\)?\s*(?!\d{1,4}\s?[gt]i?b\b)"
    r"|(dual|two|single|one|triple|three|quad|four|five|six|seven|eight|a\spair\sof|a\scouple\sof|pair\sof)\s+)",
    re.I,
)
_BARE_COUNT = re.compile(r"^(\d{1,2})\s+(?!cores?\b)(?=\S)", re.I)
_COUNT_BEHIND = re.compile(r"\s\(?[x×*]\s?(\d{1,2})\)?$")
_COUNT_AT_NAME = re.compile(r"(?<=\w)[x×*](\d{1,2})$")
_LINK_BEGINS = re.compile(r"(?:\bpci-?e?|\b(?:pci-?e?|gen)[\s-]{0,2}(?:gen\s?)?[1-6](?:\.\d)?|[\s@][1-6]\.\d)$", re.I)
_WORD_COUNTS = {"dual": 2, "two": 2, "single": 1, "one": 1, "triple": 3, "three": 3, "quad": 4, "four": 4, "five": 5}
_WORD_COUNTS |= {"six": 6, "seven": 7, "eight": 8, "a pair of": 2, "a couple of": 2, "pair of": 2}
_PARENTHESES = re.compile(r"\s*\(([^()]*)\)")
_NO_GPU = re.compile(r"(?:no|without(?:\san?)?|zero|0)\s?(?:dedicated\s|discrete\s)?gpus?|cpu[ -]only|none", re.I)
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
_CORES = re.compile(r"\(?\b(\d{1,4})[\s-]?(?:physical\s)?cores?\b\)?", re.I)
_GPU_WORD = re.compile(
    r"\b(?:rtx|gtx|rx|radeon|geforce|nvidia|tesla|quadro|instinct|mi\d{2,3}x?|arc|titan|gpus?|jetson)\b", re.I
)
_CPU_WORD = re.compile(
    r"\b(?:epyc|ryzen|xeon|threadripper|tr(?=\s(?:pro\s)?\d{4})|core|celeron|pentium|cpu"
    r"|i[3579]-\d{4,5}\w{0,3}|ultra [579] \d{3})\b",
    re.I,
)
# The GPU in a processor that shares its memory, by the catalogue's name of the processor (AMD's product pages).
_OWN_GPU = {
    "AMD Ryzen AI Max+ 395": "AMD Radeon 8060S",
    "AMD Ryzen AI Max 390": "AMD Radeon 8050S",
    "AMD Ryzen AI Max 385": "AMD Radeon 8050S",
}
# GB of cards that workshops rebuild with twice the memory, and owners post benchmarks of.
_REBUILT = {
    "NVIDIA GeForce RTX 2080 Ti": 22,
    "NVIDIA GeForce RTX 3070": 16,
    "NVIDIA GeForce RTX 3080": 20,
    "NVIDIA GeForce RTX 4080 SUPER": 32,
    "NVIDIA GeForce RTX 4090": 48,
    "NVIDIA GeForce RTX 4090 D": 48,
}
_LAPTOP = re.compile(r"\b(?:laptop|notebook)\b", re.I)
_BESIDE_RAM = re.compile(r"^(?:with|on|in|w/)\s(?:an?\s|my\s)?", re.I)
_SOCKETS = re.compile(r"\b(\d{1,2}) sockets?\b", re.I)
_NAMELESS_CPU = re.compile(r"cpu(?:\s(\d{1,2}) sockets?)?(?:\s(\d{1,4}) cores?)?", re.I)
_ONLY_CORES = re.compile(r"(\d{1,4})[\s-]?(?:physical\s)?cores?(?:\s(?:cpu|processor))?", re.I)
_QUOTED = re.compile(r'^(gpu|cpu)\s+"([^"]{1,200})"\s*(.{0,300})$', re.I)
_RAM_WORD = re.compile(r"\b(?:lp)?ddr\d|\bram\b|\bmemory\b|\bvram\b", re.I)
_VRAM_ALONE = re.compile(
    r"(?:gpu\s)?[\d.]{1,6}\s?(?:[gm]i?b?)(?:\s(?:of\s)?(?:vram|gpu(?:\smemory)?|video\smemory))", re.I
)
_NOISE_LINE = re.compile(
    r"^\s*(?:```\w{0,20}|~~~\w{0,20}|[-=+|_~#>*\s]*|(?:[\w.@:~/\\-]{0,60}[$#%>]|PS [^>]{0,80}>)\s.{0,200})\s*$"
)


def read_shorthand(lines: Sequence[str]) -> Claim | None:
    """Return what all lines that are left say. Raises InvalidHardware for a piece that cannot be read."""
    pieces, beside = pieces_of("\n".join(line for line in lines if not _NOISE_LINE.match(line)))
    if not pieces and not beside:
        return None
    found = _sized(_linked([_piece(piece) for piece in pieces]))
    if _LAPTOP.search("\n".join(lines)):
        found = [msgspec.structs.replace(f, gpus=tuple(map(_in_laptop, f.gpus))) for f in found]
    ram = [f.ram for f in found if f.ram is not None]
    cpu = [f.cpu for f in found if f.cpu is not None]
    if len(models := list(dict.fromkeys(c.model for c in cpu if c.model))) > 1:
        raise unreadable(", ".join(models[:2]), "a machine has one kind of CPU; write `2x` for two sockets")
    if len(sizes := {r.total_gb for r in ram if r.total_gb is not None}) > 1:
        said = " and ".join(f"{size:g} GB" for size in sorted(sizes))
        raise unreadable(said, "two sizes of RAM: write one, the sum of all modules")
    gpus = tuple(gpu for f in found for gpu in f.gpus)
    no_gpu = any(f.no_gpu for f in found)
    processor = merged(Cpu, cpu)  # `Ryzen 9 5950X` and `16 cores` may be two pieces
    together = Found(
        gpus=gpus if gpus or no_gpu else _own_gpus(processor),
        no_gpu=no_gpu,
        cpu=processor,
        ram=merged(Ram, ram),  # `512GB` and `8 channel DDR5-4800` may be two pieces
        os=next((f.os for f in found if f.os), None),
        notes="; ".join(dict.fromkeys((*beside, *(f.notes for f in found if f.notes)))) or None,
    )
    return Claim(together, frozenset(range(len(lines))))


def _linked(found: Sequence[Found]) -> list[Found]:
    """What was found, a piece that is only a link put to the GPUs before it. Raises InvalidHardware if unclear."""
    linked: list[Found] = []
    for one in found:
        if one.link is None:
            linked.append(one)
            continue
        before = [f for f in linked if f.gpus]
        n_cards, widths = sum(gpu.count for f in before for gpu in f.gpus), widths_of(one.link)
        if len(before) == 1 and len(widths) == 1:
            widths *= n_cards
        if (len(before) != 1 and not widths) or len(widths) not in (0, n_cards):
            raise unreadable(one.link, _LINKS)
        for f in before:
            (gpu,) = f.gpus
            link = link_of(one.link, [widths.pop(0) for _ in range(gpu.count)] if widths else [])
            linked[linked.index(f)] = msgspec.structs.replace(f, gpus=(msgspec.structs.replace(gpu, pcie=link),))
    return linked


def _sized(found: Sequence[Found]) -> list[Found]:
    """What was found, where no RAM is stated a size that no card has (`4060 laptop 32GB`) taken for that of the RAM.

    Raises InvalidHardware where it may as well be that of a rebuilt card: with up to twice as much.
    """
    if any(f.ram is not None for f in found):
        return list(found)
    return [f if f.doubt is None else _with_ram(f, f.doubt) for f in found]


def _in_laptop(gpu: Gpu) -> Gpu:
    """The GPU of a laptop, which has the name of a larger card; one that is connected from outside is that card."""
    alike = gpu.pcie is None and not re.search(r"laptop|mobile", gpu.name, re.I) and gpu_rows(f"{gpu.name} laptop")
    return msgspec.structs.replace(gpu, name=f"{gpu.name} laptop") if alike else gpu


def _with_ram(found: Found, piece: str) -> Found:
    (gpu,) = found.gpus
    name, size, most = gpu_rows(gpu.name)[0].name, gpu.vram_gib or 0, _largest(gpu)
    cards = f"{gpu.count}x {gpu.name}" if gpu.count > 1 else gpu.name
    if gpu.count > 1 or size <= 2 * most:
        raise unreadable(
            piece,
            f"{name} is sold with {most:g} GB: write `{cards}, {size:g}GB RAM`, or `{cards} [{size:g} GiB]`",
        )
    note = f"{piece}: {size:g} GB taken for RAM, the card is sold with {most:g}"
    return Found(gpus=(msgspec.structs.replace(gpu, vram_gib=None),), ram=Ram(total_gb=size), notes=note)


def _largest(gpu: Gpu) -> float:
    """GB of the largest card of that name, also of those that are rebuilt and sold with more; 0 where none is known."""
    rows = gpu_rows(gpu.name)
    return max((_REBUILT.get(row.name, row.vram_gib or 0) for row in rows), default=0)


def _piece(piece: str) -> Found:
    if len(piece) > _MAX_PIECE:
        raise unreadable(piece, f"{len(piece)} characters in one piece are too many; {_KINDS}")
    if _NO_GPU.fullmatch(piece):
        return Found(no_gpu=True)
    if _SYSTEM.fullmatch(piece):
        return Found(os=piece.lower())
    if _VRAM_ALONE.fullmatch(piece):
        raise unreadable(piece, "which GPU has it? Write its name in front, as in `RTX 4060 Ti 16GB`")
    if is_link(piece):
        return Found(link=piece)
    if m := _NAMELESS_CPU.fullmatch(piece):
        return Found(cpu=Cpu(sockets=int(m[1]) if m[1] else None, physical_cores=int(m[2]) if m[2] else None))
    if m := _ONLY_CORES.fullmatch(piece):
        return Found(cpu=Cpu(physical_cores=int(m[1])))
    count, rest = _counted(piece)
    if quoted := _QUOTED.match(rest):
        return _quoted(count, quoted[1].lower(), quoted[2], quoted[3])
    if found := _mac(rest):
        return found
    if not _GPU_WORD.search(piece) and (memory := read_ram(piece)) is not None:
        return _memory(piece, *memory)
    return _processor(piece, count, rest)


def _memory(piece: str, ram: Ram, left: str) -> Found:
    beside = _BESIDE_RAM.sub("", left)
    if beside != left and (bool(gpu_rows(beside)) != (cpu_row(beside) is not None)):
        return msgspec.structs.replace(_processor(beside, 1, beside), ram=ram)
    if left and (gpus_named_in(left) or _CPU_WORD.search(left) or SIZE.search(left)):
        raise unreadable(piece, f"`{left}` is no RAM; {_KINDS}")
    return Found(ram=ram, notes=left.strip(" ,;.") or None)


def _counted(piece: str) -> tuple[int, str]:
    """How many a piece names, and the piece without that number."""
    if m := _COUNT.match(piece):
        word = re.sub(r"\s+", " ", m[2] or "").lower()
        return (int(m[1]) if m[1] else _WORD_COUNTS[word]), piece[m.end() :].strip()
    if (m := _BARE_COUNT.match(piece)) and _is_part(piece[m.end() :], alone=cpu_row(piece) is None):
        return int(m[1]), piece[m.end() :].strip()
    m = _COUNT_BEHIND.search(piece)
    if m and read_ram(piece) is None and not _is_lanes(piece[: m.start()]):
        return int(m[1]), piece[: m.start()].strip()
    if (m := _COUNT_AT_NAME.search(piece)) and gpu_rows(piece[: m.start()]):
        return int(m[1]), piece[: m.start()].strip()
    return 1, piece


def _is_part(text: str, alone: bool) -> bool:
    """Whether a count may stand before `text`: a CPU, or a GPU where both together are no name (`5 7600`)."""
    name = text.split("(")[0].strip()
    return _CPU_WORD.match(name) is not None or (
        alone and bool(name) and bool(gpu_rows(name) or gpu_rows(_singular(name.split()[0])))
    )


def _singular(name: str) -> str:
    return re.sub(r"['’]?s$", "", name)


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
    size = SIZE.search(piece, m.end())
    left = _CORES.sub("", SIZE.sub("", piece[m.end() :])).strip(" ()")
    if left.lower() not in ("", "ram", "unified", "unified memory", "memory", "mac studio", "macbook pro", "mac mini"):
        raise unreadable(piece, "write a Mac as `M3 Ultra 512GB`")
    known = gpu if gpu_rows(gpu) else name
    return Found(
        gpus=(Gpu(name=known),), cpu=Cpu(model=name), ram=Ram(total_gb=gigabytes(size)) if size else None, os="macos"
    )


def _processor(piece: str, count: int, rest: str) -> Found:
    if cpu_row(rest) is not None and not gpu_rows(rest):  # the G of `Ryzen 5 5600G` is no size
        return Found(cpu=_cpu(count, rest))
    name, gpu = details(_opened(rest), Gpu(name=rest, count=count))
    name, gpu = _one_of_many(piece, name, gpu)
    is_gpu, is_cpu = bool(gpu_rows(name)), cpu_row(_CORES.sub("", name)) is not None
    if is_gpu and gpu_rows(name)[0].unified and gpu_rows(name)[0].vram_gib is None:
        return _with_its_memory(gpu, piece)
    if _CPU_WORD.search(name) and not (is_gpu and not is_cpu):
        return _cpu_of(count, name, gpu, piece)
    if _GPU_WORD.search(name) or (is_gpu and not is_cpu):
        most, told = _largest(gpu), "[" in piece or "vram" in piece.lower()
        return Found(gpus=(gpu,), doubt=piece if most and not told and (gpu.vram_gib or 0) > most else None)
    if is_gpu and is_cpu:
        raise unreadable(piece, f"it is a GPU and a CPU: write `{gpu_rows(name)[0].name}` or `{_cpu_name(name)}`")
    if is_cpu:
        return _cpu_of(count, name, gpu, piece)
    if SIZE.search(piece) or gpus_named_in(piece) or _RAM_WORD.search(piece) or is_like_a_name(name):
        near = (*nearest(name, n=2), *nearest(name, cpu=True, n=2))
        meant = f" ({', '.join(near)}?)" if near else ""
        raise unreadable(piece, f"no GPU or CPU of that name{meant}; {_KINDS}")
    return Found(notes=piece)


def _cpu_of(count: int, name: str, gpu: Gpu, piece: str) -> Found:
    """A CPU; a size behind its name is that of the RAM, and what else stands there is a note."""
    others = (gpu.pcie, gpu.free_gib, gpu.bandwidth_gbs, gpu.nvlink, gpu.display)
    return Found(
        cpu=_cpu(count, name),
        ram=Ram(total_gb=gpu.vram_gib) if gpu.vram_gib else None,
        notes=piece if any(value is not None for value in others) else None,
    )


def _opened(text: str) -> str:
    """The text with parentheses opened that hold details, as in `RTX 3090 (24GB, nvlink)`, and no part of a name."""
    m = _PARENTHESES.search(text)
    if m is None or "[" in text:
        return text
    before, behind = text[: m.start()], text[m.end() :]
    opened = f"{before} {re.sub(r'[,;]', ' ', m[1])}{behind}"
    alone = details(f"{before}{behind}", Gpu(name=""))[0]
    return opened if details(opened, Gpu(name=""))[0] == alone else text


def _one_of_many(piece: str, name: str, gpu: Gpu) -> tuple[str, Gpu]:
    """The name of one card where a plural stands, as in `four 3090s`. Raises InvalidHardware if it may be a SUPER."""
    one = _singular(name)
    if one == name or gpu_rows(name) or not gpu_rows(one):
        return name, gpu
    if gpu.count == 1 or gpu_rows(f"{one} SUPER"):
        also = f", or `{one} SUPER`" if gpu_rows(f"{one} SUPER") else ""
        raise unreadable(piece, f"write how many of them in front: `{max(gpu.count, 2)}x {one}`{also}")
    return one, msgspec.structs.replace(gpu, name=one)


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
