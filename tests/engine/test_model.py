"""A model from its header: what hostile metadata may claim, and what is believed of it."""

from __future__ import annotations

import pytest

from service.engine.errors import UnsupportedModel
from service.engine.gguf import Header, MetadataValue
from service.engine.model import Model, build_model
from tests.models import build


def qwen_with(**claims: MetadataValue) -> Model:
    """Qwen3-30B-A3B (128 experts, 8 used) with other metadata than it has."""
    base = build("Qwen3-30B-A3B", "q4_k_m")
    return build_model(
        Header({**base.metadata, **{f"qwen3moe.{key}": v for key, v in claims.items()}}, base.tensors, 0)
    )


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_number_that_is_none_counts_as_absent(value: float) -> None:
    assert qwen_with(context_length=value).n_ctx_train == qwen_with(context_length="long").n_ctx_train


@pytest.mark.parametrize(("n_expert", "n_used"), [(1, 8), (0, 8), (128, 0), (128, -1), (-1, 8)])
def test_experts_that_no_engine_loads_are_refused(n_expert: int, n_used: int) -> None:
    with pytest.raises(UnsupportedModel, match=f"expert_count is {n_expert}, of which a token uses {n_used}"):
        qwen_with(expert_count=n_expert, expert_used_count=n_used)


def test_a_model_without_experts_needs_no_word_about_them() -> None:
    assert build("Qwen3-4B", "q4_k_m").n_expert == 0
