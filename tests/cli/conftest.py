"""What tests of several commands use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models import write_gguf


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path / "state"))
    (path,) = write_gguf(tmp_path / "Qwen3-0.6B-Q8_0.gguf", "Qwen3-0.6B", "q8_0")
    return str(path)
