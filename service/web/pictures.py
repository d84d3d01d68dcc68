"""Pictures drawn on the server as SVG: no script, no style of their own, colours by classes of the style sheet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from markupsafe import Markup

from service.engine.advice import AdvisedConfig, DeviceMemory

WIDTH = 640
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


_ROW, _BAR, _KEY = 58, 22, 30
_NAME_WIDTH = 150  # units of width for a name in the legend, at a phone's larger letters
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
    across = max(1, WIDTH // (_NAME_WIDTH if max(map(len, names)) < 14 else 2 * _NAME_WIDTH))
    legend = -(-len(names) // across) * _KEY
    height = len(bars) * _ROW + legend
    spoken = "; ".join(f"{bar.name}: {bar.figure}" for bar in bars)
    rows = [_row(bar, number * _ROW) for number, bar in enumerate(bars)]
    keys = [
        Markup("<rect class='s{}' x='{}' y='{}' width='14' height='14'/><text x='{}' y='{}'>{}</text>").format(
            i,
            x := (i % across) * (WIDTH // across),
            y := len(bars) * _ROW + (i // across) * _KEY + 6,
            x + 22,
            y + 13,
            n,
        )
        for i, n in enumerate(names)
    ]
    return svg(key, (WIDTH, height), title, spoken, [*rows, *keys])


def _row(bar: Bar, top: int) -> Markup:
    text = Markup("<text x='0' y='{0}'>{1}</text><text x='{2}' y='{0}' text-anchor='end'>{3}</text>").format(
        top + 20, bar.name, WIDTH, bar.figure
    )
    frame = Markup("<rect class='free' x='0.5' y='{}' width='{}' height='{}'/>").format(top + 28, WIDTH - 1, _BAR)
    parts, left = [], 0.0
    for i, amount in enumerate(bar.parts):
        width = WIDTH * amount / bar.whole if bar.whole else 0.0
        if width >= 0.5:
            parts.append(
                Markup("<rect class='s{}' x='{:.1f}' y='{}' width='{:.1f}' height='{}'/>").format(
                    i, left, top + 28, max(width - 1, 0.5), _BAR
                )
            )
        left += width
    return text + frame + Markup("").join(parts)


_TRADE_HEIGHT = 330
_TRADE_LEFT, _TRADE_RIGHT, _TRADE_TOP, _TRADE_BOTTOM = 90, 30, 34, 60
_LEAST = 0.05  # percent, at which smaller losses are drawn
_LOSSES = (0.1, 1, 10, 100)


def draw_trade(configs: Sequence[AdvisedConfig]) -> Markup:
    """Return the picture, with quality to the top and speed to the right; empty if fewer than two points differ."""
    points = [(c, c.speed[-1].tg_tps, max(c.loss_percent[1], _LEAST)) for c in configs if c.loss_percent and c.speed]
    if len({(tg, loss) for _, tg, loss in points}) < 2:
        return Markup("")
    most_x = 1.12 * max(tg for _, tg, _ in points)
    lowest = math.log10(max(2 * max(loss for *_, loss in points), 1))

    def at(tg: float, loss: float) -> tuple[float, float]:
        share = (math.log10(loss) - math.log10(_LEAST)) / (lowest - math.log10(_LEAST))
        across = _TRADE_LEFT + (WIDTH - _TRADE_LEFT - _TRADE_RIGHT) * tg / most_x
        return round(across, 1), round(_TRADE_TOP + (_TRADE_HEIGHT - _TRADE_TOP - _TRADE_BOTTOM) * share, 1)

    text = Markup("<text x='{}' y='{}'{}>{}</text>")
    end, middle = Markup(" text-anchor='end'"), Markup(" text-anchor='middle'")
    grid = Markup("<line class='grid' x1='{}' y1='{}' x2='{}' y2='{}'/>")
    parts = []
    for loss in (loss for loss in _LOSSES if math.log10(loss) <= lowest):
        y = at(0, loss)[1]
        parts.append(
            grid.format(_TRADE_LEFT, y, WIDTH - _TRADE_RIGHT, y)
            + text.format(_TRADE_LEFT - 8, y + 5, end, f"{loss:g} %")
        )
    for x in ticks(round_step(most_x), most_x):
        parts.append(text.format(at(x, _LEAST)[0], _TRADE_HEIGHT - _TRADE_BOTTOM + 22, middle, figure(x)))
    parts.append(text.format(0, 18, "", "perplexity above 16-bit"))
    parts.append(text.format(WIDTH - _TRADE_RIGHT, _TRADE_HEIGHT - 10, end, "TG, t/s"))
    each = [(tg, loss) for _, tg, loss in points]
    beaten = [(tg, loss) for tg, loss in each if any(t >= tg and q <= loss and (t, q) != (tg, loss) for t, q in each)]
    front = sorted(one for one in each if one not in beaten)
    line = Markup("<polyline class='c0' fill='none' points='{}'/>")
    parts.append(line.format(path(at(*one) for one in front)))
    seen: list[tuple[float, float]] = []
    for config, tg, loss in points:
        place = at(tg, loss)
        alone = all(math.dist(place, other) > 36 for other in seen)
        parts.append(_config_point(config.rank, place, (tg, loss) in front, alone))
        seen += [place] if alone else []
    spoken = "; ".join(
        f"#{c.rank} {c.variant}: {figure(tg)} t/s, {c.loss_percent[1]:.1f} % above 16-bit"
        for c, tg, _ in points
        if c.loss_percent
    )
    return svg("trade", (WIDTH, _TRADE_HEIGHT), "Quality against speed of the configs", spoken, parts)


def _config_point(rank: int, place: tuple[float, float], on_front: bool, labelled: bool) -> Markup:
    kind = "p0" if rank == 1 else "p1" if on_front else "p4 open"
    dot = Markup("<circle class='{}' cx='{:g}' cy='{:g}' r='{}'/>").format(kind, *place, 8 if rank == 1 else 5)
    if not labelled:
        return dot
    return dot + Markup("<text x='{:g}' y='{:g}'>#{}</text>").format(place[0] + 10, place[1] - 8, rank)


# Curves differ in colour, dashes and the shape of their points, so that none relies on colour vision.
MOST_CURVES = 6
HEIGHT = 300
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
