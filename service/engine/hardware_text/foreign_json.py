"""Turns JSON of other programs into words that are read as shorthand: `{"gpu": "RTX 3090", "ram_mb": 65536}`."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_VALUE = r'\s*:\s*(?:"[^"]*"|[\d.]+|true|false|null)\s*,?'
_OTHER = re.compile(
    r'"[^"]*(?:used|usage|free|avail|util|limit|reserved|alloc|temp|power|fan|driver|version|uuid|capab|percent|pct)[^"]*"'
    + _VALUE,
    re.I,
)
_NOTHING = re.compile(
    rf'"[^"]*"\s*:\s*(?:true|false|null|"")\s*,?|"(?:id|index|idx|vendor|bandwidth\w*)"{_VALUE}', re.I
)
# Keys with a unit, or without one where it can only be GB: `"vram_mb": 24564`, `"ram": 64`.
_SIZED = re.compile(
    r'"(\w*?)(?:_?total)?_?(gi?b|mi?b|bytes)"\s*:\s*"?(\d[\d.]*)"?'
    r'|"(v?ram|(?:v?ram|memory)_?total|memory)"\s*:\s*"?(\d[\d.]*)\s?(gi?b|mi?b)?"?(?=\s*[,}])',
    re.I,
)
_OF_CARD = re.compile(r"vram|gpu|video|dedicated", re.I)
_BYTES = {"g": 1.0, "m": 2**-10, "b": 2**-30}
_COUNT_FIRST = re.compile(
    r'("(?:count|quantity|qty|num)"\s*:\s*"?\d+"?)\s*,\s*("(?:name|model|gpu)"\s*:\s*"[^"]*")', re.I
)
_COUNT = re.compile(r'"(?:count|quantity|qty|num|number)"\s*:\s*"?(\d+)"?', re.I)
_COUNT_OF_GPUS = re.compile(r'"(?:num_gpus|gpus?_count|n_gpus)"', re.I)
_COUNTED = re.compile(r'"(?:(?:physical_|cpu_)?(cores|threads|sockets|channels)|cpu_(count))"\s*:\s*"?(\d+)"?', re.I)
_SPEED = re.compile(r'"(?:speed|mts|mhz|speed_mts|speed_mhz|ram_speed)"\s*:\s*"?(\d{3,5})"?', re.I)
_LABEL = re.compile(r'"(?:name|model|system|hardware|machine|specs|\w+_(?:name|model))"\s*:\s*(?=["\[{])', re.I)


def in_words(text: str) -> str:
    """Return a JSON text in words, any other text as it is; use and versions, of which no figure is taken, left out."""
    if not re.match(r"\s*[{\[]", text) or _decoded(text) is None:
        return text
    text = _NOTHING.sub("", _OTHER.sub("", text))
    text = _COUNT_FIRST.sub(r"\2, \1", _COUNT_OF_GPUS.sub("GPU count", text))
    text = _COUNTED.sub(lambda m: f"{m[3]} {m[1] or 'threads'}", text)
    text = _COUNT.sub(r"x\1", _SPEED.sub(r"\1 MT/s", text))
    text = _LABEL.sub("", _SIZED.sub(_size, text))
    return re.sub(r'[{}\[\]"]', " ", re.sub(r"[}\]]\s*,?", "\n", text))


def keys_of(text: str) -> set[str]:
    """Return the keys of the outermost object of a JSON text; none if it is no such text."""
    data = _decoded(text)
    return set(data) if isinstance(data, dict) else set()


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _size(m: re.Match[str]) -> str:
    unit = (m[2] or m[6] or "g")[0].lower()
    size = f"{float(m[3] or m[5]) * _BYTES[unit]:.4g}GB"
    key, start = m[1] or m[4] or "", m.string.rfind("{", 0, m.start())
    inside = start > m.string.find("{") or m.string.lstrip().startswith("[")
    is_card = inside and re.search(r'"(?:name|model|gpu\w*)"\s*:', m.string[start : m.start()], re.I) is not None
    if is_card and not re.search(r"cpu|\bram", m.string[start : m.start()] + key, re.I):
        return size
    return f"{size} {'VRAM' if _OF_CARD.search(key) else 'RAM'}" if key else size
