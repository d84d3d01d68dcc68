"""Layers that repeat are replayed once for each way in which they are met: equal to the graph in one piece."""

from __future__ import annotations

import gc
import weakref
from random import Random

import msgspec
import pytest

from service.engine.config import ENGINES, Engine, Flags, Override
from service.engine.memory.allocator import Arenas, Script
from service.engine.memory.figures import Memory
from service.engine.memory.graphs import GraphCache, graphs_of
from service.engine.memory.graphs.kinds import layers_of_each_kind, with_neighbours
from service.engine.memory.scheduler import PlacedSegment
from service.engine.memory.spec import make_spec
from service.engine.model import build_model
from tests.bare_runs import memory_on
from tests.models import build, build_header
from tests.sampling import models_on_engines, some_of

GIB = 1 << 30
MIXES = ("q4_K_M", "ffn_down_exps=iq3_k,exps=iq2_ks,*=q5_K")
EXPERTS_IN_RAM = Flags(n_ctx=32768, n_ubatch=2048, overrides=(Override("exps", "CPU"),))
FOUR_CARDS = [24 * GIB] * 4


def random_flags(random: Random, n_layer: int, engine: Engine) -> Flags:
    some = "|".join(str(i) for i in range(n_layer) if random.random() < 0.5)
    patterns = ["exps", rf"blk\.({some})\.ffn", "attn_q", rf"blk\.{random.randrange(n_layer)}\.", "attn_k.*=CUDA0"]
    pattern, _, device = random.choice(patterns).partition("=")
    return Flags(
        n_ctx=random.choice([4096, 16384]),
        n_ubatch=random.choice([16, 512, 1024]),
        n_parallel=random.choice([1, 1, 3]),
        flash_attn=random.choice(["on", "auto", "off"]),
        cache_type_k=random.choice(["f16", "q8_0"]),
        overrides=random.choice([(), (Override(pattern, device or "CPU"),)]),
        n_gpu_layers=random.choice([999, 999, n_layer // 2]),
        no_kv_offload=random.random() < 0.1,
        split_mode=random.choice(["layer", "graph"] if engine == "ik_llama.cpp" else ["layer"]),
    )


@pytest.mark.parametrize(("name", "engine"), models_on_engines())
def test_layer_by_layer_comes_to_what_the_graph_in_one_piece_comes_to(
    name: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(f"{name} {engine}")
    model = build(name, random.choice(MIXES))
    flags, free = random_flags(random, model.n_layer, engine), [random.choice([16, 32]) * GIB for _ in range(3)]
    by_layer = memory_on(engine, model, flags, free)
    monkeypatch.setattr(GraphCache, "by_layer", GraphCache.in_one_piece)

    assert by_layer == memory_on(engine, model, flags, free)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["Qwen3-235B-A22B", "DeepSeek-R1-0528", "Llama-3.3-70B", "GLM-4.6", "gpt-oss-120b"])
def test_the_models_people_place_most_repeat(name: str, engine: Engine) -> None:
    model = build(name, "q4_K_M")
    graph = graphs_of(model).by_layer(model, make_spec(engine, model, EXPERTS_IN_RAM))

    assert graph is not None
    assert 0 < len(set(graph.segment_of)) <= 6


SEVERAL_WAYS = (
    Flags(n_ctx=16384, n_ubatch=1024),
    Flags(n_ctx=16384, n_ubatch=1024, overrides=(Override("exps", "CPU"),)),
    Flags(n_ctx=16384, n_ubatch=16, flash_attn="off"),
)
OUT_OF_ORDER = (
    *("MiniMax-M3", "GLM-5.3-Flash"),  # made before the layers and read by all of them, by a view of each layer
    *("DeepSeek-V3.2", "GLM-5", "dots3-note"),  # inputs of single layers
    *("Nemotron-3-Nano-30B-A3B", "Ling-3.0-flash", "LFM2-8B-A1B", "Mamba-Codestral-7B"),  # run with the next layer
    *("Gemma-4-31B", "DeepSeek-V4-Flash", "Qwen3-VL-30B-A3B", "SmolLM3-3B", "Gemma-2-9B"),  # different by number
)
READ_FROM_AFAR = (  # by layers further on than the next one
    pytest.param("Hy4-preview", "llama.cpp", marks=pytest.mark.full),
    pytest.param("Kimi-K3", "llama.cpp", marks=pytest.mark.full),
    ("DeepSeek-V4-Flash", "ik_llama.cpp"),
)


@pytest.mark.full
@pytest.mark.parametrize(("name", "engine"), [*((name, "llama.cpp") for name in OUT_OF_ORDER), *READ_FROM_AFAR])
def test_layers_repeat_that_read_what_others_than_the_previous_one_made_or_are_run_out_of_order(
    name: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, in_one_piece = build(name, "q4_K_M"), GraphCache.in_one_piece
    with monkeypatch.context() as patched:
        patched.setattr(GraphCache, "in_one_piece", lambda *_: pytest.fail("the layers do not repeat"))
        by_layer = [memory_on(engine, model, flags, [32 * GIB] * 2) for flags in SEVERAL_WAYS]
    monkeypatch.setattr(GraphCache, "by_layer", in_one_piece)

    assert by_layer == [memory_on(engine, model, flags, [32 * GIB] * 2) for flags in SEVERAL_WAYS]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_placement_that_moves_the_experts_of_some_layers_costs_few_of_them(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build("Qwen3-235B-A22B", "ffn_down_exps=iq4_ks,exps=iq4_kss,*=q8_0")
    replayed: list[Script] = []
    run = Script.run

    def counted(script: Script, before: Arenas) -> tuple[Arenas, tuple[int, ...]]:
        replayed.append(script)
        return run(script, before)

    monkeypatch.setattr(Script, "run", counted)

    def n_replayed(pattern: str) -> tuple[int, Memory]:
        """The segments replayed for one prediction that had not been met before."""
        replayed.clear()
        flags = msgspec.structs.replace(EXPERTS_IN_RAM, overrides=(Override(pattern, "CPU"),))
        memory = memory_on(engine, model, flags, FOUR_CARDS)
        return len(replayed), memory

    n_replayed("exps")
    moved, memory = n_replayed(r"blk\.(?!(5|30)\.).*exps")
    again, same = n_replayed(r"blk\.(?!(5|30)\.).*exps")

    assert 0 < moved < 12
    assert again == 0
    assert same == memory


EVEN, UNEVEN = (1.0,) * 8, (3.0, 1.0, 1.0, 2.5, 0.8, 0.8, 3.0, 1.0)
SHARED = [(name, shares) for shares in (EVEN, UNEVEN) for name in ("Qwen3-235B-A22B", "GLM-4.6", "MiniMax-M2")]


@pytest.mark.parametrize(("name", "shares"), some_of(SHARED, every=3, group=lambda case: case[1]))
def test_layers_repeat_where_cards_have_no_share_of_some_of_their_parts(
    name: str, shares: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, in_one_piece = build(name, "q4_K_M"), GraphCache.in_one_piece
    flags = Flags(n_ctx=16384, n_ubatch=2048, n_gpu_layers=999, split_mode="graph", tensor_split=shares)
    with monkeypatch.context() as patched:
        patched.setattr(GraphCache, "in_one_piece", lambda *_: pytest.fail("the layers do not repeat"))
        by_layer = memory_on("ik_llama.cpp", model, flags, [24 * GIB] * 8)
    monkeypatch.setattr(GraphCache, "by_layer", in_one_piece)

    assert by_layer == memory_on("ik_llama.cpp", model, flags, [24 * GIB] * 8)


def test_what_is_kept_of_graphs_is_bounded_and_those_used_longest_ago_go_first() -> None:
    model, graphs = build("Qwen3-0.6B", "q8_0"), GraphCache(max_tensors=3_000)
    specs = [make_spec("llama.cpp", model, Flags(n_ctx=n)) for n in (2048, 4096, 8192)]
    first, second = (graphs.in_one_piece(model, spec) for spec in specs[:2])
    assert first is not None
    assert second is not None
    assert first.n_kept + second.n_kept < 3_000

    second.n_kept = 2_500  # as after many placements
    third = graphs.in_one_piece(model, specs[2])

    assert graphs.in_one_piece(model, specs[1]) is not second
    assert graphs.in_one_piece(model, specs[2]) is third


@pytest.mark.parametrize("engine", ENGINES)
def test_what_placements_came_to_goes_with_the_graph_and_waits_for_no_collection(engine: Engine) -> None:
    model, refs = build_model(build_header("Qwen3-30B-A3B", "q4_K_M")), list[weakref.ref[object]]()
    gc.disable()
    try:
        for n in (0, 20):
            moved = Override(rf"blk\.(\d|1\d|{n})\.ffn_.*_exps", "CPU")
            memory_on(engine, model, Flags(n_ctx=8192, n_gpu_layers=99, overrides=(moved,)), [24 * GIB] * 2)
        for part in [part for graph in graphs_of(model)._kept.values() if graph for part in graph.linked]:
            if isinstance(part, PlacedSegment):
                resolved = [found for stage in part.stages.values() for found in stage.resolved.values()]
                pieces = [cut for found in resolved for cut in found.pieces.values()]
                refs += map(
                    weakref.ref, (part, *resolved, *pieces, *(p for cut in pieces for p in cut.programs.values()))
                )
                del resolved, pieces
            del part
        assert len(refs) > 20
        model.__dict__.clear()
        assert [ref() for ref in refs if ref() is not None] == []
    finally:
        gc.enable()


def test_layers_between_others_are_of_other_kinds() -> None:
    assert with_neighbours([0, 0, 0, 1, 0, 0], 0) == [0, 0, 0, 1, 0, 0]
    assert with_neighbours([0, 0, 0, 1, 0, 0], 1) == [0, 1, 2, 3, 4, 5]
    assert with_neighbours([0, 0, 0, 0, 1, 0, 0, 0, 0], 1) == [0, 1, 1, 2, 3, 4, 1, 1, 5]


@pytest.mark.parametrize(
    ("kinds", "kept", "like"),
    [
        ("AAAAZ", (0, 1, 4), [1, 2, 2, 2, 3]),
        ("DDDMMMMZ", (0, 1, 3, 4, 7), [1, 2, 2, 3, 4, 4, 4, 5]),
        ("RRRFRRRFZ", (0, 1, 3, 4, 7, 8), [1, 2, 2, 3, 4, 2, 2, 3, 6]),
        ("ABCABZ", (0, 1, 2, 3, 4, 5), [1, 2, 3, 4, 2, 6]),
    ],
)
def test_layers_are_kept_so_that_each_kind_follows_every_kind_that_it_follows(
    kinds: str, kept: tuple[int, ...], like: list[int]
) -> None:
    assert layers_of_each_kind([ord(c) for c in kinds]) == (kept, like)
