"""Architectures beyond the lab's: what builds of both engines allocated for some configurations of each."""

from __future__ import annotations

import pytest

from service.engine.config import ENGINES, Engine
from tests.memory_lab import LabRow, architecture_rows, compare

EVERY = 3  # bench/memory.py holds them all


def sample(engine: Engine) -> list[LabRow]:
    """Every third run of each model, its first one among them."""
    seen: dict[str, int] = {}
    chosen = []
    for row in architecture_rows(engine):
        seen[row.model] = seen.get(row.model, -1) + 1
        if seen[row.model] % EVERY == 0:
            chosen.append(row)
    return chosen


def name_of(row: LabRow) -> str:
    return f"{row.engine}-{row.model}-{row.id}"


@pytest.mark.parametrize("row", [row for engine in ENGINES for row in sample(engine)], ids=name_of)
def test_weights_cache_and_compute_of_every_device_are_what_the_engine_printed(row: LabRow) -> None:
    memory = row.predict()

    assert [c for c in compare(row, memory) if not c.exact] == []
    assert row.graph_splits in (None, memory.graph_splits)
    assert row.graph_nodes in (None, memory.graph_nodes)
    assert memory.basis != "approximate"
