"""Graphs are shared by variants of a model: what is bound to other weights is what would have been built for them."""

from __future__ import annotations

import pytest

from service.engine.config import Engine, Flags
from service.engine.memory.graphs import build_graph
from service.engine.memory.graphs.sharing import BuiltGraph, GraphCache, bind, shape_of
from service.engine.memory.spec import GraphSpec, make_spec
from service.engine.model import Model
from tests.models import build
from tests.sampling import models_on_engines

MIXES = ("q8_0", "ffn_down_exps=iq3_k,exps=iq2_ks,attn_k_b=q4_0,*=q5_K")
LONG = Flags(n_ctx=32768, n_ubatch=1024)


def spec_of(engine: Engine, model: Model, flags: Flags = LONG) -> GraphSpec:
    return make_spec(engine, model, flags, "bench", cpu_only=False)


@pytest.mark.parametrize(("name", "engine"), models_on_engines(first=1))
def test_a_graph_bound_to_other_weights_is_the_graph_of_those_weights(name: str, engine: Engine) -> None:
    one, other = (build(name, mix) for mix in MIXES)
    spec = spec_of(engine, one)
    first, second = build_graph(one, spec).graph, build_graph(other, spec).graph

    assert shape_of(one) == shape_of(other)
    assert (None if first is None else bind(first, other)) == second


def test_models_whose_up_and_gate_differ_in_type_share_no_graph_with_those_whose_do_not() -> None:
    alike, unlike = build("Qwen3-30B-A3B", "q4_K"), build("Qwen3-30B-A3B", "ffn_up_exps=q5_K,*=q4_K")

    assert shape_of(alike) != shape_of(unlike)


def test_layers_of_one_model_in_another_number_are_another_shape() -> None:
    assert shape_of(build("Qwen3-8B", "q8_0")) != shape_of(build("Qwen3-4B", "q8_0"))


def test_the_cache_builds_once_a_shape_and_forgets_what_was_used_longest_ago() -> None:
    built: list[GraphSpec] = []

    def make(model: Model, spec: GraphSpec) -> BuiltGraph:
        built.append(spec)
        return build_graph(model, spec)

    variants = [build("Qwen3-0.6B", mix) for mix in ("q8_0", "bf16", "q4_K")]
    short, longer, longest = (spec_of("ik_llama.cpp", variants[0], Flags(n_ctx=n)) for n in (2048, 4096, 8192))
    graph = build_graph(variants[0], short).graph
    assert graph is not None
    cache = GraphCache(max_tensors=2 * len(graph.op))
    for model in variants:
        cache.get(model, short, make)
        cache.get(model, longer, make)
    assert built == [short, longer]

    cache.get(variants[0], short, make)
    cache.get(variants[0], longest, make)
    cache.get(variants[0], short, make)
    assert built == [short, longer, longest]

    cache.get(variants[0], longer, make)
    assert built == [short, longer, longest, longer]


def test_a_graph_too_large_for_the_cache_is_used_and_not_kept() -> None:
    model, cache = build("Qwen3-0.6B", "q8_0"), GraphCache(max_tensors=10)
    spec = spec_of("llama.cpp", model)
    first, second = cache.get(model, spec, build_graph), cache.get(model, spec, build_graph)

    assert first.graph is not None
    assert first == second
