"""`-ot` rules on a model: the first match wins, devices are named as engines name them, hostile input is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.commands.expert_rules import number_pattern
from service.engine.config import Override
from service.engine.errors import InvalidFlags
from service.engine.model import Model
from service.engine.overrides import MAX_RULES
from service.engine.run.overrides import device_index, matching_names, names_in_blocks, overridden
from tests.models import build
from tests.sampling import examples


@pytest.fixture
def experts() -> Model:
    return build("Qwen3-30B-A3B", "q4_K_M")


def test_the_first_matching_rule_decides_a_tensor(experts: Model) -> None:
    rules = (Override(r"blk\.3\.ffn_up_exps", "CUDA1"), Override("exps", "CPU"), Override("ffn", "CUDA0"))
    devices = overridden(experts, rules, 2)

    assert devices["blk.3.ffn_up_exps.weight"] == 1
    assert devices["blk.3.ffn_down_exps.weight"] == 2
    assert devices["blk.3.ffn_norm.weight"] == 0
    assert "blk.3.attn_q.weight" not in devices


def test_names_come_in_file_order(experts: Model) -> None:
    names = [t.name for t in experts.tensors]
    found = matching_names(experts, r"(attn_q|exps)\.weight$")

    assert list(found) == sorted(found, key=names.index)
    assert len(found) == 48 * 4


@pytest.mark.parametrize(("name", "index"), [("CUDA0", 0), ("ROCm1", 1), ("SYCL1", 1), ("Metal", 0), ("CPU", 2)])
def test_a_device_is_named_as_its_engine_names_it(name: str, index: int) -> None:
    assert device_index(name, 2) == index


@pytest.mark.parametrize("name", ["CUDA2", "CUDA", "CUDA_Host", "cpu", "", "CUDA\u0661", "CUDA-1", "CUDA0 "])
def test_a_device_that_is_not_there_is_refused_with_what_is(name: str) -> None:
    with pytest.raises(InvalidFlags, match="numbered 0 to 1"):
        device_index(name, 2)


def test_too_many_rules_are_refused(experts: Model) -> None:
    with pytest.raises(InvalidFlags, match="at most"):
        overridden(experts, (Override("a", "CPU"),) * (MAX_RULES + 1), 1)


@examples(200)
@given(st.text(alphabet="abk.|()[]^$*+?{}\\dw0123:-,=!<>\nP", max_size=24))
def test_any_text_is_matched_or_refused(text: str) -> None:
    model = build("Qwen3-0.6B", "q8_0")
    try:
        names = matching_names(model, text)
    except InvalidFlags:
        return
    assert set(names) <= set(model.by_name)


@pytest.mark.parametrize("name", ["Qwen3-235B-A22B", "Qwen3-32B"])
@pytest.mark.parametrize("pattern", [r"blk\.{}\.ffn_.*_exps", r"blk\.{}\.ffn_(up|gate)\.", r"k\.{}\.", "exps", "attn"])
@examples(100)
@given(st.data())
def test_a_pattern_of_some_blocks_finds_what_a_search_for_it_would(
    name: str, pattern: str, data: st.DataObject
) -> None:
    model = build(name, "q8_0")
    blocks = data.draw(st.sets(st.integers(0, model.n_layer + 9), min_size=1))
    written = pattern.format(number_pattern(blocks))
    searched = tuple(t.name for t in model.tensors if re.search(written, t.name))

    assert names_in_blocks(model, pattern, number_pattern(blocks), blocks) == searched
    assert matching_names(model, written) == searched
