"""`-ot` patterns of runs: a small grammar that all patterns in use are in, and nothing that takes long."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.commands.expert_rules import dense_override, expert_override
from service.engine.commands.parse import parse
from service.engine.overrides import is_easy, matching
from service.engine.run_flags import RunOverride, is_tensor_pattern

DATA = Path(__file__).parents[1] / "data"
LAYERS = st.sets(st.integers(0, 199), min_size=1)


def _published() -> set[str]:
    found: set[str] = set()
    for name in ("perf.jsonl", "published_commands.jsonl"):
        for line in (DATA / name).read_text().splitlines():
            case = json.loads(line)
            found |= {rule.pattern for rule in parse(case["command"], case["engine"]).flags.overrides}
    return found


def test_every_published_pattern_is_in_the_grammar() -> None:
    published = _published()
    assert len(published) == 255
    assert [pattern for pattern in published if not is_tensor_pattern(pattern)] == []


@given(layers=LAYERS)
def test_every_pattern_that_the_planner_writes_is_in_the_grammar(layers: set[int]) -> None:
    for pattern in (expert_override(layers), expert_override(layers, ("up", "gate")), dense_override(layers)):
        assert is_tensor_pattern(pattern) or len(pattern) > 512


@pytest.mark.parametrize(
    "pattern",
    [
        "exps",
        r"\.ffn_(up|down|gate|gate_up)_(ch|)exps",
        r"blk\.(3|4)\.ffn_(up|gate|down)(_ch|_sh)?exps?",
        r"^output\.weight$",
        r"blk\.\d+\.attn_.*",
        r"blk\.([0-9]|[1-3][0-9]|4[0-57])\.ffn_.*_exps\..*",
        r"blk\.[3-9]{1}\.",
        r"(?:ffn_up|ffn_gate)\.",
        r"[^.]+norm",
    ],
)
def test_patterns_in_common_use_are_in_the_grammar_and_match(pattern: str) -> None:
    assert is_tensor_pattern(pattern)
    matching(pattern, ("blk.0.ffn_up.weight",))


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "-ot",
        "--rpc",
        "a;b",
        "a,b",
        "a=b",
        "a b",
        "a\nb",
        "exps\n",
        "a\0b",
        "$(id)",
        "`id`",
        "a$b",
        "b^",
        "/etc/passwd",
        "é",
        "(a+)+",
        "(a*)*",
        "(a|b)*",
        "(a|b){9}",
        ".*.*.*.*",
        "(a|a)" * 19,
        "a?" * 19,
        r"(.)\1",
        "(?=a)",
        "(?!a)",
        "(?i)a",
        "[[:alpha:]]",
        "[9-0]",
        "[a-",
        "[]",
        "a**",
        "a*+",
        "*a",
        "(a",
        "a)",
        "(" * 9 + "a" + ")" * 9,
        "a{17}",
        "a{0}",
        "a{1,9}",
        r"\x41",
        "a" * 513,
    ],
)
def test_what_lies_outside_cannot_be_decoded(pattern: str) -> None:
    assert not is_tensor_pattern(pattern)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"pattern": pattern, "device": "CPU"}, RunOverride)


@pytest.mark.parametrize("device", ["CUDA16", "CUDA00", "cpu", "CUDA0\n", "RPC[1.2.3.4:5]", "CUDA_Host", ""])
def test_devices_are_those_an_engine_lists(device: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"pattern": "exps", "device": device}, RunOverride)


@given(st.text(alphabet="ab01_.-\\dw[]()?:|^$*+{}2; =,\n", max_size=24) | st.text(max_size=12))
def test_whatever_is_let_through_is_plain_and_quick_to_match(text: str) -> None:
    if not is_tensor_pattern(text):
        return
    assert re.fullmatch(r"(?s)[A-Za-z0-9_.\\()|?:\[\]^$*+{}-]+", text)
    assert not text.startswith("-")
    assert is_easy(text)
    matching(text, ("blk.0.ffn_up.weight",))
