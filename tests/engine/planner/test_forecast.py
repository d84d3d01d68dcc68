"""A forecast is never slower than what is placed, and near to it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from service.engine.catalogue import engine_devices, resolve
from service.engine.config import Engine
from service.engine.goal import Constraints, GoalRequest, Preset, resolve_goal
from service.engine.hardware import Gpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from service.engine.memory.least import least_memory
from service.engine.planner.pricing.candidate import Candidate, base_flags
from service.engine.planner.pricing.fit import limits_of
from service.engine.planner.pricing.forecast import Forecaster
from service.engine.planner.search.one_variant import VariantSearch
from service.engine.planner.search.outcome import SearchCase
from tests import rigs
from tests.bare_runs import run_on
from tests.models import build

NEAR = 1.12
CASES: tuple[tuple[str, str, Hardware, Engine, Preset], ...] = (
    ("DeepSeek-R1-0528", "q4_k_m", rigs.TWO_5090_TWO_4090, "llama.cpp", "chat"),
    ("Qwen3-235B-A22B", "q4_k_m", rigs.TWO_5090_TWO_4090, "ik_llama.cpp", "agent"),
    ("GLM-4.5-Air", "q4_k_m", rigs.ONE_3090_DESKTOP, "ik_llama.cpp", "long"),
    ("Llama-3.3-70B", "q4_k_m", rigs.ONE_3090_DESKTOP, "llama.cpp", "chat"),
    ("Llama-3.3-70B", "q4_k_m", rigs.EIGHT_3090, "ik_llama.cpp", "chat"),
    ("Qwen3-Next-80B-A3B", "q4_k_m", rigs.ONE_3090_DESKTOP, "llama.cpp", "chat"),
    ("Qwen3-30B-A3B", "q4_k_m", rigs.TWO_EPYC_NO_GPU, "ik_llama.cpp", "chat"),
    ("Qwen3-235B-A22B", "q4_k_m", rigs.MAC_STUDIO, "llama.cpp", "chat"),
)


@pytest.mark.parametrize(("model", "mix", "hardware", "engine", "preset"), CASES, ids=[f"{c[0]} {c[3]}" for c in CASES])
def test_what_is_placed_is_never_faster_than_its_forecast_and_near_to_it(
    model: str, mix: str, hardware: Hardware, engine: Engine, preset: Preset
) -> None:
    built = build(model, mix)
    goal = resolve_goal(GoalRequest(preset=preset), built.n_ctx_train)
    search = VariantSearch(SearchCase(engine, 0, built, resolve(hardware), goal, Constraints()))
    least = min(t.seconds for t in search.queue)
    search.place_first()
    best = min(c.seconds.expected for c in search.contenders)
    assert least * 0.999 <= best <= least * NEAR


@pytest.mark.parametrize("model", ["Qwen3-8B", "Llama-3.2-3B", "Qwen3-30B-A3B"])  # the second's head is tied
@pytest.mark.parametrize("engine", ["ik_llama.cpp", "llama.cpp"])
def test_without_a_card_a_forecast_is_the_time_of_its_placement(model: str, engine: Engine) -> None:
    built = build(model, "q4_k_m")
    goal = resolve_goal(GoalRequest(), built.n_ctx_train)
    search = VariantSearch(SearchCase(engine, 0, built, resolve(rigs.TWO_EPYC_NO_GPU), goal, Constraints()))
    search.place_first()
    assert [times for _, times in search.forecasts.errors] == pytest.approx([1.0], rel=1e-3)


def test_embeddings_by_layer_stay_in_ram_and_take_no_room_on_cards() -> None:
    two_in_use = Hardware(gpus=[Gpu(name="RTX 5060 Ti", count=2, free_gib=4.1)], ram=Ram(total_gb=64))
    model = build("Gemma-4-E2B", "bf16")
    assert model.by_name["per_layer_token_embd.weight"].nbytes > 4 * 2**30
    goal = resolve_goal(GoalRequest(), model.n_ctx_train)
    search = VariantSearch(SearchCase("ik_llama.cpp", 0, model, resolve(two_in_use), goal, Constraints()))
    search.place_first()
    assert search.contenders[0].candidate.strategy == "all on GPU"


@pytest.mark.parametrize("model", ["DeepSeek-V3.2", "GLM-4.6", "Gemma-4-E2B", "Qwen3-30B-A3B", "Llama-3.2-3B"])
@pytest.mark.parametrize("engine", ["ik_llama.cpp", "llama.cpp"])
def test_a_forecast_counts_the_weights_that_are_loaded_and_no_next_token_layers(model: str, engine: Engine) -> None:
    built, rig = build(model, "q4_k_m"), resolve(rigs.ONE_3090_DESKTOP)
    goal = resolve_goal(GoalRequest(), built.n_ctx_train)
    flags = base_flags(engine, built, rig, goal, "all on GPU", 512, "f16")
    made = Forecaster(engine, built, rig, goal, flags)
    on_card = least_memory(run_on(engine, built, flags, [2**40])).devices[0].weights
    assert 0.98 * on_card <= made.fixed_bytes + made.piece_bytes <= on_card * 1.001


def test_more_cards_than_a_model_needs_are_tried_where_they_work_on_several_micro_batches_at_once() -> None:
    three = Hardware(gpus=[Gpu(name="RTX 5090", count=3)], ram=Ram(total_gb=64))
    model = build("OLMo-3-32B", "q4_k_m")
    goal = resolve_goal(GoalRequest(preset="long"), model.n_ctx_train)
    search = VariantSearch(SearchCase("llama.cpp", 0, model, resolve(three), goal, Constraints()))
    search.place_first()
    on_one = min(t.seconds for t in search.queue if len(t.candidate.cards) == 1)
    assert len(search.best().candidate.cards) > 1
    assert search.best().seconds.expected < on_one


def test_a_forecast_counts_the_logits_that_its_own_flags_keep() -> None:
    """Cards that share every layer were forecast with the few logits of the same flags by layer."""
    built, rig = build("Qwen3.5-35B-A3B", "q4_k_m"), resolve(Hardware(gpus=[Gpu(name="RTX 3060")]))
    goal = resolve_goal(GoalRequest(), built.n_ctx_train)
    whole = base_flags("ik_llama.cpp", built, rig, goal, "FFN in RAM", 4096, "f16")
    devices, limits = engine_devices(rig, "ik_llama.cpp", (0,)), limits_of(rig, Constraints(), (0,))
    seconds = []
    for others in ([], [replace(whole, n_logits=1)]):
        made = Forecaster("ik_llama.cpp", built, rig, goal, whole)
        for flags in (*others, whole):
            found = made.forecast(Candidate("FFN in RAM", (0,), flags), devices, limits)
        seconds.append(found.seconds)
    few = made.forecast(Candidate("FFN in RAM", (0,), replace(whole, n_logits=1)), devices, limits)
    assert seconds[0] == seconds[1] > few.seconds


def test_a_bound_counts_that_an_engine_has_to_be_built_or_is_not_the_one_in_use() -> None:
    """Else nothing is pruned by that much: eleven more placements on eight cards."""
    built, rig = build("Qwen3-8B", "q8_0"), resolve(parse_hardware("RTX 4090, Ryzen 9 7950X, 64GB DDR5"))
    goal = resolve_goal(GoalRequest(), built.n_ctx_train)
    engines: tuple[Engine | None, ...] = (None, "llama.cpp")
    for in_use in engines:
        search = VariantSearch(SearchCase("ik_llama.cpp", 0, built, rig, goal, Constraints(), in_use=in_use))
        least = search.least_cost(goal)
        search.place_all()
        assert least == pytest.approx(search.least(), abs=0.005)
