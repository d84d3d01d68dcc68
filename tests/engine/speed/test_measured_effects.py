"""Every effect of flags that people measured, by name: sign and size, or a known failure with its cause."""

from __future__ import annotations

import pytest

from bench.effects import Effect, effects, outcome

ALL = effects()


@pytest.mark.parametrize("effect", [e for e in ALL if e.known is None], ids=lambda e: e.id)
def test_an_effect_has_the_sign_and_size_that_was_measured(effect: Effect) -> None:
    found = outcome(effect)
    assert found.right, f"measured x{found.measured:.2f}, predicted x{found.predicted:.2f}"


@pytest.mark.parametrize("effect", [e for e in ALL if e.known is not None], ids=lambda e: e.id)
def test_a_known_failure_still_fails(effect: Effect) -> None:
    """One that comes out right has to lose its cause in the data."""
    found = outcome(effect)
    assert not found.right, f"measured x{found.measured:.2f}, predicted x{found.predicted:.2f}"


def test_three_of_four_effects_come_out_right() -> None:
    assert len(ALL) >= 100
    assert sum(e.known is None for e in ALL) / len(ALL) >= 0.75


def test_the_effects_that_decide_a_config_come_out_right() -> None:
    named = {e.id for e in ALL if e.known is None}
    assert {"ub-qwen-2048", "ub-r4-4096", "rtr-qwen-1024", "rtr-qwen-4096", "fmoe-torn", "kv-q8-98k"} <= named
    assert {"graph-14b-tg", "one-more-layer", "ffn-experts"} <= named


def test_ids_are_unique() -> None:
    assert len({e.id for e in ALL}) == len(ALL)
