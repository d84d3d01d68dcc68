"""Summaries of a Linux machine: lspci, lshw, neofetch and fastfetch, inxi.

lspci names a card by its chip, which several products may share: then we ask which. Integrated GPUs are left out if
there are others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from service.engine.catalogue.names import gpu_rows, gpus_named_in
from service.engine.hardware import Cpu, Ram
from service.engine.hardware_text.cim import is_integrated
from service.engine.hardware_text.found import Claim, Found, SeenGpu, cut, is_shared, unreadable
from service.engine.hardware_text.parts import graphics_of, own_gpus, sockets_by_threads

_SLOT = r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_UNDER_A_SLOT = (
    "DeviceName|Subsystem|Flags|Memory at|I/O ports|Expansion ROM|Capabilities|Kernel driver|Kernel modules|IOMMU"
)
_PCI = re.compile(rf"^\s*{_SLOT}\s+(?:VGA compatible|3D|Display) controller(?: \[\d{{4}}\])?:\s+(\S.{{0,300}})$", re.I)
_PCI_LINE = re.compile(
    rf"^\s*{_SLOT}\s+\S.{{0,300}}$|^\s+(?:{_UNDER_A_SLOT})\b.{{0,300}}$|^--$|^.{{0,60}}\blspci\b.{{0,80}}$", re.I
)
_IDS = re.compile(r"\s*\[[0-9a-f]{4}:[0-9a-f]{4}\]|\s*\(rev [0-9a-f]{2}\)|\s*\(prog-if .{0,40}\)|\[AMD/ATI\]", re.I)
_MAKERS = {"nvidia": "NVIDIA", "amd": "AMD", "advanced micro": "AMD", "ati ": "AMD", "intel": "Intel"}

# lshw: of its list (`-short`) a line of each class, its other lines; of its tree the heads and what is below them.
_LSHW_SHORT = re.compile(r"^/[0-9a-f][0-9a-f/.]*\s+(?:\S+\s+)?(processor|memory|display)\s+(\S.{0,200})$")
_LSHW_LINE = re.compile(
    r"^/[0-9a-f][0-9a-f/.]*\s{2,}\S.{0,300}$|^H/W path\s+Device\s+Class\s+Description$|^={20,}$"
    r"|^\s{10,}(?:system|bus)\s{2,}\S.{0,200}$"
)
_LSHW_HEAD = re.compile(r"^\s*\*-([a-z]+)(?::\d{1,3})?(?:\s+(?:UNCLAIMED|DISABLED))?$")
_LSHW_PAIR = re.compile(r"^\s+([a-z][a-z ]{2,30}): (.{1,600})$")
_NVIDIA_CHIP = re.compile(r"^(?:NVIDIA\b|G[AFHKMPTV]\d|GB\d|AD\d|TU\d)|\b(?:GeForce|Quadro|Tesla)\b")
_AMD_CHIP = re.compile(r"\b(?:AMD|ATI|Radeon|Instinct)\b")
_SYSTEM_MEMORY = re.compile(r"^(\d{1,5})([GT])iB system memory$", re.I)
_MODULE = re.compile(r"\b(DDR\d)\b.{0,60}?\b(\d{3,5}) MHz")

_FETCH_KEYS = (
    "OS|Host|Kernel|Uptime|Packages|Shell|Resolution|Display|DE|WM|WM Theme|Theme|Icons|Font|Cursor|Terminal"
    "|Terminal Font|CPU|GPU|(?:Memory|RAM)(?=: [\\d.]{1,9} ?[GM]i?B /)|Swap|Disk"
    "|Battery|Power Adapter|Local IP|Public IP|Locale|Brightness|Bootmgr|Board"
    "|BIOS|Motherboard|Monitor|Wifi|Sound|Processes|Editor|Login|LM|Init System|Vulkan|OpenGL|Users|Date|Player"
    "|Media|Chassis"
)
_FETCH = re.compile(rf"^(?:.{{0,80}}?\s)?({_FETCH_KEYS})(?: ?\([^()]{{0,60}}\)| \d{{1,2}})?: (.{{0,300}})$")
_MACHINE_KEYS = frozenset(("OS", "Host", "Kernel", "Uptime", "Packages", "Shell"))
_FETCHED_CPU = re.compile(r"\(\d{1,3}\) @ [\d.]{1,6} ?GHz$")
_USED_OF = re.compile(r"([\d.]{1,9})\s?([GM])i?B\s?/\s?([\d.]{1,9})\s?([GM])i?B")
_BESIDES = re.compile(
    r"\s*(?:\[[^\]]{0,20}\]|\(\d{1,5}\)|\([\d.]{1,6} [GM]iB\)|@ [\d.]{1,6} ?[GM]Hz|,? Lite Hash Rate|\bCorporation\b)",
    re.I,
)

# Parts of fastfetch's JSON, and of a GPU in it: its memory, name and kind, in this order.
_FETCHED_PART = re.compile(r'^\s*"type": "(\w+)",\s*$')
_RESULT = re.compile(r'^\s*"(?:result|error)":')
_FETCHED = re.compile(
    r'"dedicated": \{ "total": (\d{6,14})|"name": "([^"]{3,80})"|"type": "(Discrete|Integrated|Unknown)"'
)
_JSON_LINE = re.compile(r'^\s*(?:"[\w ]{1,40}": .{0,900}|[\[\]{}]{1,3},?|"[^"]{0,200}",?|-?\d[\d.e+-]*,?|null,?)\s*$')

_INXI_HEAD = re.compile(
    r"^(System|Machine|Battery|CPU|Graphics|Audio|Network|Bluetooth|RAID|Drives|Partition|Swap|Sensors|Info|Memory|USB|Repos):\s*(.{0,600})$"
)
_INXI_PAIRS = re.compile(r"^(?:\s+\S.{0,300}?|Device-\d{1,2}): .{0,600}$")
_INXI_DEVICE = re.compile(r"Device-\d{1,2}: (.{3,160}?)(?= (?:vendor|driver|type|arch|bus-ID|v): |$)")
_INXI_CPU = re.compile(
    r"(?:(\d)x )?(?:(\d{1,3})-|(?i:single|dual|triple|quad|hexa|octa) )(?:core|Core(?= model:)) "
    r"(?:\([^()]{1,20}\) )?(?:model: )?"
    r"((?:[A-Z]|1[1-4]th Gen ).{3,80}?)(?= (?:[\[(]-?M|bits|speed)|$)"
)
_INXI_RENDERER = re.compile(r"renderer: (.{3,80}?) (?:Series|\(|v:|/)")  # what a shared chip is, in full
_INXI_RAM = re.compile(r"(?:RAM|Mem|Memory): (?:total: )?([\d.]{1,9}) GiB|Mem: [\d.]{1,9}/([\d.]{1,9}) GiB")


def read_lspci(lines: Sequence[str]) -> Claim | None:
    """Return the cards in `lspci`, in PCI order. Raises InvalidHardware for a chip used in several products."""
    found = {i: m[1] for i, line in enumerate(lines) if (m := _PCI.match(line))}
    if not found:
        return None
    others = [line for line in lines if not _PCI_LINE.match(line)]
    named = [name for line in others for name in (*gpus_named_in(line), *graphics_of(line))]
    cards = list(_apart(name for text in found.values() if (name := _product(text, named))))
    seen = tuple(SeenGpu(name=name, index=n) for n, name in enumerate(cards))
    return Claim(Found(tool="lspci", seen=seen), frozenset(i for i, line in enumerate(lines) if _PCI_LINE.match(line)))


def read_lshw(lines: Sequence[str]) -> Claim | None:
    """Return cards, CPU and RAM from `lshw`, whole, of a class (`-C display`) or as a list (`-short`)."""
    parts = {i: (m[1], m[2].strip()) for i, line in enumerate(lines) if (m := _LSHW_SHORT.match(line))}
    if parts:
        taken = {i for i, line in enumerate(lines) if _LSHW_LINE.match(line)}
        displays = [_with_maker(text) for kind, text in parts.values() if kind == "display"]
        models = [text for kind, text in parts.values() if kind == "processor"]
        memory = [text for kind, text in parts.values() if kind == "memory"]
        cores = None
    else:
        blocks, taken = _lshw_blocks(lines)
        displays = [f"{b.get('vendor', '')} {b.get('product', '')}" for kind, b in blocks if kind == "display"]
        cpus = [b for kind, b in blocks if kind == "cpu" and "product" in b]
        models = [b["product"] for b in cpus]
        stated = re.search(r"\bcores=(\d{1,3})\b", cpus[0].get("configuration", "")) if cpus else None
        cores = int(stated[1]) * len(cpus) if stated else None
        memory = [
            f"{b['size']} {b.get('description', '')}"
            for kind, b in blocks
            if kind in ("memory", "bank") and "size" in b
        ]
    models = [model for model in models if model not in ("", "[empty]", "CPU", "Logical CPU")]
    total = next((m for text in memory if (m := _SYSTEM_MEMORY.match(text))), None)
    module = next((m for text in memory if (m := _MODULE.search(text))), None)
    cards = tuple(SeenGpu(name=name, index=n) for n, name in enumerate(_apart(filter(None, map(_product, displays)))))
    if not (displays or models or total):
        return None
    found = Found(
        tool="lshw",
        seen=cards,
        cpu=Cpu(model=models[0], sockets=len(models) if len(models) > 1 else None, physical_cores=cores)
        if models
        else None,
        ram=Ram(
            total_gb=float(total[1]) * (1024 if total[2] == "T" else 1),
            type=module[1] if module else None,
            mts=int(module[2]) if module else None,
        )
        if total
        else None,
    )
    return Claim(found, frozenset(taken))


def _lshw_blocks(lines: Sequence[str]) -> tuple[list[tuple[str, dict[str, str]]], set[int]]:
    """Return each part of the tree with its values, and the lines read."""
    blocks: list[tuple[str, dict[str, str]]] = []
    taken: set[int] = set()
    inside = False
    for i, line in enumerate(lines):
        head, pair = _LSHW_HEAD.match(line), _LSHW_PAIR.match(line)
        inside = head is not None or (inside and pair is not None)
        if head:
            blocks.append((head[1], {}))
        elif inside and pair:
            blocks[-1][1].setdefault(pair[1].strip(), pair[2].strip())
        if inside:
            taken.add(i)
    first = min(taken, default=0)
    while first and _LSHW_PAIR.match(lines[first - 1]):  # of the whole machine, above the first part
        first -= 1
        taken.add(first)
    return blocks, taken


def _with_maker(chip: str) -> str:
    """Return a chip as lspci names it: lshw's list leaves out who makes it."""
    maker = "NVIDIA" if _NVIDIA_CHIP.search(chip) else "AMD" if _AMD_CHIP.search(chip) else "Intel"
    return f"{maker} {chip}"


def read_fetch(lines: Sequence[str]) -> Claim | None:
    """Return cards, CPU and RAM from neofetch, fastfetch or screenfetch, with or without its picture."""
    pairs = {i: (m[1], m[2].strip()) for i, line in enumerate(lines) if (m := _FETCH.match(line))}
    keys = {key for key, _ in pairs.values()}
    if any(key == "GPU" and re.match(r"\d{1,2}\s?[x*]", value) for key, value in pairs.values()):
        return None  # written by hand
    is_part = {"GPU", "Memory"} <= keys and any(key == "CPU" and _FETCHED_CPU.search(v) for key, v in pairs.values())
    if (len(keys & _MACHINE_KEYS) < 2 and not is_part) or not keys & {"CPU", "GPU", "Memory", "RAM"}:
        return None
    values = [pair for _, pair in sorted(pairs.items())]
    said = next((value for key, value in values if key == "CPU"), "")
    cpu, threads = re.sub(r"\s*(?:\(\d{1,4}\)|@ ).*", "", said), re.search(r" \((\d{1,4})\)", said)
    twice = re.match(r"(\d) ?x (.+)", cpu)
    sockets = int(twice[1]) if twice else sockets_by_threads(cpu, int(threads[1])) if threads else None
    memory = next((m for key, value in values if key in ("Memory", "RAM") and (m := _USED_OF.search(value))), None)
    used, total = (_gib(memory[1], memory[2]), _gib(memory[3], memory[4])) if memory else (0.0, 0.0)
    system = next((value for key, value in values if key == "OS"), "")
    cards = tuple(SeenGpu(name=name) for name in _apart(_listed(v) for key, v in values if key == "GPU"))
    own = own_gpus(Cpu(model=cpu), is_used="GPU" in keys)
    found = Found(
        tool="neofetch",
        seen=cards,
        gpus=own,
        come_with_cpu=True,
        no_gpu="GPU" in keys and not (cards or own),
        cpu=Cpu(model=twice[2] if twice else cpu, sockets=sockets) if cpu else None,
        ram=Ram(total_gb=round(total, 2), free_gb=round(total - used, 2)) if memory and used < total else None,
        os=next((name for name in ("windows", "macos") if name in system.lower()), None),
        notes=f"{threads[1]} threads: taken as those of {sockets} sockets"
        if threads and sockets and not twice
        else None,
    )
    first, last = min(pairs), max(pairs)
    heading = re.compile(r"^.{0,60}?\S+@\S+\s*$|^.{0,60}-{5,}\s*$")
    picture = {i for i in range(max(first - 3, 0), last + 1) if heading.match(lines[i])}
    return Claim(found, frozenset(pairs) | picture)


def read_fetch_json(lines: Sequence[str]) -> Claim | None:
    """Return cards, CPU and RAM from `fastfetch --format json`, or from a part of it."""
    modules = {
        i: m[1] for i, line in enumerate(lines[:-1]) if (m := _FETCHED_PART.match(line)) and _RESULT.match(lines[i + 1])
    }
    texts = (" ".join(line.strip() for line in block) for block in cut(lines, modules))
    text = dict(zip(modules.values(), texts, strict=True))
    cards, name, size = list[tuple[SeenGpu, bool]](), "", ""
    for m in _FETCHED.finditer(text.get("GPU", "")):
        size, name = m[1] or size, m[2] or name
        if m[3]:
            total = int(size) / (1 << 20) if size else None
            cards.append((SeenGpu(name=name, total_mib=total), m[3] == "Integrated" or is_integrated(name)))
            name = size = ""
    cpu = re.search(r'"cpu": "([^"]{3,80})"', text.get("CPU", ""))
    cores = re.search(r'"physical": (\d{1,3}),', text.get("CPU", ""))
    memory = re.search(r'"total": (\d{9,15}), "used": (\d{5,15})', text.get("Memory", ""))
    if not (cards or cpu or memory):
        return None
    found = Found(
        tool="fastfetch",
        seen=tuple(c for c, shared in cards if not shared) or tuple(c for c, _ in cards if is_shared(c.name)),
        cpu=Cpu(model=cpu[1], physical_cores=int(cores[1]) if cores else None) if cpu else None,
        ram=Ram(total_gb=round(int(memory[1]) / 2**30, 2), free_gb=round((int(memory[1]) - int(memory[2])) / 2**30, 2))
        if memory
        else None,
        os=next((name for name in ("windows", "macos") if f'"{name}' in text.get("OS", "").lower()), None),
    )
    return Claim(found, frozenset(i for i, line in enumerate(lines) if _JSON_LINE.match(line)))


def read_inxi(lines: Sequence[str]) -> Claim | None:
    """Return cards, CPU and RAM from `inxi`, also in its short form."""
    section, taken, texts = "", set[int](), dict[str, list[str]]()
    for i, line in enumerate(lines):
        if head := _INXI_HEAD.match(line):
            section = head[1]
        elif not (section and _INXI_PAIRS.match(line)):
            section = "" if line.strip() else section
            continue
        taken.add(i)
        texts.setdefault(section, []).append(head[2] if head else line.strip())
    graphics = " ".join(texts.get("Graphics", ()))
    whole = " ".join(text for section in texts.values() for text in section)
    cpu = _INXI_CPU.search(" ".join(texts.get("CPU", ())))
    ram = _INXI_RAM.search(f"RAM: {whole}" if whole.startswith("total:") else whole)
    if not (cpu or ("Device-1: " in graphics and (ram or "driver: " in graphics))):
        return None
    drawn = [m[1]] if (m := _INXI_RENDERER.search(graphics)) and gpu_rows(m[1]) else []
    cards = _apart(name for text in _INXI_DEVICE.findall(graphics) if (name := _product(text, drawn)))
    found = Found(
        tool="inxi",
        seen=tuple(SeenGpu(name=name) for name in cards),
        cpu=Cpu(
            model=cpu[3],
            sockets=int(cpu[1]) if cpu[1] else None,
            physical_cores=int(cpu[1] or 1) * int(cpu[2]) if cpu[2] else None,
        )
        if cpu
        else None,
        ram=Ram(total_gb=float(ram[1] or ram[2])) if ram else None,
    )
    return Claim(found, frozenset(taken))


def _gib(number: str, unit: str) -> float:
    return float(number.rstrip(".")) / (1024 if unit == "M" else 1)


def _product(text: str, said: Sequence[str] = ()) -> str:
    """Return a chip's product as in the PCI list, `AD102 [GeForce RTX 4090]`; "" if it is not a card.

    `said`: cards that are named elsewhere. Raises InvalidHardware if the list has no name for the chip, or several
    products share it and none of them is `said`.
    """
    maker = next((name for start, name in _MAKERS.items() if text.lower().startswith(start)), "")
    named = re.findall(r"\[([^\[\]]{3,120})\]", _IDS.sub("", text))
    if not maker or (not named and maker != "NVIDIA"):
        return ""
    if "Strix Halo" in text:
        return "Strix Halo"
    if not named:
        raise unreadable(text, "the card has no name there: write it, as in `RTX 5090`, or paste `nvidia-smi -L`")
    if re.search(r"\bmobile\b|max-q", named[-1], re.I):
        return f"{maker} {re.split(r' (?:Max-Q|Mobile)', named[-1])[0]} Laptop GPU"
    name = _listed(f"{maker} {named[-1]}")
    if "/" in name and not gpu_rows(name):
        numbers = re.findall(r"\d{2,4}(?!\d|\s?GB)", name)
        if one := next((card for card in said if re.sub(r"\d+\s?GB|\D", "", card) in numbers), ""):
            return one
        raise unreadable(name, "several cards have this chip: write which one it is, on a line of its own")
    return name


def _listed(value: str) -> str:
    """Return a card's name without the rest of the summary."""
    shared = "[Integrated]" if "integrated" in value.lower() else ""
    if named := re.match(r"(Intel|AMD)(?: ATI)? .*?\[((?:arc|iris|radeon|uhd) [^\[\]]+)\]", value, re.I):
        value = f"{named[1]} {named[2]}"  # `Intel DG2 [Arc A770]`: the chip, then the product
    return f"{_BESIDES.sub('', value).strip()} {shared}".strip()


def _apart(names: Iterator[str]) -> Iterator[str]:
    """Return the cards; integrated GPUs only if the catalogue has them and there is no other."""

    listed = [(name.removesuffix("[Integrated]").strip(), name.endswith("[Integrated]")) for name in names]
    cards = [name for name, shared in listed if not shared and not is_integrated(name) and not is_shared(name)]
    yield from cards or [name for name, _ in listed if is_shared(name)]
