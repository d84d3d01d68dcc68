"""Graphs are shared by variants of a model: on a shared one, each takes what it takes on its own."""

from __future__ import annotations

import pytest

from service.engine.config import Engine, Flags
from service.engine.memory.graphs import share_graphs
from service.engine.memory.graphs.kinds import shape_of
from service.engine.model import build_model
from tests.bare_runs import memory_on
from tests.models import build, build_header
from tests.sampling import models_on_engines

MIXES = ("q8_0", "ffn_down_exps=iq3_k,exps=iq2_ks,attn_k_b=q4_0,*=q5_K")
LONG = Flags(n_ctx=32768, n_ubatch=1024)
CARDS = [40 << 30] * 2


@pytest.mark.parametrize(("name", "engine"), models_on_engines(first=1))
def test_a_variant_on_the_graph_of_another_takes_what_it_takes_on_its_own(name: str, engine: Engine) -> None:
    one, other, alone = (build_model(build_header(name, mix)) for mix in (*MIXES, MIXES[1]))
    share_graphs((one, other))
    memory_on(engine, one, LONG, CARDS)

    assert shape_of(one) == shape_of(other)
    assert memory_on(engine, other, LONG, CARDS) == memory_on(engine, alone, LONG, CARDS)


def test_models_whose_up_and_gate_differ_in_type_share_no_graph_with_those_whose_do_not() -> None:
    alike, unlike = build("Qwen3-30B-A3B", "q4_K"), build("Qwen3-30B-A3B", "ffn_up_exps=q5_K,*=q4_K")

    assert shape_of(alike) != shape_of(unlike)


def test_layers_of_one_model_in_another_number_are_another_shape() -> None:
    assert shape_of(build("Qwen3-8B", "q8_0")) != shape_of(build("Qwen3-4B", "q8_0"))
