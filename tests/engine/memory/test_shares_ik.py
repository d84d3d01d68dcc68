"""ik_llama.cpp's `-sm graph`: each card's share of weights and cache, as the engine printed them."""

from __future__ import annotations

import pytest

from service.engine.config import Flags
from service.engine.engines.ik_llama_cpp.graph_split import splits_graph
from service.engine.engines.ik_llama_cpp.shares import apportioned, exchange_buffer, graph_split_aborts
from service.engine.units import GIB, MIB
from tests.bare_runs import memory_on, run_on
from tests.memory_split import SplitRow, equal_graph, exact_buffers, split_rows
from tests.models import build
from tests.sampling import some_of

ROWS = split_rows()
ROUNDING = 0.02  # MiB: two printed figures of two decimals


@pytest.mark.parametrize("row", some_of(ROWS, 10, group=lambda row: row.model), ids=lambda row: f"{row.id}-{row.model}")
def test_every_figure_is_what_the_engine_printed(row: SplitRow) -> None:
    memory = row.predict()
    cards = memory.devices[:-1]

    assert sum(card.weights for card in cards) / MIB == pytest.approx(row.weights_mib, abs=ROUNDING)
    assert sum(card.kv for card in cards) / MIB == pytest.approx(row.kv_mib, abs=ROUNDING)
    for card, weights, kv in zip(cards, row.card_weights_mib, row.card_kv_mib, strict=True):
        assert card.weights / MIB == pytest.approx(weights, abs=row.row_padding_mib)
        assert card.kv / MIB == pytest.approx(kv, abs=max(1, row.kv_mib / 1e5))
    if row.model.startswith("Mixtral"):
        assert memory.basis == "approximate"
    else:
        assert (memory.basis, all(exact_buffers(row, memory)), equal_graph(row, memory)) == ("measured", True, True)


# -ts, and whether the engine ran: 60 runs, of which these are some
@pytest.mark.parametrize(
    ("model", "shares", "stops"),
    [
        ("Qwen3-0.6B", (3.0, 1.0), True),
        ("Qwen3-0.6B", (1.0, 2.0), False),
        ("Qwen3-30B-A3B", (1.0, 3.0), True),
        ("Qwen3-30B-A3B", (1.0, 2.0), False),
        ("Llama-3.1-8B", (1.0, 1.0, 8.0), True),
        ("GLM-4.5-Air", (9.0, 1.0), True),
        ("MiniMax-M2", (1.0, 2.0), False),
    ],
)
def test_a_layer_that_is_left_to_one_card_stops_the_engine(model: str, shares: tuple[float, ...], stops: bool) -> None:
    flags = Flags(split_mode="graph", tensor_split=shares, n_gpu_layers=999, n_ctx=4096, n_ubatch=512)
    why = graph_split_aborts(run_on("ik_llama.cpp", build(model, "q4_K_M"), flags, [120000 * MIB] * len(shares)))

    assert (why is not None) == stops
    assert why is None or "alone" in why


def test_a_card_keeps_room_for_what_others_send_it_as_far_as_it_may() -> None:
    assert exchange_buffer([100, None, 100, 100], 1000) == 300
    assert exchange_buffer([100, 100, 100, 100, 100], 300) == 300
    assert exchange_buffer([400, 100, 100], 300) == 0


def test_an_architecture_that_is_not_split_is_placed_by_layer() -> None:
    model, free = build("Gemma-3-27B", "q4_K_M"), [24 * GIB] * 2
    asked = memory_on("ik_llama.cpp", model, Flags(split_mode="graph"), free)

    assert not splits_graph(model)
    assert asked == memory_on("ik_llama.cpp", model, Flags(split_mode="layer"), free)


def test_a_card_that_holds_more_is_dealt_less() -> None:
    assert apportioned(4096, 256, [0.5, 1.0], [0, 0]) == [2048, 2048]
    assert apportioned(4096, 256, [0.5, 1.0], [300, 100])[0] < apportioned(4096, 256, [0.5, 1.0], [100, 300])[0]
