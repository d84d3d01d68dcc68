"""The blocks of every page run, in order, and print what the page shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doc_blocks.blocks import PAGES, blocks_of
from tests.doc_blocks.running import DocRunner, doc_runner
from tests.doc_blocks.writing import stale


def runs(page: Path) -> bool:
    return any(block.language in ("sh", "python") and "not run" not in block.comments for block in blocks_of(page))


@pytest.fixture(scope="module")
def at() -> Iterator[DocRunner]:
    with doc_runner() as started:
        yield started


@pytest.mark.full
@pytest.mark.timeout(450)
@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page: Path, at: DocRunner) -> None:
    outcome = at.run(page)
    assert outcome.failure is None, outcome.failure
    assert not stale(page, outcome)
