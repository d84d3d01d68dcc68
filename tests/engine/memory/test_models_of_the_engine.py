"""llama.cpp's own small models of architectures that no published shape stands for, as the engine loads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rig.architectures import CARDS
from rig.measure import Run, predicted
from service.engine.ggml_types import tensor_bytes
from service.engine.gguf.header import ArraySummary, Header, Tensor
from service.engine.model import Model, build_model

_FILE = Path(__file__).parents[2] / "data" / "memory_test_models_llama_cpp.jsonl"
LINES: list[dict[str, Any]] = [json.loads(line) for line in _FILE.read_text().splitlines()]


def _model(line: dict[str, Any]) -> Model:
    metadata = {
        key: ArraySummary(value["length"]) if isinstance(value, dict) else value
        for key, value in line["metadata"].items()
    }
    tensors = [
        Tensor(name, kind, tuple(dims), 0, tensor_bytes(kind, tuple(dims))) for name, kind, dims in line["tensors"]
    ]
    return build_model(Header(metadata, tuple(tensors), 0))


@pytest.mark.parametrize("line", LINES, ids=[line["model"] for line in LINES])
def test_what_the_engine_reserved_for_its_test_model_is_predicted(line: dict[str, Any]) -> None:
    """All of it, or of architectures that are not described weights and caches."""
    model = _model(line)

    for run in line["runs"]:
        ours = predicted("llama.cpp", Run(line["model"], "", "server", CARDS, tuple(run["args"])), model)
        if "graph_nodes" not in run["measured"]:
            devices = run["measured"]["devices"]
            stored = {n: {part: ours["devices"][n][part] for part in parts} for n, parts in devices.items()}
            ours = {"devices": stored}
        assert ours == run["measured"], run["args"]
