"""Builds by date, number and commit, and what held for them."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from msgspec import structs

from service.engine.builds import TODAY, BuildAsked, BuildRules, MemoryRules, parse_build, resolve_build, today
from service.engine.config import ENGINES, Engine
from service.engine.engines import engine_spec
from service.engine.errors import InvalidInput

IK: Engine = "ik_llama.cpp"
LLAMA: Engine = "llama.cpp"


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("2025-05-11", BuildAsked(date="2025-05-11")),
        ("b3700", BuildAsked(number=3700)),
        ("3700", BuildAsked(number=3700)),
        ("8337e4cd3", BuildAsked(commit="8337e4cd3")),
        ("2025-08", BuildAsked(date="2025-08")),
        ("9187 (0253fb21f)", BuildAsked(number=9187)),  # llama-bench and --version, as in perf_2026.jsonl
        ("version: 9187 (0253fb21f)", BuildAsked(number=9187)),
        ("build: 58190cc84 (8671)", BuildAsked(number=8671)),
    ],
)
def test_a_build_is_written_as_people_write_it(text: str, asked: BuildAsked) -> None:
    assert parse_build(text) == asked


@pytest.mark.parametrize(
    "asked", [None, "8337e4cd3", "8337e4cd3861406fc04e0854b1409cd1b027fbc9", "b4840", "2026-08-15"]
)
def test_the_build_that_we_follow_is_today_s(asked: str | None) -> None:
    build = resolve_build(IK, asked)
    assert build == today(IK)
    assert build.rules.memory == TODAY
    assert build.changes == ()


@pytest.mark.parametrize(
    "asked", [None, "0c1e57098", "0c1e57098bba43ac29e6e3b677cdceebdd22334f", "b11312", "b11000", "11312 (0c1e57098)"]
)
def test_llama_cpps_build_is_known_by_its_number_and_its_commit(asked: str | None) -> None:
    build = resolve_build(LLAMA, asked)
    assert build == today(LLAMA)
    assert build.label == "b11312 (0c1e57098)"  # that of llama-cpp-python 0.3.36 of 30 September 2026
    assert resolve_build(LLAMA, "b11313").newer


@pytest.mark.parametrize(
    ("engine", "asked", "date"),
    [
        (IK, "b3713", "2025-05-25"),
        (IK, "24c010b3", "2025-05-25"),  # as posted in 2025: the main line was rewritten since
        (IK, "41d6c42b9", "2025-10-25"),
        (LLAMA, "b6402", "2025-09-07"),
        (LLAMA, "b6089", "2025-08-04"),  # between two known numbers
    ],
)
def test_numbers_and_commits_have_a_day(engine: Engine, asked: str, date: str) -> None:
    build = resolve_build(engine, asked)
    assert build.date == date
    assert build.about == (asked == "b6089")


def test_a_month_is_taken_for_its_middle_and_says_so() -> None:
    build = resolve_build(LLAMA, "2025-08")
    assert (build.date, build.about) == ("2025-08-15", True)
    assert "2025-08" in build.label
    assert build.doubt


@pytest.mark.parametrize("asked", ["2026-11-01", "b4900"])
def test_a_newer_build_is_taken_for_today_s_and_says_so(asked: str) -> None:
    build = resolve_build(IK, asked)
    assert build.newer
    assert build.rules == today(IK).rules


@pytest.mark.parametrize("asked", ["2024-01-01", "b2843"])
def test_a_build_before_all_known_ones_is_taken_for_the_oldest_and_says_so(asked: str) -> None:
    build = resolve_build(LLAMA, asked)
    assert build.older
    assert build.rules == resolve_build(LLAMA, build.date).rules
    assert asked in build.label
    assert "oldest known" in (build.doubt or "")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("yesterday", "not a date"),
        ("2025-02-30", "not a date"),
        ("2062-05-11", "none is of 2062-05-11"),
        ("2062-05", "none is of 2062-05:"),
        ("b99999", "numbered"),
        ("deadbeef0", "not known here"),
        (BuildAsked(), "one of date, number and commit"),
        (BuildAsked(date="2025-05-11", number=3700), "one of date, number and commit"),
        (BuildAsked(number=-1), "numbered"),
        (BuildAsked(commit="no hex"), "hexadecimal"),
    ],
)
def test_a_build_that_is_not_known_names_what_would_be_right(asked: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as refused:
        resolve_build(IK, asked)
    assert refused.value.field == "build"
    assert "2025-05-11" in refused.value.detail or refused.value.choices


def test_defaults_are_those_of_the_day() -> None:
    old = resolve_build(IK, "2025-05-11").rules
    assert (old.flash_attn, old.fused_moe, old.n_gpu_layers, old.memory.mla, old.memory.attn_max_batch) == (
        "off", False, 0, 0, 0,
    )  # fmt: skip
    assert resolve_build(IK, "2025-10-25").rules.flash_attn == "on"
    assert resolve_build(IK, "2025-10-24").rules.flash_attn == "off"
    assert resolve_build(LLAMA, "2025-10-01").rules.auto_slots == 1
    assert resolve_build(LLAMA, "2025-12-31").rules.fit


def test_options_come_and_go() -> None:
    then, between, now = (resolve_build(IK, date) for date in ("2025-05-11", "2025-11-01", None))
    assert [b.has("llama-server", "-fmoe") for b in (then, between, now)] == [True, False, False]
    assert [b.has("llama-server", "-no-fmoe") for b in (then, between, now)] == [False, True, True]
    assert [b.has("llama-server", "-fa") for b in (then, between, now)] == [True, False, True]
    assert [b.has("llama-bench", "-fmoe") for b in (then, between, now)] == [True, True, True]
    assert then.has("llama-server", "-c") is None
    assert then.next_change("llama-server", "-fmoe") == "2025-10-25"


@pytest.mark.parametrize("engine", ENGINES)
def test_the_history_is_in_order_and_names_rules_that_exist(engine: Engine) -> None:
    changes = list(engine_spec(engine).history.changes)
    assert [c.date for c in changes] == sorted(c.date for c in changes)
    for change in changes:
        datetime.date.fromisoformat(change.date)
        assert change.source.startswith((engine, "inferred from published runs"))
        assert set(change.before) <= set(MemoryRules.__struct_fields__) | set(BuildRules.__struct_fields__)
        eve = datetime.date.fromisoformat(change.date) - datetime.timedelta(1)
        before = resolve_build(engine, eve.isoformat()).rules
        flat = structs.asdict(before) | structs.asdict(before.memory)
        for name, value in change.before.items():
            assert set(value) <= set(flat[name]) if isinstance(value, list) else flat[name] == value


@pytest.mark.parametrize(
    ("engine", "asked", "era"),
    [
        (IK, None, "2026-08-13"),
        (IK, "2026-08-14", "2026-08-13"),
        (IK, "2026-08-13", "2026-08-13"),
        (IK, "2026-08-12", "2026-08-07"),
        (IK, "2026-11-01", "2026-08-15+"),
        (LLAMA, "2026-07-01", "2026-06-09"),
        (LLAMA, "2024-08-02", "2024-08-01"),
    ],
)
def test_builds_of_an_era_have_the_same_rules(engine: Engine, asked: str | None, era: str) -> None:
    build = resolve_build(engine, asked)
    assert build.era == era
    if not era.endswith("+"):
        assert resolve_build(engine, era).rules == build.rules
