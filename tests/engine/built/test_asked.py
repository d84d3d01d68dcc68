"""`advisor check --engine-dir`: the engine's own figures of a header, also where its architecture is not known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from service.cli import main
from service.engine.engines.llama_cpp import graphs
from tests.engine.built.test_commands import programs  # noqa: F401 - a fixture
from tests.models import write_gguf

pytestmark = pytest.mark.full

MODELS = [("Qwen3-0.6B", "qwen3"), ("Gemma-3-12B", "gemma3"), ("GLM-4.5-Air", "glm4moe")]
ROW = re.compile(
    r"^Host +weights ([\d,]+), cache ([\d,]+), compute ([\d,]+) +\(here ([\d,]+), ([\d,]+), ([\d,]+)\)$", re.M
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "architecture"), MODELS)
def test_an_architecture_that_is_not_described_gets_the_engines_figures(
    name: str, architecture: str, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delitem(graphs.ARCHITECTURES, architecture)
    monkeypatch.delitem(graphs.FAMILIES, architecture)
    (file,) = write_gguf(tmp_path / f"{name}.gguf", name, "q4_K_M")
    command = f"llama-server -m {file} -ngl 0 -c 4096 -fa on -np 1"
    words = ["check", command, "-H", "CPU: EPYC 9354, 384GB DDR5-4800", "--engine-dir", str(programs)]
    main(words)
    shown = capsys.readouterr().out
    assert "memory: approximate" in shown
    found = ROW.search(shown)
    assert found is not None, shown
    weights, cache, compute, *ours = (int(n.replace(",", "")) for n in found.groups())
    assert (abs(weights - ours[0]), abs(cache - ours[1])) <= (1, 1)
    assert 0.5 < compute / ours[2] < 2
