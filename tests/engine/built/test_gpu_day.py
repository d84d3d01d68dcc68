"""A GPU day with the real build of llama.cpp: it takes every command, and a day on the CPU has all figures."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bench.gpu_day import main as report
from rig.gpu_day import main
from rig.gpu_file import read
from rig.gpu_plan import Machine, plan
from service.engine.commands.reader import BenchTests
from service.engine.commands.render import launch
from service.engine.config import Tool
from service.engine.run_flags import to_flags
from tests.engine.built.test_commands import REFUSALS, programs  # noqa: F401 - a fixture

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
CARDS = Machine(cards=(24 << 30,) * 3, threads=16, engines=("llama.cpp",))


def test_no_step_with_cards_has_a_word_that_the_engine_refuses(programs: Path) -> None:  # noqa: F811
    tools: tuple[Tool, ...] = ("server", "bench")
    for step in plan(CARDS):
        for tool in tools if step.kind != "build" else ():
            tests = BenchTests((step.n_prompt,), (step.n_gen,), (), step.depths) if tool == "bench" else None
            told = launch(step.engine, tool, to_flags(step.flags), model_path="/nowhere/model.gguf", tests=tests)
            words = [str(programs / told.program), *told.arguments]
            done = subprocess.run(words, capture_output=True, text=True, timeout=110)
            output = done.stdout + done.stderr
            assert not any(refusal in output for refusal in REFUSALS), f"{step.id}: {output[-2000:]}"
            assert "failed to load model" in output, step.id


def test_a_day_on_the_cpu_is_complete_and_its_file_is_fitted(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]  # noqa: F811
) -> None:  # fmt: skip
    monkeypatch.setattr("rig.gpu_plan._DENSE", "Qwen3-0.6B")
    monkeypatch.setattr("rig.gpu_plan._TYPES", ("q4_0", "q4_K"))
    words = ["--out", str(tmp_path), "--only", "llama.cpp", "--cpu", "--engine-dir", str(programs), "--minutes", "12"]
    assert main(words) == 0
    day = read(tmp_path / "gpu-day.jsonl")
    assert [(line.step.id, line.failure) for line in day.lines if not line.done] == []
    assert {line.step.about for line in day.lines} == {"build", "memory", "types", "threads", "batches", "experts"}
    assert capsys.readouterr().out.splitlines()[-2] == "complete: every step has run"
    report([str(tmp_path / "gpu-day.jsonl"), "--busy"])
    shown = capsys.readouterr().out
    memory = [line for line in shown.splitlines() if line.startswith("  CPU ")]
    assert len(memory) == sum(line.memory is not None for line in day.lines)
    assert all("(as predicted)" in line for line in memory)
    cases = [json.loads(line) for line in (tmp_path / "use" / "cases.jsonl").read_text().splitlines()]
    assert len(cases) == sum(line.result is not None for line in day.lines)
    assert "speeds fitted alone" in shown
