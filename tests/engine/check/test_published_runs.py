"""Every published run of tests/data/perf.jsonl, as a line of a batch: its command and its hardware are read.

And with those of perf_2026.jsonl, at the build of the day: what ran has no error (docs/check.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.corrections import DISTRUSTED
from bench.runs import command_of, setup_of
from service.engine.builds import BuildAsked
from service.engine.catalogue import resolve
from service.engine.check.report import CheckReport
from service.engine.check.run import check
from service.engine.commands.parse import parse
from service.engine.hardware import Hardware, Rig
from service.engine.rules.case import case_of
from service.engine.rules.spelling import option_of_another_time, retired_flag, unknown_flag
from service.wire.advice.check import BatchCase
from tests.models import build

DATA = Path(__file__).parents[2] / "data"


def runs_of(file: str) -> dict[str, dict[str, Any]]:
    return {run["id"]: run for line in (DATA / file).read_bytes().splitlines() for run in (msgspec.json.decode(line),)}


RUNS = runs_of("perf.jsonl")
# One of each kind whose record says in words what was not published.
IN_WORDS = {
    "pr529-ubergarm-3": "-ot blk\\.(7 layers, list not published for this row)\\.ffn_.*=CUDA0",
    "pr698-ikawrakow-2": "-ub (see n_ubatch)",
    "pr841-ikawrakow-1": "(fragment; hybrid)",
}


def batch_case(run: dict[str, Any]) -> BatchCase:
    """The run's own fields but its model, which is a shape there and a file in a batch."""
    return msgspec.convert({key: value for key, value in run.items() if key != "model"}, BatchCase)


def rig_of(case: BatchCase) -> Rig:
    assert isinstance(case.hardware, Hardware)
    return resolve(case.hardware)


def checked(run: dict[str, Any], command: str | None = None) -> CheckReport:
    case = batch_case(run)
    model = build(run["model"]["shape"], run["model"]["mix"])
    return check(command or case.command, case.engine, model, rig_of(case), depths=[0])


@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
def test_a_published_run_is_read(run: dict[str, Any]) -> None:
    case = batch_case(run)
    assert parse(case.command, case.engine).engine == run["engine"]
    assert len(rig_of(case).cards) == sum(gpu["count"] for gpu in run["hardware"]["gpus"])


@pytest.mark.full
@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
def test_a_published_run_is_checked(run: dict[str, Any]) -> None:
    report = checked(run)
    assert report.speed
    assert report.memory.devices


@pytest.mark.parametrize("name", IN_WORDS)
def test_words_in_a_command_are_a_finding_each_and_the_figures_are_those_without(name: str) -> None:
    run, words = RUNS[name], IN_WORDS[name]
    report = checked(run)
    assert sum(words[:80] in (found.fix or "") for found in report.findings if found.rule == "unknown-flag") == 1
    option, _, value = words.partition(" ") if words.startswith("-ot ") else (words, "", "")
    written = f'{option} "{value}"' if value else words
    assert written in run["command"]
    without = checked(run, run["command"].replace(written, ""))
    assert (report.memory, report.speed) == (without.memory, without.speed)


def test_a_remark_behind_a_name_is_quoted() -> None:
    case = batch_case(RUNS["issue765-sousekd-1"])
    rig = rig_of(case)
    assert rig.cards[0].name == "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
    (said,) = [a.why for a in rig.assumed if a.field == "hardware.gpus[0].name"]
    assert "the author's other posts: RTX PRO 6000 Blackwell" in said


RAN = {
    name: run
    for name, run in (RUNS | runs_of("perf_2026.jsonl")).items()
    if name not in DISTRUSTED and "rpc-" not in name and not name.endswith("__rpc")
}
# Shapes are of files of today, and those of that time had the tensors that this is about.
_OF_THE_FILE = "latent-file-refused"
_MEMORY = frozenset({"does-not-fit", "experts-left-on-gpu", "ram-too-small", "locked-memory-too-large"})
STAND_INS = {name: run["stand_in"] for name, run in RAN.items() if "stand_in" in run}
# What `check` calls an error although it ran, and why.
EXPLAINED = {
    "pr375-ubergarm-2": {"option-of-another-time"},  # --warmup-batch in the branch of the pull request that brings it
    "a100sxm-qwen3next-q4": {"option-of-another-time"},  # --load-mode is of July 2026; the run's day is unknown
    "jg-4x4090-gptoss120b-sm-tensor": {
        "split-mode-unknown"
    },  # measured in the branch of the pull request that brings it
}


def errors_of(run: dict[str, Any]) -> set[str]:
    """The rules by which `check` calls a run an error, at the build of its day, with the context that its rows need.

    Of memory nothing is held where a part of the record stands in for what was not published (`stand_in` says why).
    """
    setup = setup_of(run, "")
    command = command_of(run, setup.build_date or "")
    if run["rows"] and " -c " not in command and " --ctx-size " not in command:
        command += f" -c {max(int(n_prompt + n_token + n_kv) for n_prompt, n_token, n_kv, *_ in run['rows'])}"
    build_asked = BuildAsked(date=setup.build_date)
    report = check(command, run["engine"], setup.model, setup.rig, depths=[0], build=build_asked)
    not_held = _MEMORY if "stand_in" in run else frozenset()
    return {one.rule for one in report.findings if one.severity == "error"} - {_OF_THE_FILE} - not_held


@pytest.mark.full
@pytest.mark.timeout(3_600)
def test_what_ran_has_no_error() -> None:
    """All but EXPLAINED, and for memory STAND_INS: docs/check.md."""
    found = {name: errors for name, run in RAN.items() if (errors := errors_of(run))}
    print(f"{len(RAN)} runs, {len(STAND_INS)} with stand-ins, an error in {len(found)}: {found}")
    assert found == EXPLAINED


def test_a_stand_in_names_its_part_and_its_reason() -> None:
    assert len(STAND_INS) == 14
    for name, parts in STAND_INS.items():
        assert parts.keys() <= {"shape", "mix", "command"}, name
        assert all(parts.values()), name


R9700 = "kyuz0-r9700-{}__rocm7_1_1__fa1__long__dual"
GPT_OSS, DEVSTRAL = "gpt-oss-120b-mxfp4-00001-of-00003", "Devstral-2-123B-Instruct-2512-Q3_K_S-00001-of-00002"


@pytest.mark.parametrize("model", [GPT_OSS, DEVSTRAL])
def test_what_ran_on_two_cards_has_no_error_and_what_failed_there_has(model: str) -> None:
    """At 16,384 tokens these ran; at 32,768 all eight ROCm builds of that post failed to create a context."""
    run = {key: value for key, value in RAN[R9700.format(model)].items() if key != "stand_in"}
    ran, failed = (errors_of(run | {"command": run["command"].replace("-d 16384", f"-d {n}")}) for n in (16384, 32768))
    assert ran == set()
    assert "does-not-fit" in failed


def test_copies_for_a_pipeline_are_given_up_where_they_do_not_fit_since_october_2025() -> None:
    run = RAN[R9700.format(GPT_OSS)]
    assert errors_of(run) == set()
    assert "does-not-fit" in errors_of(run | {"date": "2025-10-01", "build": None})


def test_what_macos_recommends_is_no_limit_and_its_memory_is() -> None:
    """8 GB: a model, cache and buffer of 6.3 GiB ran, of which macOS recommends 5.3 for the GPU."""
    run = RAN["xiongjie-llama3-M1_8GB-8B-Q4_K_M"]
    assert errors_of(run) == set()
    longer = run["command"].replace(",8192 -n", ",32768 -n")
    assert "does-not-fit" in errors_of(run | {"command": longer})


@pytest.mark.full
def test_commands_of_models_without_a_shape_here_are_read_at_their_build() -> None:
    wrong: dict[str, list[str]] = {}
    for name, run in runs_of("perf_2026_unshaped.jsonl").items():
        model = {"shape": "Qwen3-30B-A3B", "mix": "q4_K_M"}  # stands in: only spellings are looked at
        if name == "lhl-rpc-tulu405b-x4":  # four machines, of which a rig is one
            continue
        setup = setup_of(run | {"model": model, "rows": [], "bench": []}, "")
        parsed = parse(run["command"], run["engine"], program=run["tool"], build=BuildAsked(date=setup.build_date))
        case = case_of(parsed, setup.model, setup.rig, run["command"], "cuda")
        rules = (unknown_flag, retired_flag, option_of_another_time)
        found = [f.message for rule in rules for f, _ in rule.findings(case) if f.severity == "error"]
        wrong |= {name: found} if found else {}
    # These two say when they were posted, not of which build; a fork has -ncmoe.
    posted = {"ik715-magik-r1-3.5652", "ik882-ik-lingmini"}
    assert {name for name in wrong if not name.startswith("daim-dsv4-")} == posted, wrong
