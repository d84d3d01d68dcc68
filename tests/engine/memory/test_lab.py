"""The engines' own figures: what builds of both really allocated, device by device."""

from __future__ import annotations

from collections import defaultdict

import pytest

from service.engine.config import ENGINES, Engine
from tests.memory_lab import LabRow, compare, lab_rows

ROWS_A_FAMILY = 3


def sample(engine: Engine) -> list[LabRow]:
    """Rows of every family, spread over the file."""
    families: dict[str, list[LabRow]] = defaultdict(list)
    for row in lab_rows(engine):
        families[row.family].append(row)
    return [row for rows in families.values() for row in rows[:: max(1, len(rows) // ROWS_A_FAMILY)][:ROWS_A_FAMILY]]


def with_cpu_moe(engine: Engine) -> list[LabRow]:
    return [row for row in lab_rows(engine) if {"-cmoe", "-ncmoe"}.intersection(row.args)][::5]


def name_of(row: LabRow) -> str:
    return f"{row.engine}-{row.family}-{row.id}".replace(" ", "_")


@pytest.mark.parametrize("row", [row for engine in ENGINES for row in sample(engine)], ids=name_of)
def test_weights_cache_and_compute_of_every_device_are_what_the_engine_printed(row: LabRow) -> None:
    memory = row.predict()

    assert [c for c in compare(row, memory) if not c.exact] == []
    assert row.graph_splits in (None, memory.graph_splits)
    assert row.graph_nodes in (None, memory.graph_nodes)
    assert memory.basis == "measured"


@pytest.mark.parametrize("row", [row for engine in ENGINES for row in with_cpu_moe(engine)], ids=name_of)
def test_cpu_moe_moves_the_layers_that_each_engine_means(row: LabRow) -> None:
    assert [c for c in compare(row, row.predict()) if not c.exact] == []
