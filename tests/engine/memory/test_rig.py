"""A real context of either engine on stand-in cards: every buffer to the byte."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import pytest

from service.engine.config import Engine, Flags, Override
from service.engine.errors import InvalidFlags
from service.engine.units import GIB
from tests.bare_runs import memory_on
from tests.memory_rig import RigRow, compare_bytes, rig_rows
from tests.models import build

ROWS_A_KIND = 2
TWO_CARDS = [24 * GIB] * 2
CALLED_APPROXIMATE = ("rig3102-0001-Hy4-preview",)  # the one row whose prediction promises less than it holds


ROWS = (*rig_rows("llama.cpp"), *rig_rows("ik_llama.cpp"))


def sample() -> list[RigRow]:
    """Rows of every kind, spread over the files; all are in the full run."""
    kinds: dict[tuple[str, str], list[RigRow]] = defaultdict(list)
    for row in ROWS:
        kinds[row.engine, row.kind].append(row)
    return [row for rows in kinds.values() for row in rows[:: max(1, len(rows) // ROWS_A_KIND)][:ROWS_A_KIND]]


def one_of_each_model() -> list[RigRow]:
    """A row of every model that the sample has none of, on one engine and the other in turn."""
    models: dict[str, dict[Engine, RigRow]] = defaultdict(dict)
    sampled = {row.model for row in sample()}
    for row in ROWS:
        if row.model not in sampled:
            models[row.model].setdefault(row.engine, row)
    return [list(engines.values())[i % len(engines)] for i, engines in enumerate(models.values())]


def name_of(row: RigRow) -> str:
    return f"{row.engine}-{row.kind}-{row.id}".replace(" ", "_")


@pytest.mark.parametrize("row", sample(), ids=name_of)
def test_every_buffer_is_that_of_a_real_context(row: RigRow) -> None:
    assert_equal(row)


@pytest.mark.parametrize("row", one_of_each_model(), ids=name_of)
def test_every_model_is_that_of_a_real_context(row: RigRow) -> None:
    assert_equal(row)


@pytest.mark.full
@pytest.mark.parametrize("part", range(8))
def test_every_recorded_row_is_that_of_a_real_context(part: int) -> None:
    for row in ROWS[part::8]:
        assert_equal(row)


def assert_equal(row: RigRow) -> None:
    memory = row.predict()
    assert memory.basis == ("approximate" if row.id in CALLED_APPROXIMATE else "measured")
    assert [f for f in compare_bytes(row, memory) if f.predicted != f.measured] == []
    assert (memory.graph_splits, memory.graph_nodes) == (row.graph_splits, row.graph_nodes)


def test_equal_shares_of_unlike_cards_are_equal_slices_with_sm_tensor() -> None:
    """Free memory decides nothing there, unlike with `-sm layer`."""
    flags = Flags(n_ctx=8192, split_mode="tensor")
    small, large, _ = memory_on("llama.cpp", build("Qwen3-32B", "q4_K_M"), flags, [16 * GIB, 96 * GIB]).devices

    assert (small.kv, small.compute) == (large.kv, large.compute)
    assert abs(small.weights - large.weights) < 0.01 * large.weights


@pytest.mark.parametrize(
    ("model", "changed"),
    [
        ("DeepSeek-V2.5", {"split_mode": "tensor"}),
        ("Qwen3-8B", {"split_mode": "tensor", "flash_attn": "off"}),
        ("Qwen3-8B", {"split_mode": "tensor", "overrides": (Override("ffn", "CUDA0"),)}),
        ("Qwen3-8B", {"split_mode": "none", "overrides": (Override("ffn", "CUDA1"),)}),
    ],
)
def test_splits_that_llama_cpp_does_not_load_are_refused(model: str, changed: dict[str, object]) -> None:
    flags = msgspec.structs.replace(Flags(), **changed)

    with pytest.raises(InvalidFlags, match="-sm"):
        memory_on("llama.cpp", build(model, "q4_K_M"), flags, TWO_CARDS)


def test_flash_attention_left_to_the_engine_is_off_for_a_cache_without_kernel() -> None:
    """iq4_nl has none on CUDA; a quantised cache of values would turn it on all the same."""
    model = build("Qwen3-8B", "q4_K_M")
    auto, on, off = (
        memory_on("llama.cpp", model, Flags(n_ctx=8192, flash_attn=fa, cache_type_k="iq4_nl"), TWO_CARDS)
        for fa in ("auto", "on", "off")
    )

    assert auto.graph_nodes != on.graph_nodes
    assert auto.devices[0].compute >= off.devices[0].compute
