"""Patterns that could run away are matched in a process that is killed in time."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from service.engine.commands import parse
from service.engine.errors import InvalidFlags
from service.engine.memory.overrides import is_matched, matching_names
from service.engine.model import Model, build_model
from service.engine.overrides import is_easy
from service.flows import matching
from service.flows.matching import match_safely
from tests.engine.commands.published import published
from tests.models import build_header

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
    """One that no other test has matched patterns against."""
    return build_model(build_header("Qwen3-30B-A3B", "q4_K_M"))


def test_every_published_pattern_is_easy() -> None:
    parsed = [parse(case.command, case.engine, program=case.tool) for case in published()]
    patterns = {rule.pattern for command in parsed for rule in command.flags.overrides}
    assert len(patterns) > 200
    assert [p for p in patterns if not is_easy(p)] == []


@pytest.mark.parametrize("pattern", BOMBS)
def test_a_bomb_is_answered_in_time(pattern: str, model: Model) -> None:
    start = time.monotonic()
    match_safely(model, [pattern])
    with suppress(InvalidFlags):
        matching_names(model, pattern)
    assert time.monotonic() - start < matching.SECONDS + 2


def test_a_dangerous_pattern_that_is_sound_is_matched(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SECONDS", 60.0)  # starting a process takes long on a busy machine
    match_safely(model, [r"(.)\1_exps", r"blk\.((1|2)+)+\.ffn_up_exps"])
    assert is_matched(model, r"blk\.((1|2)+)+\.ffn_up_exps")
    assert set(matching_names(model, r"blk\.((1|2)+)+\.ffn_up_exps")) == {
        f"blk.{n}.ffn_up_exps.weight" for n in (1, 2, 11, 12, 21, 22)
    }


def test_easy_patterns_need_no_process(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_answers", lambda asked: pytest.fail("a process was started"))
    match_safely(model, ["exps", r"blk\.(3|4)\.ffn_.*", "(exps"])
    assert not is_matched(model, "exps")


def test_a_process_that_stays_is_killed_and_its_pattern_refused(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SECONDS", 0.01)
    patterns = [rf"(a+)+{n}" for n in range(6)]
    match_safely(model, patterns)
    for pattern in patterns:
        with pytest.raises(InvalidFlags, match=r"takes too long|were killed"):
            matching_names(model, pattern)
