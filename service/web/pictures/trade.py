"""Quality against speed as SVG: every config is a point, and a line joins those that no other beats."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from service.engine.advice import AdvisedConfig
from service.web.pictures.svg import figure, path, round_step, svg, ticks

_WIDTH, _HEIGHT = 640, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 30, 34, 60
_LEAST = 0.05  # percent, at which smaller losses are drawn
_TICKS = (0.1, 1, 10, 100)


def draw_trade(configs: Sequence[AdvisedConfig]) -> Markup:
    """Return the picture, with quality to the top and speed to the right; empty if fewer than two points differ."""
    points = [(c, c.speed[-1].tg_tps, max(c.loss_percent[1], _LEAST)) for c in configs if c.loss_percent and c.speed]
    if len({(tg, loss) for _, tg, loss in points}) < 2:
        return Markup("")
    most_x = 1.12 * max(tg for _, tg, _ in points)
    lowest = math.log10(max(2 * max(loss for *_, loss in points), 1))

    def at(tg: float, loss: float) -> tuple[float, float]:
        share = (math.log10(loss) - math.log10(_LEAST)) / (lowest - math.log10(_LEAST))
        across = _LEFT + (_WIDTH - _LEFT - _RIGHT) * tg / most_x
        return round(across, 1), round(_TOP + (_HEIGHT - _TOP - _BOTTOM) * share, 1)

    text = Markup("<text x='{}' y='{}'{}>{}</text>")
    end, middle = Markup(" text-anchor='end'"), Markup(" text-anchor='middle'")
    grid = Markup("<line class='grid' x1='{}' y1='{}' x2='{}' y2='{}'/>")
    parts = []
    for loss in (loss for loss in _TICKS if math.log10(loss) <= lowest):
        y = at(0, loss)[1]
        parts.append(grid.format(_LEFT, y, _WIDTH - _RIGHT, y) + text.format(_LEFT - 8, y + 5, end, f"{loss:g} %"))
    for x in ticks(round_step(most_x), most_x):
        parts.append(text.format(at(x, _LEAST)[0], _HEIGHT - _BOTTOM + 22, middle, figure(x)))
    parts.append(text.format(0, 18, "", "perplexity above 16-bit"))
    parts.append(text.format(_WIDTH - _RIGHT, _HEIGHT - 10, end, "TG, t/s"))
    each = [(tg, loss) for _, tg, loss in points]
    beaten = [(tg, loss) for tg, loss in each if any(t >= tg and q <= loss and (t, q) != (tg, loss) for t, q in each)]
    front = sorted(one for one in each if one not in beaten)
    line = Markup("<polyline class='c0' fill='none' points='{}'/>")
    parts.append(line.format(path(at(*one) for one in front)))
    seen: list[tuple[float, float]] = []
    for config, tg, loss in points:
        place = at(tg, loss)
        alone = all(math.dist(place, other) > 36 for other in seen)
        parts.append(_point(config.rank, place, (tg, loss) in front, alone))
        seen += [place] if alone else []
    spoken = "; ".join(
        f"#{c.rank} {c.variant}: {figure(tg)} t/s, {c.loss_percent[1]:.1f} % above 16-bit"
        for c, tg, _ in points
        if c.loss_percent
    )
    return svg("trade", (_WIDTH, _HEIGHT), "Quality against speed of the configs", spoken, parts)


def _point(rank: int, place: tuple[float, float], on_front: bool, labelled: bool) -> Markup:
    kind = "p0" if rank == 1 else "p1" if on_front else "p4 open"
    dot = Markup("<circle class='{}' cx='{:g}' cy='{:g}' r='{}'/>").format(kind, *place, 8 if rank == 1 else 5)
    if not labelled:
        return dot
    return dot + Markup("<text x='{:g}' y='{:g}'>#{}</text>").format(place[0] + 10, place[1] - 8, rank)
