"""What is typed on one line, as the words of a verb."""

from __future__ import annotations

import pytest

from service.bots.words import ask_of_line, converted, measured_speeds
from service.engine.errors import InvalidInput
from service.engine.goal import GoalRequest
from service.wire.advice.advice import AdviceRequest


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a/b on 2x3090, 64GB", {"repo": "a/b", "hardware": "2x3090, 64GB"}),
        ("a/b on RTX 3090 on x4, 64GB", {"repo": "a/b", "hardware": "RTX 3090 on x4, 64GB"}),
        ("a/b with 3090 with 64GB goal agent", {"repo": "a/b", "hardware": "3090 with 64GB", "goal": "agent"}),
        ("a/b 2x3090, 64GB context 32k", {"repo": "a/b", "hardware": "2x3090, 64GB", "context": "32k"}),
        ("https://hf.co/a/b 3090 64GB public", {"repo": "https://hf.co/a/b", "hardware": "3090 64GB", "public": "yes"}),
        ("a/b UD-Q4_K_XL on 3090", {"repo": "a/b UD-Q4_K_XL", "hardware": "3090"}),
        ("a/b Q8_0", {"repo": "a/b Q8_0"}),
        ("qwen3 8b on 3090", {"repo": "qwen3 8b", "hardware": "3090"}),
    ],
)
def test_a_line_is_split_at_its_keywords_and_hardware_may_stand_right_behind_a_repo(
    line: str, words: dict[str, str]
) -> None:
    assert ask_of_line(f"advise {line}").words == words


def test_a_wrong_word_is_named_in_plain_words() -> None:
    with pytest.raises(InvalidInput) as too_long:
        converted({"repo": "a/" + "b" * 600, "hardware": "RTX 3090"}, AdviceRequest)
    assert (too_long.value.field, too_long.value.detail) == ("repo", "repo: this is longer than 512 characters")
    with pytest.raises(InvalidInput) as unknown:
        converted({"preset": "zzz"}, GoalRequest, "goal")
    assert unknown.value.field == "goal"
    assert unknown.value.detail.startswith("goal: 'zzz' is not one of agent, batch, ")
    assert "agent" in unknown.value.choices
    with pytest.raises(InvalidInput) as nothing:
        measured_speeds("tg 0 pp 420")
    assert nothing.value.detail.startswith("measured: this must be more than 0")


@pytest.mark.parametrize(
    ("typed", "points"),
    [
        ("tg 17.9 pp 420 at 4096; tg 15 at 16k", [(4096, 420.0, 17.9), (16384, None, 15.0)]),
        ("tg 17,9 pp 1,234 at 4,096", [(4096, 1234.0, 17.9)]),
        ("TG: 17.9, PP: 1,234.5 @ 16 k", [(16384, 1234.5, 17.9)]),
        ("pp512 420.5 tg128 17.9", [(0, 420.5, 17.9)]),
        ("pp512: 420.5, tg128 = 17.9 at 4096", [(4096, 420.5, 17.9)]),
        ("tg17.9 pp420", [(0, 420.0, 17.9)]),
    ],
)
def test_speeds_are_read_as_people_and_benchmarks_write_them(
    typed: str, points: list[tuple[int, float | None, float | None]]
) -> None:
    assert [(one.n_kv, one.pp_tps, one.tg_tps) for one in measured_speeds(typed)] == points


def test_the_name_of_a_test_at_a_depth_is_no_speed() -> None:
    with pytest.raises(InvalidInput, match="is not a speed"):
        measured_speeds("pp512 @ d4096 | 420.5")


@pytest.mark.parametrize(
    ("line", "verb", "words"),
    [
        ("a/b on 2x3090, 64GB", "advise", {"repo": "a/b", "hardware": "2x3090, 64GB"}),
        ("https://hf.co/a/b 3090 64GB", "advise", {"repo": "https://hf.co/a/b", "hardware": "3090 64GB"}),
        ("Advise: a/b on 3090", "advise", {"repo": "a/b", "hardware": "3090"}),
        ("./llama-server -hf a/b -ngl 99", "check", {"command": "./llama-server -hf a/b -ngl 99"}),
        ("rig: 3090\nllama-server -hf a/b", "check", {"rig": "3090", "command": "llama-server -hf a/b"}),
    ],
)
def test_a_repo_or_a_command_without_a_verb_is_a_question_too(line: str, verb: str, words: dict[str, str]) -> None:
    asked = ask_of_line(line)
    assert (asked.verb, asked.words) == (verb, words)


@pytest.mark.parametrize("line", ["advice please", "forget me", "and/or what", "3090/4090"])
def test_other_lines_are_refused_with_the_verbs_there_are(line: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ask_of_line(line)
    assert "advise" in refused.value.choices
