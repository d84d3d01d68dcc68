"""Threads that people are sent to: each command at the build of its day, on the rig in its author's words.

tests/data/threads.jsonl: ik_llama.cpp issue 521, discussions 258 and 532, pull 405, docs/parameters.md. A figure that
is outside its interval, and a command that is wrong as it stands there, are named there (`missed`, `errors`, with the
cause) and in docs/check.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.engine.catalogue import resolve
from service.engine.check.report import CheckReport
from service.engine.check.run import check
from service.engine.hardware_text import parse_hardware
from tests.models import build
from tests.sampling import some_of

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
    engine = thread.get("engine", "ik_llama.cpp")
    return check(thread["command"], engine, model, rig, depths=depths or None, build=thread["date"])


def outside(thread: dict[str, Any], report: CheckReport) -> Iterator[str]:
    """The phases in which a measured figure is outside its interval."""
    for point in report.speed:
        pp, tg = thread["measured"].get(str(point.n_kv), (None, None))
        if pp is not None and not point.pp_low <= pp <= point.pp_high:
            yield "PP"
        if tg is not None and not point.tg_low <= tg <= point.tg_high:
            yield "TG"


def printed_otherwise(thread: dict[str, Any], report: CheckReport) -> Iterator[str]:
    """ "memory" where a buffer is not the printed one: to a MiB, the pieces that older builds align otherwise."""
    rows = {row.device: row for row in report.memory.devices}
    for device, parts in thread.get("printed", {}).items():
        row = rows[device]
        found = {"weights": row.weights_mib, "kv": row.kv_mib, "compute": row.compute_mib}
        if any(abs(found[part] - mib) > 1 for part, mib in parts.items()):
            yield "memory"


@pytest.mark.parametrize("name", some_of(list(THREADS), 3))
def test_a_command_of_a_thread_is_judged_rightly_and_its_figures_hold_or_are_named(name: str) -> None:
    thread = THREADS[name]
    report = checked(thread)
    errors = {f.rule: f.message for f in report.findings if f.severity == "error"}
    assert errors.keys() == thread.get("errors", {}).keys(), errors
    assert {f.rule for f in report.findings}.issuperset(thread.get("says", []))
    assert {*outside(thread, report), *printed_otherwise(thread, report)} == set(thread["missed"])


def test_what_is_missed_or_wrong_is_named_in_the_docs() -> None:
    text = " ".join((ROOT / "docs" / "check.md").read_text().split())
    for name, thread in THREADS.items():
        for phase, cause in thread["missed"].items():
            assert f"{phase} of `{name}`" in text
            assert cause in text
        for cause in thread.get("errors", {}).values():
            assert f"`{name}`" in text
            assert cause in text
