"""The guide's examples, asked again: what the page shows is what is answered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.demo import service_running
from tests.guide import PAGE, Example, answer, examples
from tests.local_hub import LocalHub

EXAMPLES = examples(PAGE.read_text())


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with LocalHub() as hub, service_running(hub.endpoint) as url:
        yield url


def test_the_guide_has_an_example_in_nearly_every_section() -> None:
    sections = PAGE.read_text().count("\n## ")
    assert len(EXAMPLES) >= sections
    assert all(example.answer for example in EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_of_the_guide_is_answered_as_the_page_shows(example: Example, url: str) -> None:
    assert answer(example, url) == example.answer
