"""The guide's examples and the README's curl lines, asked again of a running service."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo import service_running
from tests.guide import PAGE, PRINTED, Example, answer, examples
from tests.local_hub import LocalHub

EXAMPLES = examples(PAGE.read_text())
README = (Path(__file__).parent.parent / "README.md").read_text()


def curl_lines() -> list[str]:
    block = README.split("<!-- curl: begin -->")[1].split("<!-- curl: end -->")[0]
    return [line for line in block.replace("\\\n", " ").splitlines() if line.startswith("curl ")]


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


@pytest.mark.parametrize("line", curl_lines(), ids=lambda line: re.search(r"/v1/\w+", line)[0])  # type: ignore[index]
def test_a_line_of_the_readme_is_answered(line: str, url: str) -> None:
    assert PRINTED in line
    words = shlex.split(line.replace(PRINTED, url))
    reply = subprocess.run([*words, "-w", "\n%{http_code}"], check=True, capture_output=True, text=True).stdout
    body, _, status = reply.rpartition("\n")
    assert status == "200", body
    assert len(body) > 200
