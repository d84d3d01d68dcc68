"""Patterns that could run away are matched in a process that is killed in time."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from service.engine.commands.parse import parse
from service.engine.errors import InvalidFlags
from service.engine.model import Model, build_model
from service.engine.overrides import is_easy
from service.engine.run.overrides import matching_names
from service.flows.advice import matching
from service.flows.advice.matching import MatchResponse, SafeMatch
from tests.engine.commands.published import published
from tests.models import build_header
from tests.waiting import PATIENCE

BOMBS = (
    "((a{1,500}){1,500}){1,500}",
    "(((a{999}){999}){999}){999}",
    "(((){9999}){9999}){9999}",
    "((|a){9999}){9999}Z",
    "((|.){150}){150}",
    "(a{310}){310}",
    r"((.+)+)\1+\2+Z",
    "(((((.*)*)*)*)*)*Z",
    "(?!(.+)+Z)(.+)+Z",
)


@pytest.fixture
def model() -> Model:
    """One whose patterns come from strangers."""
    return build_model(build_header("Qwen3-30B-A3B", "q4_K_M"), SafeMatch())


def test_every_published_pattern_is_easy() -> None:
    parsed = [parse(case.command, case.engine, program=case.tool) for case in published()]
    patterns = {rule.pattern for command in parsed for rule in command.flags.overrides}
    assert len(patterns) > 200
    assert [p for p in patterns if not is_easy(p)] == []


@pytest.mark.parametrize("pattern", BOMBS)
def test_a_bomb_is_answered_in_time(pattern: str, model: Model) -> None:
    start = time.monotonic()
    with suppress(InvalidFlags):
        matching_names(model, pattern)
    assert time.monotonic() - start < PATIENCE


def test_a_dangerous_pattern_that_is_sound_is_matched(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SECONDS", 60.0)  # starting a process takes long on a busy machine
    assert set(matching_names(model, r"blk\.((1|2)+)+\.ffn_up_exps")) == {
        f"blk.{n}.ffn_up_exps.weight" for n in (1, 2, 11, 12, 21, 22)
    }


def test_easy_patterns_need_no_process(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_answer", lambda asked: pytest.fail("a process was started"))
    assert len(matching_names(model, r"blk\.(3|4)\.ffn_.*_exps")) == 6
    with pytest.raises(InvalidFlags, match="'\\(' without"):
        matching_names(model, "(exps")


def test_a_process_that_stays_is_killed_and_its_pattern_refused(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SECONDS", 0.01)
    for n in range(6):
        with pytest.raises(InvalidFlags, match="takes too long" if n < 4 else "were killed"):
            matching_names(model, rf"(a+)+{n}")


def test_a_pattern_is_matched_in_one_process_however_often_it_is_looked_up(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(matching, "_answer", lambda one: asked.append(one.pattern))
    for _ in range(3):
        with pytest.raises(InvalidFlags, match="takes too long"):
            matching_names(model, "(a+)+")

    assert asked == ["(a+)+"]


def test_a_request_starts_no_more_than_32_processes(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_answer", lambda one: MatchResponse(found=[0]))
    patterns = [rf"(a+)+{n}" for n in range(33)]
    assert all(matching_names(model, pattern) for pattern in patterns[:32])
    with pytest.raises(InvalidFlags, match="more than 32"):
        matching_names(model, patterns[32])
