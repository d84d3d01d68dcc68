"""Every published run of tests/data/perf.jsonl, as a line of a batch: its command and its hardware are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.engine.catalogue import resolve
from service.engine.check import CheckReport, check
from service.engine.commands import parse
from service.engine.hardware import Hardware, Rig
from service.wire.check import BatchCase
from tests.models import build

RUNS: dict[str, dict[str, Any]] = {
    run["id"]: run
    for line in (Path(__file__).parents[2] / "data" / "perf.jsonl").read_bytes().splitlines()
    for run in (msgspec.json.decode(line),)
}
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
