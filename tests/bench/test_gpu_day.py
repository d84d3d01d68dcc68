"""What is made of a GPU day's file: figures next to predictions, cases that can be fitted, and a corrected advice.

`tests/data/gpu_day_cpu.jsonl`, `gpu_day_h100.jsonl` and `gpu_day_h200.jsonl` were recorded (tests/data/README.md).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from bench import runs
from bench.gpu_day import (
    Compared,
    Predictions,
    copy_lines,
    copy_rate_lines,
    hop_lines,
    is_busy,
    main,
    memory_lines,
    type_lines,
)
from rig.gpu_file import FORMAT, Day, Head, Line, MemorySeen, Taken, read
from rig.gpu_plan import Machine, Step, plan
from service.cli import main as advisor
from service.engine.commands.render import render
from service.engine.config import Engine
from service.engine.hardware import Gpu, Hardware
from service.engine.logs.read import LogBuffers
from service.engine.run_flags import to_flags
from tests.models import build, write_gguf

RECORDED = Path(__file__).parent.parent / "data" / "gpu_day_cpu.jsonl"
CARDS = Machine(cards=(24 << 30, 24 << 30), threads=16, engines=("llama.cpp", "ik_llama.cpp"))
STEPS = {step.id: step for step in plan(CARDS)}


def report(capsys: pytest.CaptureFixture[str], tmp_path: Path, *words: str) -> str:
    main([str(RECORDED), "--out", str(tmp_path / "use"), *words])
    return capsys.readouterr().out


def seen(step: str, phase: str, measured: float, expected: float) -> Compared:
    return Compared(STEPS[step], phase, 0, measured, expected, expected / 2, expected * 2)


def test_buffers_that_the_engine_printed_are_those_predicted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shown = report(capsys, tmp_path)
    rows = re.findall(r"^  CPU +([\d.,]+) \((.*?)\) +([+-][\d.,]+) +([+-][\d.,]+)", shown, re.M)
    assert len(rows) == sum(line.memory is not None for line in read(RECORDED).lines)
    assert {told for _, told, _, _ in rows} == {"as predicted"}


@pytest.mark.parametrize(("name", "runs"), [("h100", 10), ("h200", 5)])
def test_what_a_real_card_took_is_inside_what_is_predicted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, runs: int
) -> None:
    main([str(RECORDED.with_name(f"gpu_day_{name}.jsonl")), "--out", str(tmp_path / "use")])
    shown = capsys.readouterr().out
    cards = re.findall(r"^  CUDA0 +[\d.,]+ \((.*?)\).* (\w+)$", shown, re.M)
    assert cards == [("as predicted", "inside")] * runs


def test_cases_are_read_and_fitted_as_published_ones_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shown = report(capsys, tmp_path, "--busy")
    cases = [json.loads(line) for line in (tmp_path / "use" / "cases.jsonl").read_text().splitlines()]
    day = read(RECORDED)
    assert len(cases) == sum(line.result is not None for line in day.lines)
    tests = [test for case in cases for test in runs.tests_of(runs.setup_of(case, "gpu-day"), every=True)]
    measured = {round(tps, 3) for line in day.lines if line.result for row in line.result.report.rows
                for tps in (*row.pp_tps, *row.tg_tps)}  # fmt: skip
    assert len(tests) >= len(cases)
    assert {test.observed for test in tests if test.observed in measured}
    assert f"{len(tests)} speeds fitted alone" in shown
    (author,) = {runs.author_of(case) for case in cases}
    assert re.fullmatch(r"gpuday20261124[0-9a-f]{8}", author)
    assert {case["model"]["shape"] for case in cases} == {"Qwen3-8B@1", "Qwen3-30B-A3B@1"}


def test_what_a_busy_cpu_measured_is_shown_and_not_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    day = read(RECORDED)
    busy = [line for line in day.lines if line.result and is_busy(line, 2)]
    shown = report(capsys, tmp_path)
    assert f"{len(busy)} steps were measured while other programs kept" in shown
    kept = (tmp_path / "use" / "cases.jsonl").read_text().splitlines()
    assert len(kept) == sum(line.result is not None for line in day.lines) - len(busy)


def test_only_what_the_cpu_computes_is_doubted_for_a_busy_cpu() -> None:
    (line,) = [line for line in read(RECORDED).lines if line.step.id == "types llama.cpp q4_0 CPU ub128"]
    loud = msgspec.structs.replace(line, others=1.5)
    assert is_busy(loud, 2)
    assert not is_busy(loud, 64)
    assert not is_busy(msgspec.structs.replace(loud, step=STEPS["types llama.cpp q4_0 card ub512"]), 2)
    assert is_busy(msgspec.structs.replace(loud, step=STEPS["copies llama.cpp q4_0 card ub512 experts in RAM"]), 2)


@pytest.mark.full
def test_an_advice_for_this_machine_is_corrected_by_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path / "state"))
    report(capsys, tmp_path, "--busy")
    write_gguf(tmp_path / "m.gguf", "Qwen3-0.6B", "q4_0")
    asked = ["advise", str(tmp_path / "m.gguf"), "-H", f"@{tmp_path}/use/hardware.json", "--context", "4096",
             "--engine", "llama.cpp", "--json"]  # fmt: skip
    assert advisor(asked) == 0
    before = json.loads(capsys.readouterr().out)["configs"][0]
    assert advisor([*asked, "--measured", str(tmp_path / "use" / "results.json")]) == 0
    after = json.loads(capsys.readouterr().out)["configs"][0]
    assert after["speed"][0]["pp_tps"] != before["speed"][0]["pp_tps"]
    assert after["reasons"][0]["rule"] == "learned-from-results"
    assert "of other models on these cards" in after["reasons"][0]["text"]


def test_types_are_compared_with_q4_0_on_the_same_device() -> None:
    found = [
        seen("types llama.cpp q4_0 card ub512", "pp", 4000, 3000),
        seen("types llama.cpp q8_0 card ub512", "pp", 3000, 2700),
        seen("types ik_llama.cpp iq4_k card ub512", "pp", 9000, 1),
    ]
    assert list(type_lines(found))[1:] == ["    0.75   0.90  q8_0 llama.cpp card"]


@pytest.mark.parametrize(("engine", "least"), [("llama.cpp", 32), ("ik_llama.cpp", 512)])
def test_the_batch_from_which_copies_pay_is_measured_next_to_the_engines_own(engine: Engine, least: int) -> None:
    found = []
    for batch, on, off in ((128, 100, 300), (512, 390, 400), (2048, 1500, 420)):
        name = f"copies {engine} q4_0 card ub{batch} experts in RAM"
        found += [seen(name, "pp", on, 2 * on), seen(f"{name}, no copies", "pp", off, off)]
    told = list(copy_lines(found))
    assert told[0].startswith(f"Experts in RAM, {engine}")
    assert [line.split()[1] for line in told[1:4]] == ["128", "512", "2048"]
    assert told[4] == f"  pays from -ub 2048 (predicted: 512); the engine copies from {least}"


def test_the_copy_rate_is_the_experts_bytes_over_the_time_that_they_add() -> None:
    in_ram = "copies llama.cpp q4_0 card ub2048 experts in RAM"
    model = build(STEPS[in_ram].model, STEPS[in_ram].mix)
    n_bytes = sum(t.nbytes for t in model.tensors if "_exps." in t.name)
    extra = n_bytes / 20e9  # 20 GB/s
    alone = 2048 / 8000
    found = [
        seen("experts llama.cpp q4_0 card ub2048 experts", "pp", 8000, 8000),
        seen(in_ram, "pp", 2048 / (alone + extra), 1),
    ]
    (told,) = copy_rate_lines(found)
    assert told.endswith("from own RAM to the card, llama.cpp: 20.0 GB/s")


def test_a_hop_is_what_a_token_takes_longer_for_each_further_card() -> None:
    alone = seen("types llama.cpp q4_0 card ub512", "tg", 100, 100)
    split = seen("splits llama.cpp q4_0 2 cards ub512 -sm layer", "tg", 1 / (0.01 + 60e-6), 100)
    (told,) = hop_lines([alone, split])
    assert told.startswith("a token on 2 cards, -sm layer, llama.cpp: +60 µs a further card (change.card: ")


def test_a_step_has_what_the_report_looks_for() -> None:
    wanted: list[Step] = [STEPS[f"experts {engine} q4_0 card ub2048 experts"] for engine in CARDS.engines]
    wanted += [STEPS[f"types {engine} q4_0 card ub512"] for engine in CARDS.engines]
    assert {(step.about, step.flags.n_ubatch) for step in wanted} == {("experts", 2048), ("types", 512)}


def test_a_context_and_a_pool_are_what_a_card_takes_beyond_its_buffers(tmp_path: Path) -> None:
    step = STEPS["memory llama.cpp q4_0 2 cards ub512"]
    command = render(step.engine, "server", to_flags(step.flags), model_path="m.gguf")
    buffers = tuple(LogBuffers(device=f"CUDA{i}", weights_mib=900.0, kv_mib=20.0, compute_mib=80.0) for i in range(2))
    idle = [Taken(device="CUDA0", taken=1450), Taken(device="CUDA1", taken=1350)]
    after = [Taken(device="CUDA0", taken=1500), Taken(device="CUDA1", taken=1440)]
    hardware = Hardware(gpus=[Gpu(name="RTX 3090")] * 2)
    head = Head(format=FORMAT, agent="test", hardware=hardware, started_at="2026-11-24T00:00:00Z")
    whole = MemorySeen(command=command, idle=idle, after=after, buffers=buffers)
    cut = msgspec.structs.replace(whole, after=[])
    lines = [Line(step=step, seconds=1, at=head.started_at, memory=seen) for seen in (whole, cut)]
    told = list(memory_lines(Predictions(Day(head=head, lines=lines), tmp_path), lines))
    assert told[-2] == "a card idle beyond its buffers: median 400 MiB (350 to 450)"
    assert told[-1] == "grown behind a prompt (pool): median 70 MiB, up to 90"
    shown = [line.split() for line in told if line.startswith("  CUDA")]
    assert [words[-6:-5] == ["none"] for words in shown] == [False, False, True, True]
    assert {words[-1] for words in shown} == {"inside"}
