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
