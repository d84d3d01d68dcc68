"""Written `-ot` rules mean exactly the tensors they are for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.commands.expert_rules import EXPERT_PARTS, dense_override, expert_override
from service.engine.overrides import matching
from tests import models

N_LAYER = 160
TENSORS = [
    f"blk.{layer}.{tensor}"
    for layer in range(N_LAYER)
    for tensor in (
        "attn_q.weight",
        "ffn_norm.weight",
        "ffn_gate_inp.weight",
        "exp_probs_b.bias",
        "ffn_up.weight",
        "ffn_gate.weight",
        "ffn_down.weight",
        "ffn_up_shexp.weight",
        "ffn_gate_shexp.weight",
        "ffn_down_shexp.weight",
        "ffn_up_exps.weight",
        "ffn_gate_exps.weight",
        "ffn_down_exps.weight",
        "ffn_gate_up_exps.weight",
        "ffn_down_exps.bias",
    )
] + ["token_embd.weight", "output.weight", "output_norm.weight"]

layer_sets = st.sets(st.integers(0, N_LAYER - 1), min_size=1)


def _matched(pattern: str) -> set[str]:
    return {TENSORS[i] for i in matching(pattern, TENSORS)}


def _experts(layers: set[int], parts: tuple[str, ...] = EXPERT_PARTS) -> set[str]:
    return {name for name in TENSORS if _layer(name) in layers and _part(name) in parts and "_exps" in name}


def _layer(name: str) -> int:
    return int(name.split(".")[1]) if name.startswith("blk.") else -1


def _part(name: str) -> str:
    return name.split(".")[2].removeprefix("ffn_").removesuffix("_exps") if name.startswith("blk.") else ""


@given(layer_sets)
def test_a_pattern_matches_exactly_its_layers_experts(layers: set[int]) -> None:
    pattern = expert_override(layers)
    assert _matched(pattern) == _experts(layers)
    assert not set(",=;'\"") & set(pattern)


@given(layer_sets, st.sampled_from([("up", "gate"), ("down",), ("up", "gate", "gate_up")]))
def test_parts_apart_match_nothing_else(layers: set[int], parts: tuple[str, ...]) -> None:
    assert _matched(expert_override(layers, parts)) == _experts(layers, parts)


@given(layer_sets)
def test_dense_parts_spare_experts(layers: set[int]) -> None:
    wanted = {n for n in TENSORS if _layer(n) in layers and n.split(".")[2] in ("ffn_up", "ffn_gate", "ffn_down")}
    assert _matched(dense_override(layers)) == wanted


@pytest.mark.parametrize(
    ("layers", "pattern"),
    [
        ([7], r"blk\.7\.ffn_(up|gate|down|gate_up)_exps"),
        ([3, 4, 5], r"blk\.[3-5]\.ffn_(up|gate|down|gate_up)_exps"),
        ([7, *range(30, 46)], r"blk\.(7|3[0-9]|4[0-5])\.ffn_(up|gate|down|gate_up)_exps"),
        (range(3, 61), r"blk\.([3-9]|[1-5][0-9]|60)\.ffn_(up|gate|down|gate_up)_exps"),
        (range(94), r"blk\.([0-9]|[1-8][0-9]|9[0-3])\.ffn_(up|gate|down|gate_up)_exps"),
        ([1, 3, 5], r"blk\.[135]\.ffn_(up|gate|down|gate_up)_exps"),
    ],
)
def test_patterns_are_as_short_as_people_write_them(layers: list[int], pattern: str) -> None:
    assert expert_override(layers) == pattern


def test_no_layers_is_an_error() -> None:
    with pytest.raises(ValueError, match="layer numbers"):
        expert_override([])


@pytest.mark.parametrize("name", ["DeepSeek-R1-0528", "Qwen3-235B-A22B", "gpt-oss-120b", "GLM-4.5-Air"])
def test_the_short_rule_names_only_routed_experts_of_real_models(name: str) -> None:
    model = models.build(next(n for n in models.model_names() if n.lower() == name.lower()), "q4_k_m")
    names = [tensor.name for tensor in model.tensors]
    assert {names[i] for i in matching("exps", names)} == {n for n in names if "_exps." in n}
