"""Curves: well-formed, told apart without colours, said in words, and nothing of a name gets out of its place."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from msgspec.structs import replace

from service.engine.goal import Constraints
from service.web.pictures import HEIGHT, MOST_CURVES, WIDTH, Curve, draw, draw_trade, mark
from tests import rigs
from tests.engine.planner.asking import ask

SVG = "{http://www.w3.org/2000/svg}"
FLAT = Curve("flat", [(0, 10.0), (4096, 9.0), (8192, 8.0)])
HOSTILE = "\"'></title><script>alert(1)</script>&"


def parsed(*curves: Curve) -> ET.Element:
    drawn = draw(curves, "tg", "Speed by depth")
    return ET.fromstring(str(drawn).replace("<svg ", "<svg xmlns='http://www.w3.org/2000/svg' ", 1))


def test_a_curve_passes_through_its_points_scaled_to_the_frame() -> None:
    line = parsed(FLAT).find(f".//{SVG}polyline")
    assert line is not None
    places = [tuple(map(float, place.split(","))) for place in line.attrib["points"].split()]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert [y for _, y in places] == sorted(y for _, y in places)  # slower is lower: y grows downwards
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)


def test_curves_differ_in_dashes_and_in_the_shape_of_their_points() -> None:
    root = parsed(*(Curve(f"c{i}", [(0, 1.0 + i), (1024, 1.0)]) for i in range(MOST_CURVES)))
    lines = root.findall(f".//{SVG}polyline")
    assert len({line.attrib["stroke-dasharray"] for line in lines}) == len(lines) == MOST_CURVES
    assert len({re.sub(r"\d", "", str(mark(i)).partition("<g")[2]) for i in range(4)}) == 4


def test_what_is_seen_is_said_in_title_and_text() -> None:
    root = parsed(FLAT)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-labelledby"].split() == [root[0].attrib["id"], root[1].attrib["id"]]
    assert root[0].text == "Speed by depth"
    assert root[1].text == "flat: 10 at 0 tokens, 8 at 8,192"


def test_large_speeds_are_written_without_an_exponent() -> None:
    text = "".join(parsed(Curve("fast", [(0, 10_845.0), (8192, 331_129.4)])).itertext())
    assert "fast: 10,845 at 0 tokens, 331,129 at 8,192" in text
    assert "e+" not in text


def test_a_loss_that_is_smaller_than_is_drawn_is_said_as_it_is() -> None:
    body = ask("Qwen3-0.6B", "q8_0", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, constraints=Constraints())
    exact = [replace(one, loss_percent=(0.0, 0.0, 0.0)) for one in body.configs]
    slower = [replace(one, rank=2, speed=one.speed[:1]) for one in exact[:1]]
    assert "0.0 % above 16-bit" in str(draw_trade([exact[0], *slower]))


def test_a_name_stays_text() -> None:
    root = parsed(Curve(HOSTILE, FLAT.points))
    assert HOSTILE in (root[1].text or "")
    assert not list(root.iter("script")) + list(root.iter(f"{SVG}script"))


@pytest.mark.parametrize("values", [[(0, 0.0)], [(0, 1e-9), (1, 1e-9)], [(5, 1e7)], [(0, 3.0)] * 2, [(2e7, 0.1)]])
def test_odd_values_are_drawn_within_the_frame(values: list[tuple[float, float]]) -> None:
    text = str(draw([Curve("odd", values)], "k", "t"))
    assert "nan" not in text
    assert "inf" not in text
    assert all(-1 <= float(n) <= WIDTH + 1 for n in re.findall(r"translate\(([-\d.]+) ", text))


def test_long_curves_are_thinned_and_nothing_at_all_is_drawn_of_none() -> None:
    long = Curve("long", [(i * 10, 100.0 - i / 100) for i in range(5_000)])
    assert len(str(draw([long], "k", "t"))) < 10_000
    assert draw([Curve("empty", [])], "k", "t") == ""
