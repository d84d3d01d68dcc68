"""Write what docs/speed.md shows of the benches: `python -m bench.pages` (`make pages`), after `make calibrate`.

Tables between `<!-- NAME -->` and `<!-- end -->` in docs/speed.md, the parameters in docs/speed-parameters.md, and the
plot of predicted against measured speed, docs/speed.svg.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.effects import effects, outcome
from bench.parameters_page import parameters_markdown
from bench.speed import Judged, Point, cross_validated, order, report

DOCS = Path(__file__).parent.parent / "docs"
_COLOURS = {
    "CPU only": "#c2410c",
    "one GPU": "#15803d",
    "one GPU + CPU": "#1d4ed8",
    "several GPUs": "#0f766e",
    "several GPUs + CPU": "#7e22ce",
}
_SIZE, _MARGIN, _TOP = 360, 56, 48
_NEAR = 1.5  # the dashed lines
_SHOWN = re.compile(r"\|( all, |[^|]*(, any|: all) \|| TG \|| PP \||---)")  # rows of errors; speed.txt has them all


def blocks(points: Sequence[Point], judged: Sequence[Judged]) -> dict[str, str]:
    """Return the generated blocks of docs/speed.md by name."""
    found = [outcome(effect) for effect in effects()]
    right = sum(one.right for one in found)
    return {
        "errors": "\n".join(row for row in report(points) if not row or _SHOWN.match(row)).strip(),
        "order": "\n".join(order(judged)).strip(),
        "effects": f"{right} of {len(found)} effects are predicted right.",
    }


def filled(text: str, found: dict[str, str]) -> str:
    """Return a page with its blocks replaced. Raises KeyError for a block that nobody writes."""

    def block(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n{found[match[1]]}\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", block, text, flags=re.DOTALL)


def plot(points: Sequence[Point]) -> str:
    """Return predicted against measured speed, TG and PP side by side, as SVG: one dot a run, logarithmic axes."""
    width = 2 * (_SIZE + _MARGIN) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_SIZE + _TOP + 76}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{_SIZE + _TOP + 76}" fill="#ffffff"/>',
    ]
    for number, (phase, low, high) in enumerate((("TG", 1.0, 400.0), ("PP", 1.0, 12_000.0))):
        left = _MARGIN + number * (_SIZE + _MARGIN)
        parts += _panel([p for p in points if p.phase == phase], phase, left, low, high)
    for number, (kind, colour) in enumerate(_COLOURS.items()):
        x = _MARGIN + number * 150
        parts.append(f'<circle cx="{x}" cy="{_SIZE + _TOP + 58}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 8}" y="{_SIZE + _TOP + 62}" fill="#333333">{kind}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(points: Sequence[Point], phase: str, left: float, low: float, high: float) -> Iterator[str]:
    place = _scale(low, high)
    bottom = _TOP + _SIZE
    yield f'<text x="{left}" y="{_TOP - 16}" fill="#111111">{phase}, tokens a second: predicted over measured</text>'
    yield f'<rect x="{left}" y="{_TOP}" width="{_SIZE}" height="{_SIZE}" fill="none" stroke="#999999"/>'
    shift = place(low * _NEAR)
    for first, last, dash in ((0.0, 0.0, ""), (0.0, shift, "4 4"), (shift, 0.0, "4 4")):
        yield (
            f'<line x1="{left + first:.1f}" y1="{bottom - last:.1f}" x2="{left + _SIZE - last:.1f}" '
            f'y2="{_TOP + first:.1f}" stroke="#999999" stroke-dasharray="{dash}"/>'
        )
    tick = low
    while tick <= high:
        x = place(tick)
        yield f'<text x="{left + x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#333333">{tick:g}</text>'
        yield f'<text x="{left - 4}" y="{bottom - x + 4:.1f}" text-anchor="end" fill="#333333">{tick:g}</text>'
        tick *= 10
    yield from _dots(points, place, left, bottom)


def _scale(low: float, high: float) -> Callable[[float], float]:
    return lambda value: _SIZE * math.log(min(max(value, low), high) / low) / math.log(high / low)


def _dots(points: Sequence[Point], place: Callable[[float], float], left: float, bottom: float) -> Iterator[str]:
    by_case: dict[str, list[Point]] = defaultdict(list)
    for one in points:
        by_case[one.case].append(one)
    for case, of_case in sorted(by_case.items()):
        measured = statistics.median(p.guess.row.test.observed for p in of_case)
        predicted = measured * math.exp(statistics.median(p.error for p in of_case))
        yield (
            f'<circle cx="{left + place(measured):.1f}" cy="{bottom - place(predicted):.1f}" r="3" '
            f'fill="{_COLOURS[of_case[0].kind]}" fill-opacity="0.7"><title>{case}: {predicted:.1f} for '
            f"{measured:.1f}</title></circle>"
        )


def pages() -> dict[Path, str]:
    """Return every generated file with its text."""
    points, judged = cross_validated()
    page = DOCS / "speed.md"
    return {
        DOCS / "speed-parameters.md": parameters_markdown(),
        DOCS / "speed.svg": plot(points),
        page: filled(page.read_text(), blocks(points, judged)),
    }


def main() -> None:
    """Write the files."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
