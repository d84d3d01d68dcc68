"""rocm-smi --showproductname --showmeminfo vram: as text, as CSV, as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from service.engine.hardware_text.found import Claim, Found, SeenGpu, unreadable

TOOL = "rocm-smi"
_ROW = re.compile(r"^GPU\[(\d{1,2})\]\s*:\s*([A-Za-z][^:]{1,60}?)\s*:\s*(\S.{0,150})$")
_FRAME = re.compile(r"^\s*={4,}.{0,80}?={4,}\s*$|^\s*={8,}\s*$|^\s*WARNING:.{0,200}$")
_MIB = 1 << 20
_NAMES = ("card series", "card model", "device name")
_TOTAL, _USED = "vram total memory (b)", "vram total used memory (b)"


def read_rocm_smi(lines: Sequence[str]) -> Claim | None:
    """Return the GPUs of rocm-smi in any of its forms. Raises InvalidHardware for its table without names."""
    return _text(lines) or _csv(lines) or _json(lines)


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


def _seen(gpus: Mapping[int, Mapping[str, str]]) -> tuple[SeenGpu, ...]:
    seen = []
    for index, values in sorted(gpus.items()):
        name = next(
            (values[key] for key in _NAMES if key in values and not values[key].startswith(("0x", "N/A"))), None
        )
        if name is None:
            raise unreadable(f"GPU[{index}]", "no `Card Series`: paste `rocm-smi --showproductname --showmeminfo vram`")
        total, used = _mib(values.get(_TOTAL)), _mib(values.get(_USED))
        free = max(total - used, 0.0) if total is not None and used is not None else None
        seen.append(SeenGpu(name=name, index=index, total_mib=total, free_mib=free))
    return tuple(seen)


def _mib(text: str | None) -> float | None:
    return int(text) / _MIB if text and text.isdecimal() and len(text) < 16 else None
