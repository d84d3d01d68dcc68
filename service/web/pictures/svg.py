"""Shared parts of pictures: the frame, which screen readers read as title and text, paths and axis steps."""

from __future__ import annotations

import math
from collections.abc import Iterable

from markupsafe import Markup

TICKS = 5  # on an axis, about


def svg(key: str, size: tuple[int, int], title: str, spoken: str, parts: Iterable[Markup]) -> Markup:
    """Return a picture of `parts`. `key` makes its ids unique on a page; `spoken`: what it shows, in words."""
    head = Markup(
        "<svg class='curves' viewBox='0 0 {0} {1}' role='img' aria-labelledby='{2}-t {2}-d'>"
        "<title id='{2}-t'>{3}</title><desc id='{2}-d'>{4}</desc>"
    )
    return head.format(*size, key, title, spoken) + Markup("").join(parts) + Markup("</svg>")


def path(places: Iterable[tuple[float, float]]) -> str:
    """Return the `points` of a line through these places."""
    return " ".join(f"{x:g},{y:g}" for x, y in places)


def round_step(most: float) -> float:
    """Return a round step (1, 2 or 5 times a power of ten), about TICKS of which reach `most`."""
    rough = max(most, 1e-9) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * n for n in (1, 2, 5, 10) if power * n >= rough * (1 - 1e-9))


def figure(value: float) -> str:
    """Return a speed with four digits at most, of one from 1,000 on all before the point: none has an exponent."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def ticks(step: float, most: float) -> list[float]:
    """Return the multiples of `step` from 0 up to `most`."""
    return [step * i for i in range(int(most / step + 1e-9) + 1)]
