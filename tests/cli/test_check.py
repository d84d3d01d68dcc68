"""`advisor check`, as it is run: one command, and a batch of them."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from service.cli import main
from service.cli.output import MORE
from service.engine.advise import VariantModel
from service.engine.catalogue import resolve
from service.engine.hardware_text import parse_hardware
from service.engine.planner.explaining.commands import Files
from service.flows.advice import check_direct
from service.flows.advice.checked import checked
from service.flows.advice.reading import read_models
from service.wire.advice.check import BatchCase
from service.wire.advice.check_text import check_lines
from service.wire.plain_text import as_text
from tests.local_hub import Blob, LocalHub, Repo
from tests.models import build, gguf_files
from tests.projectors import gemma3_file

LOGS = Path(__file__).parents[1] / "data" / "engine_logs"
HELP = Path(__file__).parents[1] / "data" / "help" / "llama.cpp-0c1e57098-llama-fit-params.txt"
DOCS = Path(__file__).parents[2] / "docs" / "check.md"
RIG = "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"


def test_a_good_command_fits_and_ends_with_0(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"llama-server -m {model} -c 4096 -fa on -fit off", "--model", model, "-H", RIG]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Fits: TG about ")
    assert "CUDA0" in shown


# As posted in llama-swap issue 101, which starts other programs too.
def test_the_models_of_a_file_are_checked_beside_what_is_no_model(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "swap.yaml"
    cmd = f"llama-server -m {model} -c 4096 -fa on -fit off"
    file.write_text(f"models:\n  a:\n    cmd: {cmd}\n  forge:\n    cmd: /forge/webui.sh\n")
    assert main(["check", f"@{file}", "--model", model, "-H", RIG]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("a:\nFits: TG about ")
    assert "forge: not checked: the command has no program and no option of llama.cpp" in shown


# After llama-swap issue 809: whisper.cpp's server, and a model that is nowhere here.
def test_one_entry_that_cannot_be_checked_leaves_the_others(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "swap.yaml"
    file.write_text(
        "models:\n  Whisper-Large-V3-Turbo:\n    cmd: |\n      whisper-server\n        --port ${PORT}\n"
        "        --model /models/ggml-large-v3-turbo-q8_0.bin\n  far:\n    cmd: llama-server -m /not/here.gguf\n"
        f"  near:\n    cmd: llama-server --port ${{PORT}} -m {model} -c 4096 -fa on -fit off\n"
    )
    assert main(["check", f"@{file}", "-H", RIG]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("near:\nFits: TG about ")
    assert "Whisper-Large-V3-Turbo: not checked: this is a command of whisper.cpp" in shown
    assert "far: not checked: there is no file /not/here.gguf" in shown
    main(["check", f"@{file}", "-H", RIG, "--json"])
    answers = json.loads(capsys.readouterr().out)
    assert (answers["near"]["fits"], answers["far"]["error"]["type"]) == (True, "invalid-request")


def test_a_file_of_several_models_comes_back_corrected(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "swap.yaml"
    cmd = f"llama-server --port ${{PORT}} -m {model} -c 4096 -fit off"
    file.write_text(f"models:\n  a:\n    cmd: {cmd} -fa\n    ttl: 60\n  b:\n    cmd: {cmd} -fa on\n")
    assert main(["check", f"@{file}", "-H", RIG]) == 1
    shown = capsys.readouterr().out
    figures, _, text = shown.partition("corrected file, as a whole:\n")[2].partition("\n")
    assert figures.startswith("a: TG ")
    assert text.startswith("models:\n  a:\n    cmd: |\n      llama-server --port ${PORT}")
    assert text.endswith(f" -fa on\n    ttl: 60\n  b:\n    cmd: {cmd} -fa on\n")
    file.write_text(text)
    assert main(["check", f"@{file}", "-H", RIG]) == 0


# github.com/ggml-org/llama.cpp/issues/18035
def test_a_router_is_asked_for_its_presets(capsys: pytest.CaptureFixture[str]) -> None:
    router = "/opt/llama.cpp/bin/llama-server --models-dir /opt/llama-models --models-max 0 --parallel 2"
    assert main(["check", f"{router} --models-preset /opt/llama.cpp/etc/models.ini", "-H", RIG]) == 2
    assert "a router, which loads no model itself: check its preset file" in capsys.readouterr().err


def test_a_corrected_command_has_its_memory_and_speed(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["check", "llama-server -c 4096 -fa", "--model", model, "-H", RIG]
    main(asked)
    shown = " ".join(capsys.readouterr().out.split())
    main([*asked, "--json"])
    figures = json.loads(capsys.readouterr().out)["fixed_figures"]
    at, card = figures["speed"][0], figures["memory"]["devices"][0]
    assert f"corrected command, as a whole: TG {at['tg_tps']:,.1f} t/s ({at['tg_low']:,.1f} to " in shown
    assert f" at 0 tokens; fits: CUDA0 {card['total_mib']:,.0f} MiB ({card['free_mib']:,.0f} free), CPU " in shown


def test_the_build_is_named_in_full_behind_a_long_name() -> None:
    files = Files("somebody/A-Model-With-A-Long-Name-Instruct-2507-GGUF", "0" * 40, ())
    case = BatchCase(command="llama-server -c 4096 -fa on", engine="llama.cpp", model="x", hardware=RIG)
    found = checked(case, VariantModel("Q8_0", files, build("Qwen3-0.6B", "q8_0")), resolve(parse_hardware(RIG)))
    assert f", build {found.build} MiB weights " in " ".join(as_text(check_lines(found)).split())


def test_a_command_that_the_engine_refuses_ends_with_1(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "llama-server -c 4096 -fa", "--model", model, "-H", RIG, "--detail", "full"]) == 1
    shown = capsys.readouterr().out
    assert "fix: -fa on" in shown
    assert "source: " in shown


def test_the_file_that_the_command_opens_needs_no_model(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"llama-server -m {model} -c 4096 -fa on -fit off", "-H", RIG]) == 0
    assert capsys.readouterr().out.startswith("Fits")


def test_the_engine_s_own_figures_stand_next_to_those_worked_out(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "llama-fit-params"
    program.write_text(f"""#!/bin/sh
[ "$1" = --help ] && exec cat '{HELP}'
case "$*" in *--port*) echo unknown argument; exit 1;; esac
case "$*" in *"-ngl 99"*) ;; *) exit 1;; esac
printf 'Host 158 0 8\\nCUDA0 604 448 299\\n'
""")
    program.chmod(0o755)
    command = f"llama-server -m {model} -ngl 99 -c 4096 -fa on --host 0.0.0.0 --port 80"
    assert main(["check", command, "-H", RIG, "--engine-dir", str(tmp_path)]) == 0
    assert "CUDA0    weights 604, cache 448, compute 299  (here 604, 448, " in capsys.readouterr().out


def test_a_command_without_a_model_asks_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "llama-server -m /not/here.gguf -c 4096", "-H", RIG]) == 2
    assert "does not say which repo" in capsys.readouterr().err


def test_the_build_decides(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", f"llama-server -m {model} -c 4096 -fa -fmoe -ngl 99", "--engine", "ik_llama.cpp", "-H", RIG]
    assert main([*command, "--json"]) == 1
    today = json.loads(capsys.readouterr().out)
    assert main([*command, "--json", "--build", "2025-05-11"]) == 0
    then = json.loads(capsys.readouterr().out)
    assert then["build"] == "of 2025-05-11"
    assert {f["rule"] for f in today["findings"]} >= {"retired-flag"}
    assert "retired-flag" not in {f["rule"] for f in then["findings"]}
    assert "build" in [a["field"] for a in today["assumed"]]
    assert "build" not in [a["field"] for a in then["assumed"]]


def test_json_has_the_depths_asked_for(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "llama-server -c 4096", "--model", model, "-H", RIG, "--depths", "0,1024", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert [row["n_kv"] for row in answer["speed"]] == [0, 1024]


def test_a_log_is_compared(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(LOGS / "ik-sweep-table.stderr")
    main(["check", "llama-sweep-bench -c 2048", "--model", model, "-H", "no GPU, 16GB", "--log", log, "--json"])
    compared = json.loads(capsys.readouterr().out)["compared"]
    assert {"tg", "pp", "kv", "compute"} <= {row["what"] for row in compared}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check"], "a check needs COMMAND"),
        (["check", "llama-server", "--model", "x.gguf"], "say what it runs on"),
        (["check", "llama-server -c $(nproc)", "--model", "MODEL", "-H", RIG], "shell"),
        (["check", "llama-server", "--model", "MODEL", "-H", "RTX 9999"], "RTX 9999"),
        (["check", "llama-server", "--model", "MODEL", "-H", RIG, "--log", "no.log"], "cannot read no.log"),
        (["check", "llama-server", "--model", "MODEL", "-H", RIG, "--depths", "deep"], "whole numbers"),
        (["check", "--batch", "no.jsonl"], "cannot read no.jsonl"),
    ],
)
def test_wrong_input_ends_with_2_and_a_sentence(
    model: str, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main([model if word == "MODEL" else word for word in arguments]) == 2
    assert said in capsys.readouterr().err


def lines(*cases: Any) -> str:
    return "".join(json.dumps(case) + "\n" for case in cases)


def test_a_batch_answers_each_line_in_order_and_reads_each_header_once(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def counting(*arguments: Any) -> Any:
        reads.append(arguments[2][0].name)
        return read_models(*arguments)

    monkeypatch.setattr(check_direct, "read_models", counting)
    case = {"id": "a", "model": model, "command": "llama-sweep-bench -c 4096 -m x.gguf", "hardware": RIG,
            "engine": "ik_llama.cpp", "depths": [0, 512], "build": {"date": "2025-05-11"}}  # fmt: skip
    other = case | {"id": 2, "hardware": {"gpus": [{"name": "RTX 3090", "free_gib": 1.5}]}, "allocator": "lab"}
    broken = case | {"id": "c", "command": "llama-server -c $(nproc)"}
    path = tmp_path / "cases.jsonl"
    path.write_text(lines(case, other, broken) + "\nnot json\n" + lines({"id": "e"}, [1]))
    assert main(["check", "--batch", str(path)]) == 1
    first, second, third, fourth, fifth, sixth = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert [a["id"] for a in (first, second, third, fourth, fifth, sixth)] == ["a", 2, "c", None, "e", None]
    assert [row["n_kv"] for row in first["speed"]] == [0, 512]
    assert second["memory"]["devices"][0]["capacity_mib"] == 1536.0
    assert second["memory"]["devices"][0]["overhead_mib"] == 0
    assert third["error"]["type"] == "invalid-flags"
    assert [a["error"]["type"] for a in (fourth, fifth, sixth)] == ["invalid-request"] * 3
    assert reads == ["Q8_0"]


def test_a_batch_is_read_from_standard_input_too(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Input:
        buffer = io.BytesIO(lines({"id": 1, "model": model, "command": "llama-cli -c 512", "hardware": RIG}).encode())

    monkeypatch.setattr("sys.stdin", Input())
    assert main(["check", "--batch", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["fits"] is True


def test_one_mib_less_than_is_needed_does_not_fit(
    model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def answer(free_mib: float) -> Any:
        rig = {"gpus": [{"name": "RTX 3090", "free_gib": free_mib / 1024}]}
        case = {"id": 1, "model": model, "command": "llama-sweep-bench -c 4096", "allocator": "lab", "hardware": rig}
        (tmp_path / "one.jsonl").write_text(lines(case))
        assert main(["check", "--batch", str(tmp_path / "one.jsonl")]) == 0
        return json.loads(capsys.readouterr().out)["memory"]["devices"][0]

    needed = answer(24000)["total_mib"]
    assert not answer(needed - 1)["fits"]
    assert answer(needed + 1)["fits"]


def test_graph_splits_that_are_not_known_are_not_printed() -> None:
    variant = VariantModel("Q4_K_M", Files(None, None, ()), build("DeepSeek-V2-Lite", "q4_0"))
    command, printed = "llama-server -m a.gguf -ngl 99", {}
    for day in ("2025-01-03", "2026-01-03"):
        dated = BatchCase(command=command, engine="llama.cpp", model="x", hardware="4x 3090", build=day)
        printed[day] = as_text(check_lines(checked(dated, variant, resolve(parse_hardware("4x 3090"))), more=MORE))
    assert "\nmemory: approximate\n" in printed["2025-01-03"]
    assert re.search(r"\n[1-9]\d* graph splits; memory: source only\n", printed["2026-01-03"])


def test_an_order_of_the_cards_that_is_only_assumed_is_said_however_many_findings_cost_more() -> None:
    """It decides which card every row of the memory table is about."""
    files = Files("someone/some-GGUF", "0" * 40, ())
    command = "CUDA_DEVICE_ORDER=PCI_BUS_ID llama-server -m a.gguf -ngl 99 -ot exps=CPU -c 16384 --no-mmap -fa"
    rig = "RTX 4090 + RTX 3060 12GB, Ryzen 9 7950X, 192GB"
    case = BatchCase(command=command, engine="llama.cpp", model="x", hardware=rig)
    variant = VariantModel("Q4_K_M", files, build("Qwen3-235B-A22B", "q4_K_M"))
    found = checked(case, variant, resolve(parse_hardware(rig)))
    assert [one.rule for one in found.findings].index("device-order-unknown") > 3
    printed = as_text(check_lines(found))
    assert "[device-order-unknown]" in printed
    shown = sum(f"[{one.rule}]" in printed for one in found.findings)
    assert f"and {len(found.findings) - shown} more finding" in printed


def test_an_engine_that_was_guessed_comes_with_the_option_that_states_another() -> None:
    case = BatchCase(command="llama-server -c 4096 -fa on", model="x", hardware=RIG)
    variant = VariantModel("Q8_0", Files(None, None, ()), build("Qwen3-0.6B", "q8_0"))
    rig = resolve(parse_hardware(RIG))
    printed = " ".join(as_text(check_lines(checked(case, variant, rig))).split())
    assert "if not, write for example `engine=ik_llama.cpp`; affects everything" in printed
    shell = " ".join(as_text(check_lines(checked(case, variant, rig), more="--detail full")).split())
    assert "if not, write for example `--engine ik_llama.cpp`; affects everything" in shell


def test_measured_figures_as_expected_are_told_without_their_list() -> None:
    variant = VariantModel("Q4_K_M", Files(None, None, ()), build("Qwen3-30B-A3B", "q4_K_M"))
    rig, log = (
        resolve(parse_hardware(RIG)),
        "load_tensors: offloaded 49/49 layers to GPU\nCUDA0 model buffer size = 1.00 MiB",
    )
    case = BatchCase(command="llama-server -ngl 99 -c 8192", engine="llama.cpp", model="x", hardware=RIG, log=log)
    printed = as_text(check_lines(checked(case, variant, rig), more=MORE))
    assert f"measured as expected: 1 of 2 figures ({MORE})\n" in printed
    assert "offloaded: 49" not in printed


def test_the_example_of_the_docs_is_what_is_printed_but_for_its_figures() -> None:
    text = DOCS.read_text()
    example = text.split("<!-- output -->\n```text\n")[1].split("```\n")[0]
    command = re.search(r'^advisor check "(.+?)" --engine (\S+)', text, re.MULTILINE | re.DOTALL)
    hardware = re.search(r"--hardware '(.+?)'", text)
    assert command
    assert hardware
    case = BatchCase(command=command[1], engine="ik_llama.cpp", model="x", hardware=hardware[1])
    variant = VariantModel("Q4_K_M", Files(None, None, ()), build("Qwen3-235B-A22B", "q4_K_M"))
    printed = as_text(check_lines(checked(case, variant, resolve(parse_hardware(hardware[1]))), more=MORE))
    assert _without_figures(printed) == _without_figures(example)


def _without_figures(text: str) -> list[str]:
    return re.sub(r"[\d.,]+", "#", text).split()


@pytest.mark.parametrize("path", ["nofile.gguf", "./nowhere", "/nowhere/at/all", "~/models"])
def test_a_path_that_is_not_there_is_no_repo(model: str, capsys: pytest.CaptureFixture[str], path: str) -> None:
    assert main(["advise", path, "-H", RIG]) == 2
    assert "no such file" in capsys.readouterr().err


def test_a_draft_and_a_projector_of_the_model_are_counted(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, n_data = gemma3_file()
    with (tmp_path / "mmproj-F16.gguf").open("wb") as file:
        file.write(head)
        file.truncate(len(head) + n_data)
    command = f"llama-server -m {model} -c 4096 -fit off -md {Path(model).name} --mmproj /elsewhere/mmproj-F16.gguf"
    main(["check", command, "--model", model, "-H", RIG, "--json"])
    found = {one["kind"]: one for one in json.loads(capsys.readouterr().out)["memory"]["companions"]}
    assert found["draft"]["weights_mib"] > 100
    assert found["projector"]["compute_high_mib"] > found["projector"]["compute_low_mib"]


def test_companions_may_be_on_this_disk_or_in_a_repo_wherever_the_model_is(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    head, n_data = gemma3_file()
    projector, repo = tmp_path / "mmproj-F16.gguf", "some/Small-GGUF"
    projector.write_bytes(head)
    os.truncate(projector, len(head) + n_data)

    def companions(command: str, of: str, *more: str) -> set[str]:
        words = ["check", f"llama-server -c 4096 -fit off {command}", "--model", of, "-H", RIG, "--json", *more]
        assert main(words) < 2
        return {one["kind"] for one in json.loads(capsys.readouterr().out)["memory"]["companions"]}

    (file,) = gguf_files("Qwen3-0.6B", "q8_0")
    blob = Blob(file.head, len(file.head) + file.n_data)
    with LocalHub({repo: Repo(lambda: {Path(model).name: blob})}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        assert companions("--mmproj x.gguf", repo, "--mmproj", str(projector)) == {"projector"}
        assert companions(f"--mmproj {projector}", repo) == {"projector"}
        assert companions("-md x.gguf", repo, "--draft", model) == {"draft"}
        assert companions("-md x.gguf", model, "--draft", f"{repo}:Q8_0") == {"draft"}
        command = ["check", "llama-server -c 4096 --mmproj x.gguf", "--model", repo, "-H", RIG]
        assert main([*command, "--mmproj", f"{tmp_path}/no.gguf"]) == 2
    assert "no such file" in capsys.readouterr().err


def test_a_projector_that_hf_may_load_is_said_not_to_be_counted_where_the_model_is_a_file_here(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", "llama-server -hf some/repo -c 4096 -fit off", "--model", model, "-H", RIG])
    assert "-hf also loads the projector of its repo, if there is one: its memory" in capsys.readouterr().out


def test_a_draft_file_that_is_not_there_is_said(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "llama-server -c 4096", "--model", model, "-H", RIG, "--draft", "no.gguf"]) == 2
    assert "no such file: no.gguf" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["advise", "/not/here.gguf", "-H", "RTX 3090"], "name a GGUF file or a folder of them on this machine"),
        (["advise", "{folder}/not-here.gguf", "-H", "RTX 3090"], "or a repo of the Hub as OWNER/NAME"),
        (["advise", "{folder}", "-H", "RTX 3090"], "holds no complete GGUF of a model: name a .gguf file"),
        (["inspect", "{folder}/rig.txt"], "is not a GGUF file"),
        (["advise", "{folder}", "-H", "@/not/here.txt"], "cannot read /not/here.txt: No such file or directory; name"),
        (["advise", "{folder}", "-H", "{folder}/rig.txt"], "rig.txt to have it read"),
        (["advise", "{folder}"], "say what it runs on: -H 'RTX 3090"),
        (["check", "llama-server -m /not/here.gguf"], "say what it runs on: -H 'RTX 3090"),
        (["check", "llama-server -m /not/here.gguf", "-H", "RTX 3090"], "there is no file /not/here.gguf here, and"),
        (
            ["advise", "{folder}", "-H", "RTX 3090", "--kv-type", "q3_1"],
            "q8_0, q8_KV; did you mean q4_1?",
        ),
    ],
)
def test_what_to_type_is_said(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path / "state"))
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "rig.txt").write_text("RTX 3090")
    assert main([argument.format(folder=folder) for argument in arguments]) in (1, 2)
    assert says in capsys.readouterr().err
