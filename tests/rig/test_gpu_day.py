"""A GPU day goes on where it was, loses nothing to one failure, and its file means something when it is over."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import psutil
import pytest

from rig.gpu_build import build
from rig.gpu_day import main
from rig.gpu_file import FORMAT, Head, Line, append, read
from rig.gpu_plan import Step
from service.engine.errors import InvalidInput
from service.engine.measured.classify import Failure
from tests.rig.gpu_machine import CPU_ONLY, ToldCards, install_engines, settle
from tests.waiting import wait_for

HEAD = Head(format=FORMAT, agent="test", hardware=CPU_ONLY, started_at="2026-11-24T00:00:00Z")
STEP = Step(id="types", about="types", kind="speed", engine="llama.cpp")


def day(tmp_path: Path, *words: str, minutes: str = "9") -> int:
    return main(["--out", str(tmp_path / "day"), "--minutes", minutes, "--engine-dir", str(tmp_path / "bin"), *words])


def lines(tmp_path: Path) -> list[Line]:
    return read(tmp_path / "day" / "gpu-day.jsonl").lines


def runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_day_without_a_card_measures_everything_of_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch)
    install_engines(tmp_path / "bin")
    assert day(tmp_path, "--only", "llama.cpp") == 0
    found = lines(tmp_path)
    assert [line.step.id for line in found if not line.done] == []
    memory = [line.memory for line in found if line.memory]
    assert memory
    assert all(seen.idle[0].device == "CPU" and seen.idle[0].taken > 0 for seen in memory)
    results = read(tmp_path / "day" / "gpu-day.jsonl").results().results
    assert {one.document.flags.n_gpu_layers for one in results} == {0}
    assert all(one.report.rows for one in results)
    assert not (tmp_path / "day" / "models").exists()


@pytest.mark.full
def test_what_a_card_takes_is_what_it_had_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch, ToldCards(2))
    for part in ("_types_on_card", "_batches_on_card", "_caches_on_card", "_experts_on_card"):
        monkeypatch.setattr(f"rig.gpu_plan.{part}", lambda machine: iter(()))
    install_engines(tmp_path / "bin")
    assert day(tmp_path, "--only", "llama.cpp") == 0
    found = lines(tmp_path)
    seen = next(line.memory for line in found if line.step.id == "memory llama.cpp q4_0 2 cards ub512")
    assert seen is not None
    assert [(one.device, one.taken) for one in seen.idle[:2]] == [("CUDA0", 100), ("CUDA1", 100)]
    assert [one.taken for one in seen.after[:2]] == [200, 200]
    assert {one.device: one.weights_mib for one in seen.buffers}["CUDA0"] == 126.69
    split = next(line.result for line in found if line.step.id == "splits llama.cpp q4_0 2 cards ub512 -sm tensor")
    assert split is not None
    assert (split.document.gpus, split.document.flags.split_mode) == ((0, 1), "tensor")


@pytest.mark.full
def test_what_was_seen_before_a_prompt_failed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch, ToldCards(1))
    server = install_engines(tmp_path / "bin") / "llama-server"
    server.write_text(server.read_text().replace("self.rfile.read(", "sys.exit('the kernel is missing') or (").strip())
    monkeypatch.setattr("rig.gpu_plan._experts_in_ram", lambda machine: iter(()))
    assert day(tmp_path, "--only", "llama.cpp") == 0
    memory = [line for line in lines(tmp_path) if line.step.kind == "memory"]
    assert {line.done for line in memory} == {False}
    assert all(line.memory and line.memory.idle[0].taken == 100 and not line.memory.after for line in memory)


@pytest.mark.full
def test_what_an_engine_did_without_the_cards_is_no_figure_of_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(monkeypatch, ToldCards(1))
    server = install_engines(tmp_path / "bin") / "llama-server"
    server.write_text(server.read_text().replace("CUDA0", "CPU").replace("CUDA_Host", "CPU"))
    for part in ("_experts_in_ram", "_batches_on_card", "_caches_on_card", "_experts_on_card"):
        monkeypatch.setattr(f"rig.gpu_plan.{part}", lambda machine: iter(()))
    day(tmp_path, "--only", "llama.cpp")
    memory = [line for line in lines(tmp_path) if line.step.kind == "memory"]
    assert {line.failure.text.partition(":")[0] for line in memory if line.failure} == {"the engine used no card"}
    assert not any(line.memory for line in memory)


@pytest.mark.full
def test_a_second_start_goes_on_and_tries_again_last_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settle(monkeypatch)
    install_engines(tmp_path / "bin", "segfault")
    (tmp_path / "bin" / "llama-server").write_text("#!/bin/sh\necho out of luck\nexit 3\n")
    assert day(tmp_path, "--only", "llama.cpp") == 1
    failed = [line for line in lines(tmp_path) if line.step.kind != "build"]
    assert {line.done for line in failed} == {False}
    assert any("out of luck" in line.tail for line in failed)
    install_engines(tmp_path / "bin")
    (tmp_path / "day" / "gpu-day.jsonl").write_bytes(
        b"".join((tmp_path / "day" / "gpu-day.jsonl").read_bytes().splitlines(keepends=True)[:4])
    )
    capsys.readouterr()
    assert day(tmp_path, "--only", "llama.cpp") == 0
    order = [line.step.id for line in lines(tmp_path)]
    assert {line.done for line in lines(tmp_path)} == {True}
    told = capsys.readouterr().out
    assert told.index("types llama.cpp q4_0") < told.index("memory llama.cpp q4_0 CPU ub512:")
    assert len(order) == len(set(order))
    assert day(tmp_path, "--only", "llama.cpp") == 0
    assert [line.step.id for line in lines(tmp_path)] == order


@pytest.mark.full
def test_an_engine_that_is_not_there_costs_its_own_steps_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settle(monkeypatch)
    install_engines(tmp_path / "bin")
    (tmp_path / "bin" / "llama-sweep-bench").unlink()
    assert day(tmp_path) == 0
    by_engine = {(line.step.engine, line.done) for line in lines(tmp_path)}
    assert by_engine == {("llama.cpp", True), ("ik_llama.cpp", False)}
    told = capsys.readouterr().out
    assert "steps were left out: their engine is not there" in told
    assert "complete" not in told
    (missing,) = [line for line in lines(tmp_path) if line.step.engine == "ik_llama.cpp"]
    assert missing.failure is not None
    assert (missing.step.kind, missing.failure.kind) == ("build", "engine_missing")


def test_no_step_begins_that_the_time_is_too_short_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settle(monkeypatch)
    install_engines(tmp_path / "bin")
    assert day(tmp_path, minutes="0.02") == 1
    assert lines(tmp_path) == []
    assert "steps are left, and the same command goes on with them" in capsys.readouterr().out


def test_a_build_that_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "build.sh"
    script.write_text("echo compiling >&2\nsleep 987 & echo $! > new\nmv new pid\nwait\n")
    monkeypatch.setattr("rig.gpu_build._SCRIPT", script)
    monkeypatch.chdir(tmp_path)
    told: list[str] = []

    def stop() -> str | None:
        return "the time is over" if (tmp_path / "pid").exists() else None

    assert build("llama.cpp", tmp_path / "log", stop, told.append, cuda=False, jobs=1) is None
    assert told == ["the build was ended: the time is over"]
    compiler = int((tmp_path / "pid").read_text())
    wait_for(lambda: not runs(compiler), "what the build started goes on")


def test_a_build_that_failed_says_so_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch)
    (tmp_path / "build.sh").write_text("echo no compiler in /home/somebody/bin >&2\nexit 1\n")
    monkeypatch.setattr("rig.gpu_build._SCRIPT", tmp_path / "build.sh")
    assert main(["--out", str(tmp_path / "day"), "--minutes", "60", "--only", "llama.cpp"]) == 1
    (line,) = lines(tmp_path)
    assert line.failure is not None
    assert line.failure.kind == "engine_missing"
    assert "no compiler" in line.tail
    assert "somebody" not in line.tail


def test_a_plan_is_shown_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settle(monkeypatch, ToldCards(2))
    assert day(tmp_path, "--dry-run", minutes="10") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].endswith("build llama.cpp")
    assert "--- 10 minutes are over; the rest is for a second start ---" in shown
    assert not (tmp_path / "day").exists()


def test_a_line_that_was_cut_off_is_left_out_and_written_over(tmp_path: Path) -> None:
    file = tmp_path / "gpu-day.jsonl"
    append(file, HEAD)
    append(file, Line(step=STEP, seconds=1, at="2026-11-24T00:00:01Z"))
    with file.open("ab") as torn:
        torn.write(b'{"step": {"id": "ty')
    assert [line.step.id for line in read(file).lines] == ["types"]
    failure = Failure(kind="crashed", transient=False, text="it broke")
    append(file, Line(step=STEP, seconds=1, at="2026-11-24T00:00:02Z", failure=failure))
    (last,) = read(file).lines
    assert last.failure == failure
    assert all(json.loads(line) for line in file.read_text().splitlines())


def test_a_day_goes_on_with_the_cards_of_its_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "day").mkdir()
    append(tmp_path / "day" / "gpu-day.jsonl", HEAD)
    settle(monkeypatch, ToldCards(1))
    with pytest.raises(SystemExit, match="is of other cards than are used now"):
        day(tmp_path)


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(msgspec.json.encode({"format": "something-else"}) + b"\n")
    with pytest.raises(InvalidInput, match="is no file of a GPU day"):
        read(tmp_path / "a")
