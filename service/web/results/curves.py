"""Curves of speed by depth as SVG, without script or inline style; screen readers read a title and a text.

Curves differ in colour, dashes and the shape of their points, so that none relies on colour vision. Colours are classes
of the style sheet, which has a light and a dark theme.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec
from markupsafe import Markup

from service.web.pictures.svg import TICKS, figure, path, round_step, svg, ticks

MOST_CURVES = 6
WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 20, 12, 52  # room for the larger letters of a phone
_DASHES = ("", "7 4", "2 3", "9 3 2 3", "4 2", "12 4")
_MOST_POINTS = 200


class Curve(msgspec.Struct, frozen=True):
    """One curve: (tokens in the cache, tokens per second), ascending; `band`: intervals as (tokens, low, high)."""

    name: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float, float]] = ()


def draw(curves: Sequence[Curve], key: str, title: str) -> Markup:
    """Return the first six curves that have points as one SVG; empty if there are none.

    `key` makes its ids unique on a page; `title` is read out by screen readers, and names the unit.
    """
    drawn = [(i, thinned(c)) for i, c in enumerate(curves[:MOST_CURVES]) if c.points]
    if not drawn:
        return Markup("")
    frame = _Frame.of([curve for _, curve in drawn])
    parts = [*frame.axes()]
    for index, curve in drawn:
        parts += _band(frame, curve, index)
    for index, curve in drawn:
        parts += _line(frame, curve, index)
    return svg(key, (WIDTH, HEIGHT), title, "; ".join(_spoken(curve) for _, curve in drawn), parts)


def mark(index: int) -> Markup:
    """Return a curve's mark for a legend or table row: its line with one of its points."""
    line = Markup("<line class='c{}' x1='1' y1='7' x2='35' y2='7' stroke-dasharray='{}'/>")
    head = Markup("<svg class='mark' viewBox='0 0 36 14' aria-hidden='true'>")
    return head + line.format(index, _DASHES[index]) + _point(index, 18, 7) + Markup("</svg>")


def thinned(curve: Curve) -> Curve:
    """Return the curve with at most 200 points, evenly chosen, including the first and last."""
    points = curve.points
    if len(points) <= _MOST_POINTS:
        return curve
    step = (len(points) - 1) / (_MOST_POINTS - 1)
    return Curve(curve.name, [points[round(i * step)] for i in range(_MOST_POINTS)])


class _Frame(msgspec.Struct, frozen=True):
    """Maps values to places on the picture; both axes start at zero."""

    x_step: float
    x_most: float
    y_step: float
    y_most: float

    @classmethod
    def of(cls, curves: Sequence[Curve]) -> _Frame:
        highs = [high for c in curves for _, _, high in c.band] + [y for c in curves for _, y in c.points]
        x_step = _depth_step(max(x for c in curves for x, _ in c.points))
        x_most = max(x_step, *(x for c in curves for x, _ in c.points))
        y_step = round_step(max(highs))
        return cls(x_step, x_most, y_step, y_step * math.ceil(max(*highs, y_step) / y_step))

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (WIDTH - _LEFT - _RIGHT) * x / self.x_most
        return round(across, 1), round(HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * y / self.y_most, 1)

    def axes(self) -> Iterator[Markup]:
        text = Markup("<text x='{}' y='{}' text-anchor='{}'>{}</text>")
        for y in ticks(self.y_step, self.y_most):
            left, height = self.at(0, y)
            yield Markup("<line class='grid' x1='{}' y1='{}' x2='{}' y2='{}'/>").format(
                left, height, WIDTH - _RIGHT, height
            )
            yield text.format(left - 8, height + 4, "end", figure(y))
        for x in ticks(self.x_step, self.x_most):
            across, bottom = self.at(x, 0)
            yield text.format(across, bottom + 20, "middle", _tokens(x))
        yield text.format((WIDTH + _LEFT) // 2, HEIGHT - 8, "middle", "tokens in the cache (N_KV)")


def _depth_step(most: float) -> float:
    """Return a step of 1,024 tokens times a power of two."""
    return 1024.0 * float(2 ** max(0, math.ceil(math.log2(max(most, 1) / 1024 / (TICKS + 1)))))


def _tokens(x: float) -> str:
    return "0" if not x else f"{x / 1024:g}k"


def _band(frame: _Frame, curve: Curve, index: int) -> list[Markup]:
    if len(curve.band) < 2:
        return []
    there = [frame.at(x, high) for x, _, high in curve.band]
    back = [frame.at(x, low) for x, low, _ in reversed(curve.band)]
    return [Markup("<polygon class='b{}' points='{}'/>").format(index, path([*there, *back]))]


def _line(frame: _Frame, curve: Curve, index: int) -> list[Markup]:
    places = [frame.at(x, y) for x, y in curve.points]
    line = Markup("<polyline class='c{}' fill='none' stroke-dasharray='{}' points='{}'/>")
    every = max(1, len(places) // 16)  # denser points would hide the line
    points = [_point(index, *place) for place in places[::every]]
    return [Markup("<g>"), line.format(index, _DASHES[index], path(places)), *points, Markup("</g>")]


_SHAPES = (
    "<circle class='p{}' cx='0' cy='0' r='3.6'/>",
    "<rect class='p{}' x='-3.3' y='-3.3' width='6.6' height='6.6'/>",
    "<polygon class='p{}' points='0,-4.6 4.3,3.2 -4.3,3.2'/>",
    "<polygon class='p{}' points='0,-4.8 4.8,0 0,4.8 -4.8,0'/>",
    "<path class='p{} open' d='M-3.6,-3.6 L3.6,3.6 M-3.6,3.6 L3.6,-3.6'/>",
    "<circle class='p{} open' cx='0' cy='0' r='4'/>",
)


def _point(index: int, x: float, y: float) -> Markup:
    shape = Markup(_SHAPES[index]).format(index)  # noqa: S704 (a constant)
    return Markup("<g transform='translate({} {})'>{}</g>").format(f"{x:g}", f"{y:g}", shape)


def _spoken(curve: Curve) -> str:
    (first, fast), (last, slow) = curve.points[0], curve.points[-1]
    if first == last:
        return f"{curve.name}: {figure(fast)} at {first:,.0f} tokens"
    return f"{curve.name}: {figure(fast)} at {first:,.0f} tokens, {figure(slow)} at {last:,.0f}"
