"""Threads that people are sent to: each command at the build of its day, on the rig in its author's words.

tests/data/threads.jsonl: ik_llama.cpp issue 521, discussion 532, pull 405. A figure outside its interval is named there
(`missed`, with the cause) and in docs/check.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.engine.catalogue import resolve
from service.engine.check import CheckReport, check
from service.engine.hardware_text import parse_hardware
from tests.models import build

ROOT = Path(__file__).parents[3]
THREADS: dict[str, dict[str, Any]] = {
    thread["id"]: thread
    for line in (ROOT / "tests" / "data" / "threads.jsonl").read_bytes().splitlines()
    for thread in (msgspec.json.decode(line),)
}


def checked(thread: dict[str, Any]) -> CheckReport:
    rig = resolve(parse_hardware(thread["rig"]))
    model = build(thread["shape"], thread["mix"])
    depths = [int(n_kv) for n_kv in thread["measured"]]
    return check(thread["command"], "ik_llama.cpp", model, rig, depths=depths or None, build=thread["date"])


def outside(thread: dict[str, Any], report: CheckReport) -> Iterator[str]:
    """The phases in which a measured figure is outside its interval."""
    for point in report.speed:
        pp, tg = thread["measured"].get(str(point.n_kv), (None, None))
        if pp is not None and not point.pp_low <= pp <= point.pp_high:
            yield "PP"
        if tg is not None and not point.tg_low <= tg <= point.tg_high:
            yield "TG"


@pytest.mark.parametrize("name", THREADS)
def test_a_command_that_ran_has_no_error_and_its_figures_lie_in_their_intervals_or_are_named(name: str) -> None:
    thread = THREADS[name]
    report = checked(thread)
    assert [f"{f.rule}: {f.message}" for f in report.findings if f.severity == "error"] == []
    assert set(outside(thread, report)) == set(thread["missed"])


def test_what_is_missed_is_named_in_the_docs() -> None:
    text = " ".join((ROOT / "docs" / "check.md").read_text().split())
    for name, thread in THREADS.items():
        for phase, cause in thread["missed"].items():
            assert f"{phase} of `{name}`" in text
            assert cause in text
