"""`advisor validate --here`: configs measured on this machine by programs that behave as recorded engines do."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from service.cli import main
from service.cli.local_files import model_path
from service.cli.local_validation import _Doing
from service.cli.replanning import first_plan
from service.engine.hardware import Cpu, Hardware, Ram
from service.engine.measured.chosen import chosen
from service.engine.measured.rows import MeasuredRow
from service.settings import Settings
from service.wire.advice.advice import Advice
from service.wire.advice.repo import FileView, RepoView, VariantView
from service.wire.results.submissions import Preview, SavedResults, Submission, Submitted
from tests.cli.fake_service import FakeService
from tests.cli.test_submit import Terminal
from tests.engine_replay import install
from tests.tiny_model import write_tiny_model
from tests.wire.test_validation_text import DONE
from tests.workers.agent.scripted_gpus import ScriptedGpus
from workers.agent.models import content_sha256

DOCS = Path(__file__).parents[2] / "docs" / "validation.md"
CPU_ONLY = "no GPU, Ryzen 9 7950X, 64GB DDR5-5600"
NO_GPU = Hardware(gpus=[], cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=64), os="linux")
GOAL = ("--context", "8192", "--depth", "2048", "--prompt", "512", "--output", "64")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("workers.agent.probe.find_hardware", lambda nvidia: NO_GPU)
    monkeypatch.setattr("service.cli.local_validation.open_gpus", lambda: ScriptedGpus(count=0))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    write_tiny_model(tmp_path / "models" / "tiny.gguf")
    for program in ("llama-sweep-bench", "llama-bench"):
        install(tmp_path / "bin", program, "ok", pp_tps=5000.0, tg_tps=900.0)
    return tmp_path


def advised(folder: Path, capsys: pytest.CaptureFixture[str], hardware: str, *words: str) -> Path:
    asked = ["advise", str(folder / "models" / "tiny.gguf"), "-H", hardware, *GOAL, *words, "--json"]
    assert main(asked) == 0
    file = folder / "advice.json"
    file.write_text(capsys.readouterr().out)
    return file


def test_both_engines_are_measured_shown_and_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advice = advised(folder, capsys, CPU_ONLY, "--kv-type", "f16")
    kept = folder / "kept.json"
    words = ["--here", "--engine-dir", str(folder / "bin"), "--minutes", "1", "--result", str(kept)]
    assert main(["validate", f"@{advice}", *words]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Measured fastest: tiny with ")
    assert "ik_llama.cpp: succeeded on this machine" in shown.out
    assert "llama.cpp: succeeded on this machine" in shown.out
    assert "self-reported" in shown.out
    assert "tiny ik_llama.cpp at 2,048 tokens: TG 8" in shown.err
    assert shown.err.count("to know it by its content") == 1
    results = msgspec.json.decode(kept.read_bytes(), type=SavedResults)
    assert {one.document.engine for one in results.results} == {"ik_llama.cpp", "llama.cpp"}
    assert all(one.report.rows and one.report.files_confirmed for one in results.results)
    assert str(folder) not in kept.read_text()


def serve_advice(service: FakeService, advice_file: Path, model: Path) -> None:
    """Have the service give this advice as `a1`, of a repo that states the model's size and hash."""
    found = json.loads(advice_file.read_text())
    advice = msgspec.convert({**found, "id": "a1", "repo": "someone/tiny-GGUF", "revision": "a" * 40}, Advice)
    file = FileView(path="tiny.gguf", n_bytes=model.stat().st_size, sha256=content_sha256(model))
    variant = VariantView(name="tiny", files=[file], n_bytes=file.n_bytes)
    repo = RepoView(repo=advice.repo, revision=advice.revision, variants=[variant], other_files={})
    service.answers["GET /v1/advice/a1"] = [(200, advice)]
    service.answers[f"GET /v1/repos/{advice.repo}?revision={'a' * 40}"] = [(200, repo)]


def test_a_service_s_advice_is_measured_without_an_account(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advice, models = advised(folder, capsys, CPU_ONLY, "--engine", "llama.cpp"), folder / "models"
    words = ["--here", "--engine-dir", str(folder / "bin"), "--models", str(models), "--minutes", "1", "--json"]
    with FakeService() as service:
        serve_advice(service, advice, models / "tiny.gguf")
        assert main(["validate", f"{service.url}/v1/advice/a1", "--config", "1", *words]) == 0
        assert all(one.method == "GET" for one in service.asked)
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["state"], run["outcome"]["tier"]) == ("succeeded", "self-reported")
    assert len(list(folder.glob("advisor-result-*.json"))) == 1


@pytest.mark.full
@pytest.mark.parametrize(("typed", "sent"), [("y\n", 1), ("n\n", 0)])
def test_what_was_measured_is_sent_to_the_advice_s_service_after_a_yes_only(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, typed: str, sent: int
) -> None:
    advice = advised(folder, capsys, CPU_ONLY, "--kv-type", "f16")
    with FakeService() as service:
        serve_advice(service, advice, folder / "models" / "tiny.gguf")
        service.answers["POST /v1/results/preview"] = [(200, Preview(complete=True, missing=[]))]
        kept = Submitted(id="r1", state="shown", state_reason=None, tier="self-reported", is_new=True)
        service.answers["POST /v1/results"] = [(201, kept)]
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        words = ["--here", "--engine-dir", str(folder / "bin"), "--models", str(folder / "models"), "--config", "1"]
        assert main(["validate", f"{service.url}/v1/advice/a1", *words]) == 0
        posted = [msgspec.json.decode(one.body, type=Submission) for one in service.asked if one.path == "/v1/results"]
    assert len(posted) == sent
    assert all(one.repo == "someone/tiny-GGUF:tiny" and one.rows for one in posted)


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_what_was_measured_before_a_signal_is_kept_and_shown_as_ended_early(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, asked: signal.Signals
) -> None:
    for program in ("llama-sweep-bench", "llama-bench"):
        install(folder / "bin", program, "ok", delay=0.5, pp_tps=5000.0, tg_tps=900.0)
    advice, kept = advised(folder, capsys, CPU_ONLY, "--kv-type", "f16"), folder / "kept.json"
    show = _Doing.row

    def row(doing: _Doing, measured: MeasuredRow) -> None:
        show(doing, measured)
        monkeypatch.setattr(_Doing, "row", show)
        os.kill(os.getpid(), asked)

    monkeypatch.setattr(_Doing, "row", row)
    words = ["--here", "--engine-dir", str(folder / "bin"), "--minutes", "1", "--result", str(kept)]
    before = signal.getsignal(asked)
    assert main(["validate", f"@{advice}", *words]) == 1
    assert signal.getsignal(asked) is before
    (one,) = msgspec.json.decode(kept.read_bytes(), type=SavedResults).results
    assert one.report.rows
    assert one.report.failure
    assert one.report.failure.text == f"ended early by {asked.name}"
    assert f"ended early by {asked.name}: 1 of 2 were not measured" in capsys.readouterr().out


def test_the_printed_commands_say_how_to_send_what_they_print(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advice = advised(folder, capsys, CPU_ONLY, "--engine", "llama.cpp", "--kv-type", "f16")
    with FakeService() as service:
        serve_advice(service, advice, folder / "models" / "tiny.gguf")
        assert main(["validate", f"{service.url}/v1/advice/a1", "--print"]) == 0
    words = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert words[:5] == ["advisor", "submit", "bench-1.log", "--service", service.url]
    assert words[words.index("--model") + 1] == "someone/tiny-GGUF:tiny"
    assert words[words.index("--command") + 1].startswith("llama-bench ")


def documented() -> list[str]:
    return re.findall(r"^advisor validate .*$", DOCS.read_text(), re.MULTILINE)


def test_the_docs_show_every_way() -> None:
    ways = ("--config", "--follow", "--here", "--print", "@advice.json", "--models")
    assert all(any(way in line for line in documented()) for way in ways)


@pytest.mark.parametrize("line", documented())
def test_every_command_of_the_docs_runs(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADVISOR_TOKEN", "adv_" + "x" * 40)
    advice = advised(folder, capsys, CPU_ONLY, "--engine", "llama.cpp")
    with FakeService() as service:
        serve_advice(service, advice, folder / "models" / "tiny.gguf")
        service.answers["POST /v1/advice/a1/validations"] = [(201, DONE)]
        service.answers["GET /v1/validations/v1"] = [(200, DONE)]
        here = line.replace("https://advisor.example", service.url).replace(
            "~/llama.cpp/build/bin", str(folder / "bin")
        )
        here = here.replace("/advice/ID", "/advice/a1").replace("/validations/ID", "/validations/v1")
        here = here.replace("~/models", str(folder / "models")).replace("@advice.json", f"@{advice}")
        assert main(shlex.split(here)[1:]) == 0
    assert capsys.readouterr().out


def test_what_this_machine_lacks_is_said_before_a_model_is_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    advice = advised(folder, capsys, "RTX 3090, Ryzen 9 7950X, 64GB DDR5-5600")
    assert main(["validate", f"@{advice}", "--here", "--engine-dir", str(folder / "bin")]) == 1
    shown = capsys.readouterr()
    assert "it needs NVIDIA GeForce RTX 3090, and this machine has" in " ".join(shown.out.split())
    assert "to know it by its content" not in shown.err
    assert list(folder.glob("advisor-result-*.json")) == []


def test_an_engine_that_is_not_there_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advice = advised(folder, capsys, CPU_ONLY, "--engine", "llama.cpp")
    assert main(["validate", f"@{advice}", "--here", "--engine-dir", str(folder / "nothing")]) == 1
    assert "there is no llama-bench of llama.cpp here: name its folder with --engine-dir" in capsys.readouterr().out


def test_a_file_that_is_no_advice_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"id": 3}')
    assert main(["validate", f"@{file}", "--here"]) == 2
    assert "is not the output of `advisor advise --json`" in capsys.readouterr().err


def test_the_printed_commands_measure_and_come_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advice = advised(folder, capsys, CPU_ONLY, "--engine", "llama.cpp")
    assert main(["validate", f"@{advice}", "--print"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    script = f"PATH={shlex.quote(str(folder / 'bin'))}:$PATH; set -e; {lines[0]}"
    subprocess.run(["bash", "-c", script], cwd=folder, check=True, capture_output=True, timeout=60)
    assert main(shlex.split(lines[1])[1:]) in (0, 1)
    assert "t/s measured" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--baseline",), ("--config", "9"), ("--host", "h1"), ("--mode", "tune")])
def test_what_cannot_be_asked_for_here_is_said(
    words: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    advice = advised(folder, capsys, CPU_ONLY)
    assert main(["validate", f"@{advice}", "--here", *words]) == 2
    assert f"advisor: {words[0]}" in capsys.readouterr().err


def test_the_model_of_a_command_bound_to_a_socket_is_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`numactl -N 0 -m 0 llama-bench -m tiny.gguf`: the first -m names the memory, not the model."""
    advice = msgspec.json.decode(
        advised(folder, capsys, "no GPU, 2x EPYC 7742, 512GB DDR4-3200 x16").read_bytes(), type=Advice
    )
    assert all(config.commands.bench.startswith("numactl -N 0 -m 0 ") for config in advice.configs)
    assert advice.goal is not None
    measured = chosen(advice.configs, advice.goal, None, None).measurements
    assert {model_path(advice, one).name for one in measured} == {"tiny.gguf"}
    asked = argparse.Namespace(what="@advice.json", models=folder, context=None, port=None)
    plan = first_plan(Settings(), asked, "", "llama.cpp", (folder / "advice.json").read_bytes())
    assert f"{folder}/tiny.gguf" in plan._replace(model=None).launch(Path("llama-server")).arguments
