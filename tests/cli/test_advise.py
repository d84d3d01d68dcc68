"""`advisor advise` with a command in use, as it is run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.cli import main
from tests.models import write_gguf

RIG = "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path / "state"))
    (path,) = write_gguf(tmp_path / "Qwen3-0.6B-Q8_0.gguf", "Qwen3-0.6B", "q8_0")
    return str(path)


def test_the_command_in_use_is_compared(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--command", f"llama-server -m {model} -c 4096 -ngl 0"]) == 0
    shown = capsys.readouterr().out
    assert "Against your command: TG +" in shown
    assert "yours: Q8_0 llama.cpp" in shown


def test_a_command_can_be_read_from_a_file(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.sh"
    file.write_text(f"llama-server \\\n  -m {model} \\\n  -c 4096 -ngl 0\n")
    assert main(["advise", model, "-H", RIG, "--command", f"@{file}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mine"]["rank"] > 1


def test_what_is_no_command_is_said_so(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--command", "please"]) == 2
    assert "advisor: --command: " in capsys.readouterr().err


def test_other_hardware_is_asked_about(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--what-if", "no GPU", "--what-if", "+1 RTX 3090"]) == 0
    shown = capsys.readouterr().out
    assert "what if: no GPU: TG " in shown
    assert "what if: +1 RTX 3090: " in shown


def test_a_question_that_is_not_understood_says_what_would_be(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--what-if", "more power"]) == 2
    said = capsys.readouterr().err
    assert "--what-if: `more power` is no change that is understood" in said
    assert "+1 RTX 3090" in said


def test_flags_are_kept(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--keep", "-ub 256", "--keep", "-c 2048", "--json"]) == 0
    configs = json.loads(capsys.readouterr().out)["configs"]
    assert {(c["flags"]["n_ubatch"], c["flags"]["n_ctx"]) for c in configs} == {(256, 2048)}


def test_a_flag_that_no_engine_has_is_said_so(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--keep=--banana"]) == 2
    assert "constraints.keep_flags: llama.cpp has no `--banana`" in capsys.readouterr().err


def test_a_build_is_that_of_one_engine(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--engine", "ik_llama.cpp", "--build", "2025-06-01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["configs"][0]["build"] == "of 2025-06-01"
    assert main(["advise", model, "-H", RIG, "--build", "2025-06-01"]) == 2
    assert "--engine" in capsys.readouterr().err
