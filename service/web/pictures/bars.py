"""Stacked bars as SVG: the memory of each device, and the parts of a token's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from markupsafe import Markup

from service.engine.advice import DeviceMemory
from service.web.pictures.svg import svg

_WIDTH, _ROW, _BAR, _KEY = 640, 58, 22, 30
_NAMES = 150  # units of width for a name in the legend, at a phone's larger letters
_MEMORY = ("Weights", "Cache", "Compute", "Other")


class Bar(msgspec.Struct, frozen=True):
    """One bar: its name, its figure in words, its parts in order, and the amount that fills the whole width."""

    name: str
    figure: str
    parts: Sequence[float]
    whole: float


def memory_bars(devices: Sequence[DeviceMemory]) -> Markup:
    """Return a bar for each device, filled as far as its memory is used."""
    bars = [
        Bar(
            f"{d.device} {d.gpu or ''}".strip().replace("NVIDIA ", ""),
            f"{d.total_mib / 1024:.1f} of {d.capacity_mib / 1024:.1f} GiB",
            (d.weights_mib, d.kv_mib, d.compute_mib, d.output_mib + d.overhead_mib),
            max(d.capacity_mib, d.total_mib),
        )
        for d in devices
    ]
    return draw_bars(bars, _MEMORY, "memory", "Memory used on each device")


def token_bar(token_ms: Mapping[str, float]) -> Markup:
    """Return one bar of the parts of a token's time; empty if they are unknown."""
    whole = sum(token_ms.values())
    if not whole:
        return Markup("")
    parts = dict(sorted(token_ms.items(), key=lambda item: -item[1]))
    names = [f"{name} {ms:.1f} ms" for name, ms in parts.items()]
    bar = Bar("One token", f"{whole:.1f} ms", list(parts.values()), whole)
    return draw_bars([bar], names, "token", "Where the time of one token goes")


def draw_bars(bars: Sequence[Bar], names: Sequence[str], key: str, title: str) -> Markup:
    """Return bars one below the other with a legend. `key` makes their ids unique on a page."""
    across = max(1, _WIDTH // (_NAMES if max(map(len, names)) < 14 else 2 * _NAMES))
    legend = -(-len(names) // across) * _KEY
    height = len(bars) * _ROW + legend
    spoken = "; ".join(f"{bar.name}: {bar.figure}" for bar in bars)
    rows = [_row(bar, number * _ROW) for number, bar in enumerate(bars)]
    keys = [
        Markup("<rect class='s{}' x='{}' y='{}' width='14' height='14'/><text x='{}' y='{}'>{}</text>").format(
            i,
            x := (i % across) * (_WIDTH // across),
            y := len(bars) * _ROW + (i // across) * _KEY + 6,
            x + 22,
            y + 13,
            n,
        )
        for i, n in enumerate(names)
    ]
    return svg(key, (_WIDTH, height), title, spoken, [*rows, *keys])


def _row(bar: Bar, top: int) -> Markup:
    text = Markup("<text x='0' y='{0}'>{1}</text><text x='{2}' y='{0}' text-anchor='end'>{3}</text>").format(
        top + 20, bar.name, _WIDTH, bar.figure
    )
    frame = Markup("<rect class='free' x='0.5' y='{}' width='{}' height='{}'/>").format(top + 28, _WIDTH - 1, _BAR)
    parts, left = [], 0.0
    for i, amount in enumerate(bar.parts):
        width = _WIDTH * amount / bar.whole if bar.whole else 0.0
        if width >= 0.5:
            parts.append(
                Markup("<rect class='s{}' x='{:.1f}' y='{}' width='{:.1f}' height='{}'/>").format(
                    i, left, top + 28, max(width - 1, 0.5), _BAR
                )
            )
        left += width
    return text + frame + Markup("").join(parts)
