"""A model from its header: what hostile metadata may claim, and what is believed of it."""

from __future__ import annotations

from collections import Counter

import pytest

from service.engine.errors import UnsupportedModel
from service.engine.gguf.header import Header, MetadataValue
from service.engine.model import Model, build_model
from tests.models import build


def qwen_with(key: str, value: MetadataValue, **more: MetadataValue) -> Model:
    """Qwen3-30B-A3B (48 layers, 128 experts, 8 used) with other metadata than it has."""
    base = build("Qwen3-30B-A3B", "q4_k_m")
    claims = {f"qwen3moe.{name}": claim for name, claim in {key: value, **more}.items()}
    return build_model(Header({**base.metadata, **claims}, base.tensors, 0))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_number_that_is_none_counts_as_absent(value: float) -> None:
    assert qwen_with("context_length", value).n_ctx_train == qwen_with("context_length", "long").n_ctx_train


@pytest.mark.parametrize(("n_expert", "n_used"), [(1, 8), (0, 8), (128, 0), (128, -1), (-1, 8)])
def test_experts_that_no_engine_loads_are_refused(n_expert: int, n_used: int) -> None:
    with pytest.raises(UnsupportedModel, match=f"expert_count is {n_expert}, of which a token uses {n_used}"):
        qwen_with("expert_count", n_expert, expert_used_count=n_used)


@pytest.mark.parametrize("key", ["head_count", "head_count_kv", "key_length", "value_length"])
@pytest.mark.parametrize("value", [0, -1, 2**31, [0] * 48])
def test_heads_that_cannot_be_are_refused(key: str, value: MetadataValue) -> None:
    with pytest.raises(UnsupportedModel, match=r"qwen3moe\.attention"):
        qwen_with(f"attention.{key}", value)


@pytest.mark.parametrize("key", ["inner_size", "state_size", "time_step_rank", "group_count"])
@pytest.mark.parametrize("value", [-1, 1 << 21])
def test_a_state_that_cannot_be_is_refused(key: str, value: int) -> None:
    base = build("Qwen3-Next-80B-A3B", "q4_k_m")
    with pytest.raises(UnsupportedModel, match=r"qwen3next\.ssm"):
        build_model(Header({**base.metadata, f"qwen3next.ssm.{key}": value}, base.tensors, 0))


def kinds_of(name: str) -> Counter[str]:
    return Counter(layer.kind for layer in build(name, "q8_0").layers)


def test_a_block_of_a_hybrid_model_is_what_its_tensors_make_it() -> None:
    assert kinds_of("Qwen3.5-35B-A3B") == {"recurrent": 30, "attention": 10, "nextn": 1}
    assert kinds_of("Nemotron-3-Nano-30B-A3B") == {"recurrent": 23, "feed_forward": 23, "attention": 6}
    assert kinds_of("LFM2-8B-A1B") == {"recurrent": 18, "attention": 6}
    assert kinds_of("Kimi-Linear-48B-A3B") == {"recurrent": 20, "attention": 7}
    assert kinds_of("Falcon-H1-34B") == {"parallel": 72}


@pytest.mark.parametrize(
    ("name", "n_conv", "n_state"),
    [("LFM2-8B-A1B", 2 * 2048, 0), ("Kimi-Linear-48B-A3B", 3 * 3 * 32 * 128, 128 * 128 * 32),
     ("Granite-4.0-H-Small", 3 * (8192 + 2 * 128), 128 * 8192), ("Jamba-v0.1", 3 * 8192, 16 * 8192)],
)  # fmt: skip
def test_each_kind_of_recurrence_keeps_its_own_state(name: str, n_conv: int, n_state: int) -> None:
    sizes = build(name, "q8_0").recurrent

    assert sizes is not None
    assert (sizes.n_conv, sizes.n_state) == (n_conv, n_state)


def test_a_layer_may_have_no_heads() -> None:
    heads: MetadataValue = [*[4] * 47, 0]
    assert qwen_with("attention.head_count_kv", heads).layers[47].n_head_kv == 0


def test_a_model_without_experts_needs_no_word_about_them() -> None:
    assert build("Qwen3-4B", "q4_k_m").n_expert == 0
