"""What the docs show of the benches is what the benches say."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from bench.pages import DOCS, filled, pages

pytestmark = pytest.mark.full  # every published run is predicted


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return {path.name: text for path, text in pages().items()}


@pytest.mark.parametrize("name", ["speed.md", "speed-parameters.md", "speed.svg"])
def test_a_page_is_of_the_shipped_calibration(written: dict[str, str], name: str) -> None:
    assert (DOCS / name).read_text() == written[name], "run `make pages`"


def test_the_plot_is_well_formed_and_has_a_dot_for_every_run(written: dict[str, str]) -> None:
    root = ET.fromstring(written["speed.svg"])
    assert len(root.findall(".//{http://www.w3.org/2000/svg}title")) > 300


def test_a_block_that_nobody_writes_is_an_error() -> None:
    assert filled("<!-- a -->\nold\n<!-- end -->", {"a": "new"}) == "<!-- a -->\nnew\n<!-- end -->"
    with pytest.raises(KeyError):
        filled("<!-- b -->\n<!-- end -->", {})
