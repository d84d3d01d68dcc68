"""`-ot` patterns match as std::regex_search does, in bounded time."""

from __future__ import annotations

import threading
import time

import pytest

from service.engine import overrides
from service.engine.errors import InvalidFlags
from service.engine.overrides import is_easy, matching, without_commas

NAMES = tuple(
    f"blk.{layer}.{part}.weight"
    for layer in range(100)
    for part in ("attn_q", "ffn_norm", "ffn_up_exps", "ffn_gate_exps", "ffn_down_exps", "ffn_up_shexp", "ffn_up")
)


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("ffn_up", "blk.3.ffn_up_shexp.weight", True),
        ("blk.1.ffn", "blk.12.ffn_up.weight", False),
        (r"blk\.1", "blk.19.ffn_up.weight", True),
        (r"blk\.(3|4|10)\.ffn_(up|gate|down|gate_up)_exps\.", "blk.10.ffn_gate_exps.weight", True),
        (r"blk\.(3|4|10)\.ffn_(up|gate|down|gate_up)_exps\.", "blk.11.ffn_gate_exps.weight", False),
        (r"^output\.weight$", "output.weight", True),
        (r"^put", "output.weight", False),
        (r"ffn_(?!up)", "blk.0.ffn_up.weight", False),
        (r"ffn_(?!up).*", "blk.0.ffn_down.weight", True),
        (r"blk\.[^0-4]\.", "blk.5.ffn_up.weight", True),
        (r"blk\.[^0-4]\.", "blk.3.ffn_up.weight", False),
        (r"[[:digit:]]{2}", "blk.12.ffn_up.weight", True),
        (r"\d\d", "blk.1.ffn_up.weight", False),
        ("FFN", "blk.0.ffn_up.weight", False),
        ("", "output.weight", True),
        ("exps=", "blk.0.ffn_up_exps.weight", False),
        (r"(.)\1", "blk.11.x", True),
        (r"weight\n", "output.weight", False),
    ],
)
def test_a_pattern_is_searched_as_the_engines_search_it(pattern: str, name: str, found: bool) -> None:
    assert bool(matching(pattern, (name,))) is found


@pytest.mark.parametrize(
    "pattern",
    [
        "(?<=blk)x",
        "(?i)exps",
        "(?P<a>x)",
        "a**",
        "a*+",
        "*exps",
        "(exps",
        "[3-",
        "[9-3]",
        "a{,3}",
        "{",
        "\\",
        r"\q",
        r"\x4",
    ],
)
def test_what_std_regex_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidFlags) as caught:
        matching(pattern, NAMES)
    assert caught.value.field == "-ot"


def test_matching_all_names_at_once_agrees_with_one_by_one() -> None:
    for pattern in (r"blk\.[0-9]\.ffn_(up|gate)", r"\.ffn_.*_exps\.", "[^q]$", r"^blk\.9", r"7\.[^f]*", r"\w\W\w"):
        alone = [i for i, name in enumerate(NAMES) if matching(pattern, (name,))]
        assert matching(pattern, NAMES) == alone


def test_a_hostile_pattern_ends_in_an_error_within_bounded_time() -> None:
    began = time.process_time()
    with pytest.raises(InvalidFlags, match="too long"):
        matching(r"(([a-z0-9._]+)+)+[QZ]", NAMES)
    assert time.process_time() - began < 2


def test_the_time_of_other_threads_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """`regex` counts the processor time of the whole process: of eleven calls at once, one was refused for it."""
    monkeypatch.setattr(overrides, "SECONDS_A_RULE", 0.01)
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            sum(range(1000))

    others = [threading.Thread(target=work) for _ in range(4)]
    for other in others:
        other.start()
    try:
        assert {len(matching("ffn_up_exps", NAMES)) for _ in range(20)} == {100}
    finally:
        done.set()
        for other in others:
            other.join()


def test_a_name_with_a_line_end_stays_one_name() -> None:
    assert matching("weight", ["a\nweight", "b", "weight"]) == [0, 2]


@pytest.mark.parametrize("pattern", ["((a{1,500}){1,500}){1,500}", "(a{330}){330}", "((|a){9999}){9999}Z"])
def test_what_has_too_many_states_for_std_regex_is_refused_before_it_is_compiled(pattern: str) -> None:
    with pytest.raises(InvalidFlags, match="100,000 states"):
        matching(pattern, NAMES)


@pytest.mark.parametrize(
    ("pattern", "easy"),
    [
        (r"blk\.(1[2-9]|[2-8][0-9])\.ffn_.*_exps", True),
        (r"(blk\.\d+\.ffn)(_up|_gate)?", True),
        (r"(?:[0-9]{1,2}\.)+x", False),
        (r"(.)\1", False),
        ("a{9999}", False),
    ],
)
def test_easy_patterns_have_few_states_no_backreference_and_no_repetition_in_a_repetition(
    pattern: str, easy: bool
) -> None:
    assert is_easy(pattern) is easy


@pytest.mark.parametrize(
    ("counted", "written_out"),
    [
        (r"blk\.[0-9]{1,2}\.ffn", r"blk\.[0-9][0-9]?\.ffn"),
        (r"blk\.\d{2,3}x{0,1}", r"blk\.\d\d\d?x?"),
        ("(1|2){1,}a{3}", "(1|2)(1|2)*a{3}"),
        ("exps", "exps"),
    ],
)
def test_counts_with_a_comma_are_written_out_without_it(counted: str, written_out: str) -> None:
    assert without_commas(counted) == written_out
    names = ["blk.7.ffn", "blk.17.ffn", "blk.117.ffn", "blk.12xx", "exps", "12aaa"]
    assert matching(counted, names) == matching(written_out, names)
