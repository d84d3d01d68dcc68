"""How a small model of an architecture is held to its prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rig import architectures
from rig.architectures import CARDS, hold
from rig.measure import Printed, Run, predicted
from service.engine.units import MIB
from tests import models

RIG = {"engine": "llama.cpp"}
ARGUMENTS = ("-c", "4096", "-fa", "on")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    models.write_gguf(tmp_path / "Qwen3-0.6B.gguf", "Qwen3-0.6B", "q8_0")
    return tmp_path / "Qwen3-0.6B.gguf"


def as_predicted() -> Printed:
    run = Run("Qwen3-0.6B", "q8_0", "server", CARDS, ARGUMENTS)
    ours = predicted("llama.cpp", run, models.build(run.model, run.mix))
    devices: dict[str, dict[str, int]] = ours["devices"]
    mib = {
        name: {part.removesuffix("_bytes"): round(n / MIB, 2) for part, n in parts.items()}
        for name, parts in devices.items()
    }
    taken = tuple((sum(devices[f"CUDA{i}"].values()),) for i in range(len(CARDS)))
    return Printed(mib, ours["graph_splits"], ours["graph_nodes"], taken=taken)


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, "exact"),
        ({"nodes": 1}, "placed"),
        ({"mib": {}}, "differs"),
        ({"failed": "error: failed to load\nmore"}, "not loaded"),
    ],
)
def test_a_model_is_exact_placed_or_neither(
    path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], state: str
) -> None:
    monkeypatch.setattr(architectures, "run_engine", lambda *_: as_predicted()._replace(**changed))
    assert hold(RIG, path, ARGUMENTS)[0] == state
