"""Goals: presets, what overrides them, and what a model's context allows."""

from __future__ import annotations

import msgspec
import pytest

from service.engine.errors import InvalidInput
from service.engine.goal import Constraints, GoalRequest, resolve_goal


def test_a_number_overrides_its_presets() -> None:
    goal = resolve_goal(GoalRequest(preset="agent", prompt=100, min_pp=50), 131_072)
    assert (goal.prompt, goal.output, goal.depth, goal.min_tg, goal.min_pp) == (100, 600, 24_000, 12.0, 50)


def test_a_presets_context_and_depth_stay_within_what_the_model_was_trained_for() -> None:
    goal = resolve_goal(GoalRequest(preset="long"), 40_960)
    assert goal.context == 40_960
    assert goal.depth + goal.prompt + goal.output == 40_960


def test_a_stated_depth_raises_a_context_that_nobody_stated() -> None:
    goal = resolve_goal(GoalRequest(depth=100_000), 32_768)
    assert goal.depth == 100_000
    assert goal.context >= 101_400


def test_each_of_several_requests_has_the_presets_context_unless_another_is_stated() -> None:
    assert resolve_goal(GoalRequest(parallel=8), 40_960).context == 8 * 16_384
    assert resolve_goal(GoalRequest(preset="batch", parallel=8), 40_960).context == 8 * 4_096
    assert resolve_goal(GoalRequest(preset="long", parallel=2), 40_960).context == 2 * 40_960
    deep = resolve_goal(GoalRequest(parallel=4, depth=20_000), 131_072)
    assert deep.context_each >= 21_400
    shared = resolve_goal(GoalRequest(parallel=4, context=16_384), 131_072)
    assert (shared.context_each, shared.depth) == (4_096, 4_096 - 1_400)
    with pytest.raises(InvalidInput, match="1024 for each of 16 requests"):
        resolve_goal(GoalRequest(parallel=16, context=16_384), 131_072)


def test_a_goal_that_contradicts_itself_names_the_field() -> None:
    with pytest.raises(InvalidInput) as caught:
        resolve_goal(GoalRequest(depth=8_000, context=4_096), 32_768)
    assert caught.value.field == "goal.context"
    assert "9400 tokens" in caught.value.detail


def test_a_build_is_understood_and_one_that_is_not_known_is_refused() -> None:
    engines = {"engines": [{"name": "ik_llama.cpp", "build": {"date": "2025-06-01"}}]}
    assert msgspec.convert(engines, Constraints).build_of("ik_llama.cpp").date == "2025-06-01"
    assert msgspec.convert(engines, Constraints).build_of("llama.cpp").date is None
    wrong = {"engines": [{"name": "ik_llama.cpp", "build": "yesterday"}]}
    with pytest.raises(InvalidInput, match="not a date"):
        msgspec.convert(wrong, Constraints).build_of("ik_llama.cpp")
