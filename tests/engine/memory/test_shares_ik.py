"""ik_llama.cpp's `-sm graph`: each card's share of weights and cache, as the engine printed them."""

from __future__ import annotations

from statistics import median

import msgspec
import pytest

from service.engine.builds import resolve_build
from service.engine.config import Flags
from service.engine.engines.ik_llama_cpp import graph_split
from service.engine.engines.ik_llama_cpp.graph_split import splits_graph
from service.engine.engines.ik_llama_cpp.shares import (
    apportioned,
    exchange_buffer,
    graph_split_aborts,
)
from service.engine.memory.predict import predict_memory
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


# Published logs say of -sm graph: 13,268 to 13,370 MiB on each of four cards (a build of 29 January 2026, where
# -ncmoe means the first blocks), and of a latent model's cache "MLA replicated".
@pytest.mark.parametrize("date", [None, "2026-01-29"])
def test_a_layer_is_shared_out_by_builds_of_any_date(date: str | None) -> None:
    model = build("MiniMax-M2", "q4_K_M")
    flags = Flags(split_mode="graph", n_gpu_layers=99, n_ctx=8192, n_cpu_moe=30, tensor_split=(1.0, 1.0, 1.0, 1.0))
    run = run_on("ik_llama.cpp", model, flags, [48 * GIB] * 4, build=resolve_build("ik_llama.cpp", date))
    cards = predict_memory(run).devices[:-1]
    assert max(card.weights for card in cards) < 1.1 * min(card.weights for card in cards)


@pytest.mark.parametrize(("model", "replicated"), [("DeepSeek-R1-0528", True), ("Qwen3.5-27B", False)])
def test_a_model_whose_cuts_are_not_described_is_shared_out_by_ts(model: str, replicated: bool) -> None:
    built = build(model, "q2_k")
    flags = Flags(split_mode="graph", n_gpu_layers=999, n_ctx=8192, tensor_split=(2.0, 1.0), cpu_moe=True)
    cards = memory_on("ik_llama.cpp", built, flags, [80 * GIB] * 2).devices[:-1]
    alone = memory_on("ik_llama.cpp", built, msgspec.structs.replace(flags, split_mode="layer"), [80 * GIB] * 2)

    head = built.by_name["output.weight"].nbytes
    assert (cards[1].weights - head) / cards[0].weights == pytest.approx(0.5, rel=0.25)
    kv = [card.kv for card in cards]
    whole = sum(card.kv for card in alone.devices[:-1])
    assert kv == ([whole] * 2 if replicated else pytest.approx([whole * 2 / 3, whole / 3], rel=1e-3))


def test_rough_shares_are_near_what_the_engine_printed_where_both_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_split, "can_share", lambda *_: False)
    errors = [
        abs(card.weights / MIB / mib - 1)
        for row in ROWS[::4]
        for card, mib in zip(row.predict().devices[:-1], row.card_weights_mib, strict=True)
    ]
    assert median(errors) < 0.01
