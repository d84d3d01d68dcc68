"""Patterns of strangers: read as std::regex reads them, and stopped when they take too long."""

from __future__ import annotations

import contextlib
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.config import Override
from service.engine.errors import InvalidFlags
from service.engine.memory.overrides import MAX_RULES, matching_names, overridden, translate
from service.engine.model import Model
from tests.models import build


@pytest.fixture
def experts() -> Model:
    return build("Qwen3-30B-A3B", "q4_K_M")


@pytest.mark.parametrize(
    "pattern",
    [
        "exps",
        r"blk\.(3|4|10)\.ffn_(up|down|gate|gate_up)_exps\.",
        r"blk\.([0-9]|1[0-5])\.ffn_.*",
        r"blk\.\d{2}\.attn_[qkv]\.",
        r"^output\.weight$",
        r"blk\.(?:1|2)\.(?!attn)",
        r"ffn_[^du]\w+_exps",
        r"\.ffn_(up|down)_(ch|)exps",
        "blk.1.ffn",
        r"(\d)\1\.attn_norm",
    ],
)
def test_a_pattern_matches_as_it_is_searched_in_each_name(pattern: str, experts: Model) -> None:
    names = tuple(t.name for t in experts.tensors)

    assert matching_names(experts, pattern) == tuple(name for name in names if re.search(pattern, name))


@pytest.mark.parametrize("pattern", [r"blk\.0\D.*weight", r"output[^x]*token", r"weight\sblk", r"weight\nblk"])
def test_no_pattern_matches_across_two_names(pattern: str, experts: Model) -> None:
    names = (t.name for t in experts.tensors)

    assert matching_names(experts, pattern) == tuple(name for name in names if re.search(pattern, name))


@pytest.mark.parametrize(
    "pattern",
    ["(?i)EXPS", "(?P<a>x)", "(?<=x)y", "(?>a)b", "a++", "*a", "a{2", "[a", "(a", "a)", "a\\", r"\2(a)(b)", "[z-a]",
     "a{9999}", "(?:x){e<=1}", "[[:nothing:]]"],
)  # fmt: skip
def test_what_std_regex_refuses_is_refused(pattern: str, experts: Model) -> None:
    with pytest.raises(InvalidFlags):
        matching_names(experts, pattern)


@pytest.mark.parametrize("pattern", ["(.*a){20}b", r"((.*)*)*x", r"(\w+\.?)+!", r"(.+)+\1z"])
def test_a_pattern_that_backtracks_without_end_is_stopped(pattern: str, experts: Model) -> None:
    start = time.process_time()
    with contextlib.suppress(InvalidFlags):
        matching_names(experts, pattern)

    assert time.process_time() - start < 2


def test_a_pattern_that_takes_too_long_is_refused_by_name(experts: Model) -> None:
    with pytest.raises(InvalidFlags, match="too long"):
        matching_names(experts, r"(.+)(.+)(.+)(.+)(.+)\5\4\3\2\1[!?]")


def test_too_many_rules_and_too_long_patterns_are_refused(experts: Model) -> None:
    with pytest.raises(InvalidFlags, match="at most"):
        overridden(experts, (Override("a", "CPU"),) * (MAX_RULES + 1), 1)
    with pytest.raises(InvalidFlags, match="at most"):
        translate("a" * 513)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="abk.|()[]^$*+?{}\\dw0123:-,=!<>\nP", max_size=24))
def test_any_text_is_matched_or_refused(text: str) -> None:
    model = build("Qwen3-0.6B", "q8_0")
    try:
        names = matching_names(model, text)
    except InvalidFlags:
        return
    assert set(names) <= set(model.by_name)
