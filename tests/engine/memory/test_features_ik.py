"""What ik_llama.cpp built with CUDA allocated for merged weights, -mla 0, -nkvo, -rtr, slots, unequal cards, -ngl 0."""

from __future__ import annotations

import pytest

from tests.memory_lab import LabRow, compare, rig_rows
from tests.sampling import some_of

EVERY = 4  # bench/memory.py holds them all


def sample() -> list[LabRow]:
    """Every fourth run of each feature, its first one among them."""
    return [row for row in rig_rows() if int(row.id.rpartition("-")[2]) % EVERY == 1]


@pytest.mark.parametrize(
    "row", some_of(sample(), 2, group=lambda row: row.id.rpartition("-")[0]), ids=lambda row: f"{row.id}-{row.model}"
)
def test_every_figure_of_every_device_is_what_the_engine_printed(row: LabRow) -> None:
    memory = row.predict()

    assert [c for c in compare(row, memory) if not c.exact] == []
    assert (memory.graph_splits, memory.graph_nodes) == (row.graph_splits, row.graph_nodes)
    assert memory.basis == "measured"
