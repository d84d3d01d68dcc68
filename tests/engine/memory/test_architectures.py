"""Architectures beyond the lab's: what builds of both engines allocated for some configurations of each."""

from __future__ import annotations

import pytest

from service.engine.config import ENGINES
from tests.memory_lab import LabRow, architecture_rows, compare
from tests.sampling import some_of

ROWS = [row for engine in ENGINES for row in architecture_rows(engine)]


def name_of(row: LabRow) -> str:
    return f"{row.engine}-{row.model}-{row.id}"


@pytest.mark.parametrize("row", some_of(ROWS, 12, group=lambda row: (row.engine, row.model)), ids=name_of)
def test_weights_cache_and_compute_of_every_device_are_what_the_engine_printed(row: LabRow) -> None:
    memory = row.predict()

    assert [c for c in compare(row, memory) if not c.exact] == []
    assert row.graph_splits in (None, memory.graph_splits)
    assert row.graph_nodes in (None, memory.graph_nodes)
    assert memory.basis != "approximate"
