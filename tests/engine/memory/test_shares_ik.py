"""ik_llama.cpp's `-sm graph`: each card's share of weights and cache, as the engine printed them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from service.engine.commands import parse
from service.engine.config import Flags
from service.engine.memory import predict_memory
from service.engine.memory.shares_ik import deal
from service.engine.memory.split_modes import GRAPH_SPLIT_IK, splits_graph
from service.engine.planner.support import architectures
from service.engine.units import GIB, MIB
from tests.models import build

FILE = Path(__file__).parents[2] / "data" / "memory_split_ik.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text().splitlines()]
ROUNDING = 0.02  # MiB: two printed figures of two decimals


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['id']}-{row['model']}")
def test_weights_and_cache_are_those_that_the_engine_printed(row: dict[str, Any]) -> None:
    flags = parse(f"llama-sweep-bench -m m.gguf {shlex.join(row['args'])}", "ik_llama.cpp").flags
    memory = predict_memory(
        "ik_llama.cpp", build(row["model"], row["mix"]), flags, [n * MIB for n in row["free_mib"]], tool="bench"
    )
    cards = memory.devices[:-1]

    assert sum(card.weights for card in cards) / MIB == pytest.approx(row["weights_mib"], abs=ROUNDING)
    assert sum(card.kv for card in cards) / MIB == pytest.approx(row["kv_mib"], abs=ROUNDING)
    for card, weights, kv in zip(cards, row["card_weights_mib"], row["card_kv_mib"], strict=True):
        assert card.weights / MIB == pytest.approx(weights, abs=row["row_padding_mib"])
        assert card.kv / MIB == pytest.approx(kv, abs=max(1, row["kv_mib"] / 1e5))
    assert memory.basis == "approximate"


def test_an_architecture_that_is_not_split_is_placed_by_layer() -> None:
    model, free = build("Gemma-3-27B", "q4_K_M"), [24 * GIB] * 2
    asked = predict_memory("ik_llama.cpp", model, Flags(split_mode="graph"), free)

    assert not splits_graph(model)
    assert asked == predict_memory("ik_llama.cpp", model, Flags(split_mode="layer"), free)


def test_the_split_architectures_are_those_of_the_engine() -> None:
    assert {row.arch for row in architectures().values() if row.graph_split_ik} == GRAPH_SPLIT_IK


def test_a_card_that_holds_more_is_dealt_less() -> None:
    assert deal(4096, 256, [0.5, 1.0], [0, 0]) == [2048, 2048]
    assert deal(4096, 256, [0.5, 1.0], [300, 100])[0] < deal(4096, 256, [0.5, 1.0], [100, 300])[0]
