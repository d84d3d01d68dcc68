"""A slice of the campaign that holds every advised command against `check`."""

from __future__ import annotations

import pytest

from bench.round_trip import one_advice


@pytest.mark.full
def test_commands_of_random_advices_come_back_to_the_byte_and_break_no_rule() -> None:
    outcomes = [one_advice(seed) for seed in range(1, 9)]
    assert sum(counts["commands"] for counts, _ in outcomes) > 30
    assert [text for _, wrong in outcomes for text in wrong] == []
