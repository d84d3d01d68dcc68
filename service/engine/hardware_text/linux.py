"""lscpu, numactl -H, /proc/cpuinfo, free, /proc/meminfo and dmidecode -t memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from service.engine.catalogue.families import unmasked
from service.engine.hardware import Cpu, Ram
from service.engine.hardware_text.found import CONTAINER, TO_GB, Claim, Found, whole

_KIB_A_GIB = 1 << 20
_PAIR = re.compile(r"^\s{0,8}([A-Z][A-Za-z0-9() ./_-]{1,40}?):\s+(\S.{0,800})$")
_MANY_KEYS = 4  # of lscpu, enough where the model is cut off
_LSCPU_KEYS = (
    "Architecture", "Model name", "Socket(s)", "Core(s) per socket", "Thread(s) per core", "CPU(s)", "Vendor ID",
    "CPU family", "Model", "Stepping", "NUMA node(s)",
)  # fmt: skip
# Values are in a column of their own, except after keys as wide as the column (older lscpu does not indent).
_LSCPU_LINE = re.compile(
    r"^(?:\s{1,8}\S.{0,900}|[A-Z][A-Za-z0-9() ./_-]{1,40}:(?:\s*|\s{2,}\S.{0,900})"
    r"|(?:Vulnerabilit|NUMA|L\d|CPU|Flags|Model|Caches)[A-Za-z0-9() ./_-]{0,40}:\s.{0,900})$"
)
_NODE_CORES = re.compile(r"^NUMA node\d{1,3} CPU\(s\)$")
_NODES_HEAD = re.compile(
    r"^(?:[$#]?\s?numactl\s{1,4}(?:-H|--hardware)(?:\s.{0,40})?|available: \d{1,3} nodes? \(.{1,80}\)|node distances:"
    r"|(?:policy|preferred(?: node)?|physcpubind|cpubind|nodebind|membind):\s.{0,900})\s*$"
)
_NODE = re.compile(r"^node (\d{1,3}) (cpus|size|free):\s*(.{0,980})$")
_DISTANCES = re.compile(r"^(?:node(?:\s+\d{1,3})+|\s*\d{1,3}:(?:\s+\d{1,3})+)\s*$")
_ONLY_NUMBERS = re.compile(r"^[\d\s]{1,900}$")
_CPUINFO_KEY = re.compile(r"^[a-zA-Z][a-zA-Z0-9_ ()-]{1,30}\t+: ?")
_CPUINFO_FLAGS = re.compile(r"^(?:flags|bugs|vmx flags|power management)\s*:")
_FREE_HEAD = re.compile(r"^(?:\s{5,}|(?=total\s))[^\W\d]\S{0,20}(?:\s+[^\W\d]\S{0,20}){2,6}\s*$")  # in any language
_FREE_ROW = re.compile(r"^\s{0,4}([^\W\d]{2,12})\s?:\s+((?:\d[\d.,]{0,16}[KMGTP]?i?B?(?:\s+|$)){3,6})$")
_AMOUNT = re.compile(r"^(\d{1,15}(?:[.,]\d{1,3})?)([KMGTP]?)(i?)B?$", re.I)
_UNIT_GIB = {"K": 2.0**-20, "M": 2.0**-10, "G": 1.0, "T": 1024.0, "P": 1024.0**2}
_LIMIT_FILE = re.compile(r"\bcgroup/\S{0,200}\bmemory\.(?:max|limit_in_bytes)\s*$")
_LIMIT = re.compile(r"^\s*(\d{8,19}|max)\s*$")
_NO_LIMIT = 1 << 50
_MEMINFO_KB = re.compile(r"^[A-Z]\w{1,30}(?:\(\w{1,12}\))?:\s+\d{1,15} kB\s*$")
_MEMINFO = re.compile(r"^([A-Z]\w{1,30}(?:\(\w{1,12}\))?):\s+(\d{1,15})(?: kB)?\s*$")

_START = re.compile(
    r"^(?:#\s*)?dmidecode \d|^Handle 0x[0-9A-Fa-f]{1,8}, DMI type \d|^Memory Device\s*$|^Physical Memory Array\s*$"
)
_HEAD = re.compile(r"^(?:SMBIOS \d.{0,60}|Getting SMBIOS data.{0,60}|Table at 0x.{0,40}|\d+ structures.{0,60})$")
_FIELD = re.compile(r"^\s+([A-Z][A-Za-z ]{1,50}?):\s?(.{0,200})$")
_SIZE = re.compile(r"^(\d{1,8}) (MB|MiB|GB|GiB|TB)$")
_SPEED = re.compile(r"^(\d{3,5}) (?:MT/s|MHz)$")
# `P0 CHANNEL A`, `P0_Node0_Channel0_Dimm1`, `Controller0-ChannelA-DIMM0`, `DIMM_A2`, `CPU1_DIMM_B1`.
_CHANNEL = re.compile(r"(?:^|[^A-Z])CHANNEL[ _-]{0,2}([A-Z0-9]{1,2})(?![A-Z0-9])")
_LETTER = re.compile(r"DIMM[ _-]{0,2}([A-P])\d?(?![A-Z])")
_OWNER = re.compile(r"(?:P|CPU|PROC|SOCKET|NODE|CONTROLLER)[ _-]{0,2}(\d)")


def read_lscpu(lines: Sequence[str]) -> Claim | None:
    """Return model, sockets and cores from `lscpu`, which names the kinds of an ARM processor's cores as models."""
    pairs = {i: (m[1].strip(), m[2].strip()) for i, line in enumerate(lines) if (m := _PAIR.match(line))}
    known = [i for i, (key, _) in pairs.items() if key in _LSCPU_KEYS]
    values = {pairs[i][0]: pairs[i][1] for i in reversed(known)}
    if len(values) < (2 if "Model name" in values else _MANY_KEYS):
        return None
    sockets, cores = whole(values.get("Socket(s)")), whole(values.get("Core(s) per socket"))
    numbers = (whole(values.get(key)) for key in ("CPU family", "Model", "Stepping"))
    model = values.get("Model name")
    kinds = [pairs[i][1] for i in known if pairs[i][0] == "Core(s) per socket"]
    if model and model.startswith("Cortex-"):
        model, cores = None, sum(filter(None, map(whole, kinds))) or None
    logical, threads = whole(values.get("CPU(s)")), whole(values.get("Thread(s) per core"))
    if sockets is None and cores and logical and threads:  # cut off
        sockets = max(1, logical // threads // cores)
    nodes = _nodes_with_cores(pairs.values()) or whole(values.get("NUMA node(s)"))
    all_cores = cores * (sockets or 1) if cores else None
    if all_cores is None and logical and threads:  # of ARM, which counts the cores of a cluster
        all_cores = logical // threads
    is_guest = any(key == "Hypervisor vendor" for key, _ in pairs.values())
    said, sockets = sockets, _real_sockets(sockets, cores, nodes, is_guest=is_guest)
    cpu = Cpu(
        model=unmasked(model, *numbers) if model else None,
        sockets=sockets,
        physical_cores=all_cores,
        numa_nodes=None if nodes == 1 and sockets in (None, 1) else nodes,
    )
    block = range(min(known), max(known) + 1)
    taken = set(block) | _run_on(lines, max(known))
    return Claim(Found(tool="lscpu", cpu=cpu, notes=_taken_as(sockets, said)), frozenset(taken))


def _real_sockets(sockets: int | None, cores: int | None, nodes: int | None, *, is_guest: bool) -> int | None:
    """Return how many processors are likely behind the sockets of a list, of `cores` each.

    A virtual machine may have a socket for every core (the default of QEMU before 6.2 and of VMware): it has one for
    each NUMA node. So has a machine whose sockets have one core each, as no processor has.
    """
    nominal = cores == 1 or (is_guest and nodes)
    return min(sockets, nodes or 1) if sockets and nominal else sockets


def _taken_as(sockets: int | None, said: int | None) -> str | None:
    if sockets == said:
        return None
    return f"{said} sockets: taken as {sockets}, as a virtual machine may have one for every core"


def _nodes_with_cores(pairs: Iterable[tuple[str, str]]) -> int:
    """Return how many nodes have cores: a GPU's or accelerator's memory may be a node without any (GH200, Xeon Max)."""
    return sum(_NODE_CORES.match(key) is not None and value[:1].isdecimal() for key, value in pairs)


def read_numactl(lines: Sequence[str]) -> Claim | None:
    """Return NUMA nodes and total RAM from `numactl -H`.

    What it calls free lacks the file cache, which Linux gives back: it is not taken.
    """
    nodes = {i: m for i, line in enumerate(lines) if (m := _NODE.match(line))}
    head = {i for i, line in enumerate(lines) if _NODES_HEAD.match(line)}
    if not nodes:
        return None
    sizes = [int(m[3].split()[0]) for m in nodes.values() if m[2] == "size" and m[3][:1].isdecimal()]
    with_cores = {m[1] for m in nodes.values() if m[2] == "cpus" and m[3][:1].isdecimal()}
    ram = Ram(total_gb=round(sum(sizes) / 1024, 2)) if sum(sizes) else None
    table = {i for i, line in enumerate(lines) if i > min(nodes) and _DISTANCES.match(line)}
    # A terminal may break the list of cores.
    more = {i + 1 for i, m in nodes.items() if m[2] == "cpus" and _ONLY_NUMBERS.match(" ".join(lines[i + 1 : i + 2]))}
    found = Found(tool="numactl", cpu=Cpu(numa_nodes=len(with_cores) or None), ram=ram)
    return Claim(found, frozenset({*nodes, *head, *table, *more}))


def _run_on(lines: Sequence[str], start: int) -> set[int]:
    """Return the lines from `start` on that belong to lscpu's output."""
    end = start
    while end + 1 < len(lines) and _LSCPU_LINE.match(lines[end + 1]) and not _MEMINFO_KB.match(lines[end + 1]):
        end += 1
    return set(range(start, end + 1))


def read_cpuinfo(lines: Sequence[str]) -> Claim | None:
    """Return model, sockets and cores from /proc/cpuinfo."""
    taken = [i for i, line in enumerate(lines) if _CPUINFO_KEY.match(line) or _CPUINFO_FLAGS.match(line)]
    fields = [(key.strip(), value.strip()) for key, _, value in (lines[i].partition(":") for i in taken)]
    models = [value for key, value in fields if key == "model name"]
    if not models:
        return None
    sockets = len({value for key, value in fields if key == "physical id"}) or None
    cores = next((whole(value) for key, value in fields if key == "cpu cores"), None)
    first = dict(reversed(fields))
    numbers = (whole(first.get(key)) for key in ("cpu family", "model", "stepping"))
    all_cores = cores * (sockets or 1) if cores else None
    said, sockets = sockets, _real_sockets(sockets, cores, None, is_guest=False)
    cpu = Cpu(model=unmasked(models[0], *numbers), sockets=sockets, physical_cores=all_cores)
    return Claim(Found(tool="/proc/cpuinfo", cpu=cpu, notes=_taken_as(sockets, said)), frozenset(taken))


def read_free(lines: Sequence[str]) -> Claim | None:
    """Return total and available RAM from `free`, in any unit."""
    heads = [i for i, line in enumerate(lines) if _FREE_HEAD.match(line)]
    rows = {i: m for i, line in enumerate(lines) if (m := _FREE_ROW.match(line))}
    memory = next((rows[i + 1] for i in heads if i + 1 in rows), None)
    memory = memory or next((m for m in rows.values() if m[1] == "Mem"), None)  # without its head
    if memory is None:
        return None
    amounts = [_gib(cell, memory[2].split()[0]) for cell in memory[2].split()]
    total = amounts[0]
    if total is None:
        return None
    # `buff/cache`: an older one has no such column
    has_available = bool(heads) and "/" in lines[heads[0]] and len(amounts) >= 6
    ram = Ram(total_gb=round(total, 2), free_gb=_rounded(amounts[5]) if has_available else None)
    return Claim(Found(tool="free", ram=ram), frozenset((*heads, *rows)))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _gib(cell: str, first: str) -> float | None:
    """Return an amount in GiB; without a unit, the size of the total tells whether `free` counted GiB, MiB, KiB or
    bytes."""
    m, whole = _AMOUNT.match(cell), _AMOUNT.match(first)
    if m is None or whole is None:
        return None
    value = float(m[1].replace(",", "."))
    if m[2]:
        return value * _UNIT_GIB[m[2].upper()]
    total = float(whole[1].replace(",", "."))
    if total < 2_000:
        return value
    if total < 4_000_000:
        return value / 1024
    return value / _KIB_A_GIB if total < 1e11 else value / 2**30


def read_memory_limit(lines: Sequence[str]) -> Claim | None:
    """Return the memory that a container may use, which `free` and /proc/meminfo do not know, from its control group.

    Its file is named on the line above the number of bytes: `cat /sys/fs/cgroup/memory.max`.
    """
    for i, (name, value) in enumerate(pairwise(lines)):
        if _LIMIT_FILE.search(name) and (m := _LIMIT.match(value)):
            taken = frozenset({i, i + 1})
            if m[1] == "max" or int(m[1]) >= _NO_LIMIT:
                return Claim(Found(), taken)
            gb = round(int(m[1]) / 2**30, 2)
            notes = f"{gb:g} GiB is what this container may use: taken as the RAM"
            return Claim(Found(tool=CONTAINER, ram=Ram(total_gb=gb), notes=notes), taken)
    return None


def read_meminfo(lines: Sequence[str]) -> Claim | None:
    """Return total and available RAM from /proc/meminfo."""
    rows = {i: m for i, line in enumerate(lines) if (m := _MEMINFO.match(line))}
    values = {m[1]: int(m[2]) / _KIB_A_GIB for m in rows.values()}
    if "MemTotal" not in values:
        return None
    ram = Ram(total_gb=round(values["MemTotal"], 2), free_gb=_rounded(values.get("MemAvailable")))
    return Claim(Found(tool="/proc/meminfo", ram=ram), frozenset(rows))


def read_dmidecode(lines: Sequence[str]) -> Claim | None:
    """Return total, type, speed and occupied channels; a channel counts once however many modules it holds."""
    starts = [i for i, line in enumerate(lines) if _START.match(line)]
    if not starts:
        return None
    taken = {i for i, line in enumerate(lines) if _HEAD.match(line)} | set(starts)
    modules: list[dict[str, str]] = []
    inside: dict[str, str] | None = None
    for i in range(starts[0], len(lines)):
        line = lines[i]
        if line.strip() == "Memory Device":
            inside = {}
            modules.append(inside)
        elif not line.strip() or _START.match(line):
            inside = None if line.strip() else inside
        elif m := _FIELD.match(line):
            taken.add(i)
            if inside is not None:
                inside.setdefault(m[1], m[2].strip())
        elif line[:1].isspace():
            taken.add(i)
    filled = [module for module in modules if _SIZE.match(module.get("Size", ""))]
    return Claim(Found(tool="dmidecode", ram=_ram(filled) if filled else None), frozenset(taken))


def _ram(modules: Sequence[Mapping[str, str]]) -> Ram:
    speeds = [speed for module in modules if (speed := _speed(module)) is not None]
    kinds = Counter(module.get("Type", "Unknown") for module in modules)
    kind = kinds.most_common(1)[0][0]
    channels = {channel for module in modules if (channel := _channel(module))}
    return Ram(
        total_gb=sum(_gb(module["Size"]) for module in modules),
        type=None if kind in ("Unknown", "Other", "DRAM") else kind,
        channels=len(channels) if all(_channel(module) for module in modules) else len(modules),
        mts=min(speeds) if speeds else None,
    )


def _gb(size: str) -> float:
    m = _SIZE.match(size)
    return float(m[1]) * TO_GB[m[2]] if m else 0.0


def _speed(module: Mapping[str, str]) -> int | None:
    for key in ("Configured Memory Speed", "Configured Clock Speed", "Speed"):
        if m := _SPEED.match(module.get(key, "")):
            return int(m[1])
    return None


def _channel(module: Mapping[str, str]) -> str:
    """Return a module's channel and its socket or controller; empty if the board does not tell."""
    for text in (module.get("Bank Locator", "").upper(), module.get("Locator", "").upper()):
        m = _CHANNEL.search(text) or _LETTER.search(text)
        if m:
            both = f"{module.get('Bank Locator', '')} {module.get('Locator', '')}".upper()
            return f"{'.'.join(_OWNER.findall(both))}:{m[1]}"
    return ""
