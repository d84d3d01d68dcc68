"""`advisor advise` with a command in use, as it is run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from service.cli import main
from tests.models import write_gguf
from tests.projectors import gemma3_file

RIG = "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"


def test_the_command_in_use_is_compared(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--command", f"llama-server -m {model} -c 4096 -ngl 0"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
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


@pytest.mark.parametrize(("n", "said"), [("0", "at least 1"), ("1000000000", "at most 16777216")])
def test_a_number_that_cannot_be_is_said_in_words(
    model: str, capsys: pytest.CaptureFixture[str], n: str, said: str
) -> None:
    assert main(["advise", model, "-H", RIG, "--context", n]) == 2
    assert capsys.readouterr().err == f"advisor: --context: this must be {said}\n"


@pytest.mark.parametrize(("n", "said"), [("-1", "at least 0"), ("inf", "at most 1000000")])
def test_a_bound_is_said_without_decimals_that_it_does_not_have(
    model: str, capsys: pytest.CaptureFixture[str], n: str, said: str
) -> None:
    assert main(["advise", model, "-H", RIG, "--min-tg", n]) == 2
    assert capsys.readouterr().err == f"advisor: --min-tg: this must be {said}\n"


def test_an_empty_command_is_not_advice_without_one(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--command", ""]) == 2
    assert "--command: this must not be empty" in capsys.readouterr().err


def test_other_hardware_is_asked_about(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--what-if", "no GPU", "--what-if", "+1 RTX 3090"]) == 0
    shown = capsys.readouterr().out
    assert "what if: no GPU: Q8_0: TG " in shown
    assert "what if: +1 RTX 3090: " in shown


def test_a_question_that_is_not_understood_says_what_would_be(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--what-if", "more power"]) == 2
    said = capsys.readouterr().err
    assert "--what-if: `more power` was not understood as a change" in said
    assert "+1 RTX 3090" in said


def test_flags_are_kept(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--keep", "-ub 256", "--keep", "-c 2048", "--json"]) == 0
    configs = json.loads(capsys.readouterr().out)["configs"]
    assert {(c["flags"]["n_ubatch"], c["flags"]["n_ctx"]) for c in configs} == {(256, 2048)}


def test_a_flag_that_no_engine_has_is_said_so(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--keep=--banana"]) == 2
    assert "--keep: llama.cpp has no `--banana`" in capsys.readouterr().err


def test_a_build_is_that_of_one_engine(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--engine", "ik_llama.cpp", "--build", "2025-06-01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["configs"][0]["build"] == "of 2025-06-01"
    assert main(["advise", model, "-H", RIG, "--build", "2025-06-01"]) == 2
    assert "--engine" in capsys.readouterr().err


def test_a_file_for_another_program_is_printed_and_checked_as_it_stands(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_gguf(tmp_path / "Qwen3-0.6B-Q4_K_M.gguf", "Qwen3-0.6B", "q4_K_M")[0]
    assert main(["advise", model, str(other), "-H", RIG, "--engine", "llama.cpp", "--as", "llama-swap"]) == 0
    file = tmp_path / "llama-swap.yaml"
    file.write_text(capsys.readouterr().out)
    assert "set1: " in file.read_text()
    assert main(["check", f"@{file}", "-H", RIG]) == 0
    shown = capsys.readouterr().out
    assert "Qwen3-0.6B-Q8_0:\n" in shown
    assert "Qwen3-0.6B-Q4_K_M:\n" in shown


def test_a_format_that_cannot_hold_it_says_why(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", model, "-H", RIG, "--engine", "ik_llama.cpp", "--as", "preset"]) == 2
    assert "has no router" in capsys.readouterr().err


@pytest.mark.full
def test_several_are_planned_to_fit_at_once(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_gguf(tmp_path / "Qwen3-0.6B-Q4_K_M.gguf", "Qwen3-0.6B", "q4_K_M")[0]
    asked = ["advise", model, str(other), "-H", "GTX 1650, i5-12400, 16GB DDR4-3200", "--engine", "llama.cpp"]
    assert main([*asked, "--context", "32768"]) == 0
    apart = capsys.readouterr().out
    assert "do not: GPU 0 lacks" in " ".join(apart.split())
    assert main([*asked, "--context", "32768", "--together"]) == 0
    said = capsys.readouterr().out
    assert "All of them fit side by side." in said
    assert max(len(line) for line in (*said.splitlines(), *apart.splitlines()) if str(tmp_path) not in line) <= 100
    assert said.count("--port") == 1  # the first has the usual one
    assert main([*asked, "--together", "--what-if", "best"]) == 2
    assert "--what-if" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--min-bpw", "20"], "--min-bpw: no variant is"),
        (["--context", "512"], "--context: depth, prompt and output are"),
    ],
)
def test_what_is_wrong_is_named_by_its_option(
    model: str, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["advise", model, "-H", RIG, *words]) == 2
    assert said in capsys.readouterr().err


def test_files_on_this_disk_are_advised_with_the_projector_next_to_them(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", model, "-H", RIG, "--images"]) == 2
    assert capsys.readouterr().err == "advisor: --images: the repo has no projector (mmproj) for images or sound\n"
    projector = write_projector(Path(model).with_name("mmproj-F16.gguf"), n_text=1024)
    assert main(["advise", str(Path(model).parent), "-H", RIG, "--images", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["configs"][0]
    assert f"--mmproj {projector}" in first["commands"]["server"]
    assert first["devices"][0]["companions_mib"] > 814


def test_only_a_projector_that_is_for_the_model_is_taken(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(model).parent
    write_projector(folder / "mmproj-F16.gguf")
    assert main(["advise", str(folder), "-H", RIG, "--images"]) == 2
    assert "--images: the repo's projectors are for models with embeddings of another size" in capsys.readouterr().err
    (folder / "vision").mkdir()
    projector = write_projector(folder / "vision" / "mmproj-of-small-F16.gguf", n_text=1024)
    assert main(["advise", str(folder), "-H", RIG, "--images", "--json"]) == 0
    assert f"--mmproj {projector}" in json.loads(capsys.readouterr().out)["configs"][0]["commands"]["server"]


def test_a_container_sees_the_projector_in_the_folder_above_the_model(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(model).parent
    write_projector(folder / "mmproj-F16.gguf", n_text=1024)
    (folder / "Q4").mkdir()
    Path(model).rename(folder / "Q4" / Path(model).name)
    assert main(["advise", str(folder), "-H", RIG, "--images", "--json"]) == 0
    docker = json.loads(capsys.readouterr().out)["configs"][0]["commands"]["docker"]
    assert f"-v {folder}:{folder}:ro" in docker


def write_projector(path: Path, n_text: int = 3840) -> Path:
    head, n_data = gemma3_file(n_text)
    path.write_bytes(head)
    os.truncate(path, len(head) + n_data)
    return path
