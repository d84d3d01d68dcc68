"""ROCm: `rocm-smi --showproductname --showmeminfo vram` as text, CSV or JSON, `amd-smi static`, `rocminfo`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from service.engine.catalogue.names import gpu_rows
from service.engine.hardware import Cpu, Ram
from service.engine.hardware_text.cim import is_integrated
from service.engine.hardware_text.found import Claim, Found, SeenGpu, cut, unreadable

TOOL = "rocm-smi"
_ROW = re.compile(r"^GPU\[(\d{1,2})\]\s*:\s*([A-Za-z][^:]{1,60}?)\s*:\s*(\S.{0,150})$")
_FRAME = re.compile(r"^\s*={4,}.{0,80}?={4,}\s*$|^\s*={8,}\s*$|^\s*WARNING:.{0,200}$")
_MIB = 1 << 20
_AGENT = re.compile(r"^Agent \d{1,2}\s*$")
_OF_AGENT = re.compile(r"^ {2,10}([A-Z][\w ().-]{1,40}?):\s+(\S.{0,150})$")
_OF_INFO = re.compile(
    r"^(?:\*{3,}.{0,40}|={3,}.{0,80}|Agent \d{1,2}\s*|HSA (?:System Attributes|Agents)\s*"
    r"|ROCk module .{0,60}|Runtime Version:.{0,40}"
    r"|(?:System|Runtime Ext|Machine|Signal|DMAbuf|XNACK|Mwaitx|VMM|TCB)[ \w.()]{0,40}:.{0,80}| {2,10}\S.{0,160})$"
)
_POOL_KB = re.compile(r"^(\d{4,15})\(0x[0-9a-f]{1,15}\) KB")
_KB_A_MIB = 1024
_NAMES = ("card series", "card model", "device name")
_GPU = re.compile(r"^GPU: \d{1,2}$")
_OF_GPU = re.compile(r"^ {4,16}([A-Z][A-Z0-9_]{1,40}):(?: (.{1,100}))?$")
_TOTAL, _USED = "vram total memory (b)", "vram total used memory (b)"


def read_rocm_smi(lines: Sequence[str]) -> Claim | None:
    """Return the GPUs in any form of rocm-smi's output. Raises InvalidHardware for its table without names."""
    return _text(lines) or _csv(lines) or _json(lines) or _static(lines)


def read_rocminfo(lines: Sequence[str]) -> Claim | None:
    """Return rocminfo's GPUs, and the CPU and RAM of its CPU agents; an integrated GPU counts only if alone."""
    heads = [i for i, line in enumerate(lines) if _AGENT.match(line)]
    agents: list[dict[str, str]] = []
    for block in cut(lines, heads):
        values: dict[str, str] = {}
        for line in block:
            if m := _OF_AGENT.match(line):
                values.setdefault(m[1], m[2].strip())
        if values.get("Name", "").startswith("gfx"):
            values.setdefault("Device Type", "GPU")  # cut off below its name
        agents.append(values)
    named = [agent for agent in agents if agent.get("Marketing Name") and agent.get("Device Type")]
    cards = [agent for agent in named if agent["Device Type"] == "GPU"]
    own = [card for card in cards if not is_integrated(card["Marketing Name"])]
    if not cards:
        return None
    cpus = [agent for agent in named if agent["Device Type"] == "CPU"]
    pools = [m for agent in cpus if (m := _POOL_KB.match(agent.get("Size", "")))]
    found = Found(
        tool="rocminfo",
        seen=tuple(
            SeenGpu(name=card["Marketing Name"], device=n, total_mib=_pool_mib(card))
            for n, card in enumerate(own or cards)
        ),
        cpu=Cpu(model=cpus[0]["Marketing Name"], sockets=len(cpus) if len(cpus) > 1 else None) if cpus else None,
        ram=Ram(total_gb=round(sum(int(m[1]) for m in pools) / _KB_A_MIB / 1024, 1)) if pools else None,
    )
    return Claim(found, frozenset(i for i, line in enumerate(lines) if _OF_INFO.match(line)))


def _pool_mib(agent: Mapping[str, str]) -> float | None:
    pool = _POOL_KB.match(agent.get("Size", ""))
    return int(pool[1]) / _KB_A_MIB if pool else None


def _text(lines: Sequence[str]) -> Claim | None:
    rows = {i: m for i, line in enumerate(lines) if (m := _ROW.match(line))}
    frame = {i for i, line in enumerate(lines) if _FRAME.match(line)}
    gpus: dict[int, dict[str, str]] = {}
    for m in rows.values():
        gpus.setdefault(int(m[1]), {}).setdefault(m[2].strip().lower(), m[3].strip())
    if not rows:
        if any("ROCm System Management" in lines[i] for i in frame):
            raise unreadable(
                "rocm-smi", "this table has no names: paste `rocm-smi --showproductname --showmeminfo vram`"
            )
        return None
    return Claim(Found(tool=TOOL, seen=_seen(gpus)), frozenset(rows) | frame)


def _csv(lines: Sequence[str]) -> Claim | None:
    head = next(
        (i for i, line in enumerate(lines) if line.lower().startswith("device,") and "card series" in line.lower()),
        None,
    )
    if head is None:
        return None
    columns = [cell.strip().lower() for cell in lines[head].split(",")]
    rows = [i for i in range(head + 1, len(lines)) if lines[i].startswith("card")]
    gpus = {
        n: dict(zip(columns, (cell.strip() for cell in lines[i].split(",")), strict=False)) for n, i in enumerate(rows)
    }
    return Claim(Found(tool=TOOL, seen=_seen(gpus)), frozenset((head, *rows)))


def _json(lines: Sequence[str]) -> Claim | None:
    start = next((i for i, line in enumerate(lines) if line.lstrip().startswith("{")), None)
    end = next((i for i in range(len(lines) - 1, -1, -1) if lines[i].rstrip().endswith("}")), None)
    if start is None or end is None or not any('"card' in line for line in lines[start : end + 1]):
        return None
    try:
        cards = msgspec.json.decode("\n".join(lines[start : end + 1]), type=dict[str, dict[str, object]])
    except (msgspec.MsgspecError, RecursionError):
        return None
    numbered = [card for name, card in sorted(cards.items()) if re.fullmatch(r"card\d{1,2}", name)]
    gpus = {n: {key.lower(): str(value) for key, value in card.items()} for n, card in enumerate(numbered)}
    return Claim(Found(tool=TOOL, seen=_seen(gpus)), frozenset(range(start, end + 1))) if gpus else None


def _static(lines: Sequence[str]) -> Claim | None:
    """Return the GPUs of `amd-smi static`, whole or in part."""
    heads = [i for i, line in enumerate(lines) if _GPU.match(line)]
    seen: list[SeenGpu] = []
    taken = {i for i, line in enumerate(lines) if line.endswith("amd-smi static")}
    for head, block in zip(heads, cut(lines, heads), strict=True):
        size = 1
        while size < len(block) and _OF_GPU.match(block[size]):
            size += 1
        values = {m[1]: m[2].strip() for line in block[:size] if (m := _OF_GPU.match(line)) and m[2]}
        name, chip = values.get("MARKET_NAME"), values.get("TARGET_GRAPHICS_VERSION", "")
        if name:
            seen.append(SeenGpu(name=name if gpu_rows(name) else f"{name} {chip}", index=len(seen)))
            taken |= set(range(head, head + size))
    return Claim(Found(tool="amd-smi", seen=tuple(seen)), frozenset(taken)) if seen else None


def _seen(gpus: Mapping[int, Mapping[str, str]]) -> tuple[SeenGpu, ...]:
    seen = []
    for index, values in sorted(gpus.items()):
        names = [values[key] for key in _NAMES if key in values and not values[key].startswith(("0x", "N/A"))]
        names = [m[1] if (m := re.search(r"\[([^\[\]/]{3,80})\]", name)) else name for name in names]
        name = next((name for name in names if gpu_rows(name)), next(iter(names), None))
        if name is None:
            raise unreadable(f"GPU[{index}]", "no `Card Series`: paste `rocm-smi --showproductname --showmeminfo vram`")
        total, used = _mib(values.get(_TOTAL)), _mib(values.get(_USED))
        free = max(total - used, 0.0) if total is not None and used is not None else None
        seen.append(SeenGpu(name=name, index=index, total_mib=total, free_mib=free))
    return tuple(seen)


def _mib(text: str | None) -> float | None:
    return int(text) / _MIB if text and text.isdecimal() and len(text) < 16 else None
