"""The replayed engines do what the real ones did, and misbehave as asked."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from service.engine.measured.reader import Reader
from service.engine.measured.rows import MeasuredRow
from tests.engine_replay import ENGINES, failure, install, recorded
from tests.waiting import PATIENCE


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def run(program: Path, *words: object, seconds: float = 30) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([str(program), *map(str, words)], capture_output=True, timeout=seconds, check=False)


def rows(output: bytes) -> list[MeasuredRow]:
    return Reader().feed(output)


def test_a_recorded_sweep_is_printed_on_standard_error_as_it_was(tmp_path: Path) -> None:
    done = run(install(tmp_path, "llama-sweep-bench", "recorded"), "-m", "x")
    assert (done.stdout, done.stderr.decode(), done.returncode) == (b"", recorded("ik-sweep-table.stderr"), 0)


def test_a_recorded_bench_is_printed_on_standard_output_as_it_was(tmp_path: Path) -> None:
    done = run(install(tmp_path, "llama-bench", "recorded"), "-m", "x", "-o", "json")
    assert (done.stdout.decode(), done.returncode) == (recorded("main-bench-json.stdout"), 0)


@pytest.mark.parametrize("form", ["table", "jsonl"])
def test_a_sweep_has_the_rows_that_its_arguments_ask_for(tmp_path: Path, model: Path, form: str) -> None:
    program = install(tmp_path, "llama-sweep-bench", "ok", pp_tps=500, tg_tps=10, half_depth=1024)
    words = ("-m", model, "-c", 2048, "-ub", 512, "-n", 32, "--sweep-stride", 2, "--output-format", form, "-ngl", 99)
    first, second = rows(run(program, *words).stderr)
    assert (first.n_kv, first.n_prompt, first.n_gen, second.n_kv) == (0, 512, 32, 1024)
    assert first.tg_tps[0] == pytest.approx(10, rel=0.001)
    assert second.pp_tps[0] == pytest.approx(250, rel=0.001)


@pytest.mark.parametrize("form", ["json", "jsonl", "md"])
def test_a_bench_has_each_phase_at_each_depth(tmp_path: Path, model: Path, form: str) -> None:
    program = install(tmp_path, "llama-bench", "ok", pp_tps=500, tg_tps=10, half_depth=1024)
    found = rows(run(program, "-m", model, "-p", 512, "-n", 32, "-d", "0,1024", "-r", 3, "-o", form).stdout)
    assert [(row.n_kv, row.n_prompt, row.n_gen) for row in found] == [
        (0, 512, 0), (0, 0, 32), (1024, 512, 0), (1024, 0, 32),
    ]  # fmt: skip
    assert len(found[0].pp_seconds) == (1 if form == "md" else 3)
    assert found[3].tg_tps[0] == pytest.approx(5, rel=0.01)


@pytest.mark.parametrize(
    ("program", "flag", "words"),
    [
        ("llama-sweep-bench", "-fmoe", b"error: unknown argument: -fmoe"),
        ("llama-bench", "--no-such-flag", b"error: invalid parameter for argument: --no-such-flag"),
    ],
)
def test_unknown_flags_are_refused_in_the_words_of_each_engine(
    tmp_path: Path, model: Path, program: str, flag: str, words: bytes
) -> None:
    done = run(install(tmp_path, program, "ok"), "-m", model, flag)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == words


@pytest.mark.parametrize("program", ["llama-sweep-bench", "llama-bench"])
def test_a_missing_model_fails_as_recorded(tmp_path: Path, program: str) -> None:
    done = run(install(tmp_path, program, "ok"), "-m", "no-such-file.gguf")
    assert done.returncode == 1
    assert b"no-such-file.gguf" in done.stderr


def test_version_help_and_devices_are_told_without_a_model(tmp_path: Path) -> None:
    sweep, bench = install(tmp_path, "llama-sweep-bench", "hang"), install(tmp_path, "llama-bench", "hang")
    assert b"(8337e4cd3)" in run(sweep, "--version").stderr
    assert b"--sweep-stride" in run(sweep, "--help").stdout
    assert b"commit 0c1e57098" in run(bench, "--version").stderr
    assert run(bench, "--list-devices").stdout == b"Available devices:\n  (none)\n"


@pytest.mark.parametrize("case", ["nan", "million_tps", "flood", "flood_without_newline"])
@pytest.mark.parametrize("program", ["llama-sweep-bench", "llama-bench"])
def test_what_nobody_measured_makes_no_row(tmp_path: Path, model: Path, program: str, case: str) -> None:
    words = ("-m", model, *(("-c", 1024) if program == "llama-sweep-bench" else ("-o", "json")))
    done = run(install(tmp_path, program, case, bytes=3_000_000), *words)
    assert len(done.stderr + done.stdout) > 1000
    assert rows(done.stderr) == rows(done.stdout) == []


@pytest.mark.parametrize(
    ("case", "number"),
    [("segfault", signal.SIGSEGV), ("illegal_instruction", signal.SIGILL), ("killed", signal.SIGKILL),
     ("partial_then_crash", signal.SIGABRT)],
)  # fmt: skip
def test_a_crash_ends_by_its_signal(tmp_path: Path, model: Path, case: str, number: int) -> None:
    done = run(install(tmp_path, "llama-sweep-bench", case), "-m", model)
    assert done.returncode == -number
    assert len(rows(done.stderr)) == (2 if case == "partial_then_crash" else 0)


@pytest.mark.parametrize("name", ["ik-cuda-kv", "ik-assert", "ik-unknown-type", "llama-cuda-compute", "llama-cut-data"])
def test_a_recorded_failure_ends_as_it_did(tmp_path: Path, model: Path, name: str) -> None:
    one = failure(name)
    program = next(program for program, engine in ENGINES.items() if engine == one["engine"])
    done = run(install(tmp_path, program, name), "-m", model)
    assert (done.stderr.decode(), done.stdout.decode()) == (one["stderr"], one["stdout"])
    assert done.returncode == (-one["signal"] or one["exit_status"])


def test_a_hang_is_silent_and_deaf_to_sigterm(tmp_path: Path) -> None:
    program = install(tmp_path, "llama-bench", "hang")
    with subprocess.Popen([str(program)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            wait_until_it_ignores(process.pid, signal.SIGTERM)
            process.terminate()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
        finally:
            process.kill()
        assert process.stdout is not None
        assert process.stdout.read() == b""


def wait_until_it_ignores(pid: int, number: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        fields = dict(
            line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
        )
        if int(fields.get("SigIgn", "0"), 16) >> (number - 1) & 1:
            return
        time.sleep(0.01)
    raise AssertionError("it never ignored the signal")


def test_children_stay_behind_and_are_named(tmp_path: Path, model: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stream:
        program = install(tmp_path, "llama-sweep-bench", "forks_children")
        subprocess.run([str(program), "-m", str(model), "-c", "512"], stderr=stream, check=True, timeout=100)
    children = [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("child ")]
    assert len(children) == 2
    for child in children:
        assert Path(f"/proc/{child}/cmdline").read_bytes().count(b"llama-sweep-bench") == 1
        os.kill(child, signal.SIGKILL)
