"""What is tried, and that pruning loses nothing that would be shown first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
from msgspec.structs import replace

from service.engine.catalogue import resolve
from service.engine.config import ENGINES, Engine, Flags
from service.engine.goal import Constraints, GoalRequest, Preset, resolve_goal
from service.engine.hardware import Card, Cpu, Gpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from service.engine.model import Model
from service.engine.planner.pricing.candidate import strategy_of, with_strategy
from service.engine.planner.pricing.fit import Placed
from service.engine.planner.pricing.forecast import even_shares
from service.engine.planner.pricing.support import unsupported
from service.engine.planner.ranking.rank import DAMAGED, Contender, rank
from service.engine.planner.search.all_variants import search
from service.engine.planner.search.candidates import (
    MICRO_BATCHES,
    CachePair,
    cache_pairs,
    candidates,
    card_sets,
    dense_part_runs_on_gpu,
    micro_batches,
    orders,
)
from service.engine.planner.search.forecasts import KnownBuffers
from service.engine.planner.search.one_variant import VariantSearch
from service.engine.planner.search.outcome import Outcome, SearchCase
from service.engine.planner.search.placement import PlacementSearch
from tests import rigs
from tests.engine.planner.asking import ask, first
from tests.models import build, model_names
from tests.sampling import some_of

TWO_UNLIKE = Hardware(
    gpus=[Gpu(name="RTX 4090", pcie="4.0 x4"), Gpu(name="RTX 3060", pcie="4.0 x16")],
    cpu=Cpu(model="Ryzen 9 7950X"),
    ram=Ram(total_gb=96, type="DDR5", channels=2, mts=5600),
)
SMALL: tuple[tuple[str, tuple[str, ...], Hardware, Preset], ...] = (
    ("Qwen3-14B", ("q4_k_m", "q8_0"), TWO_UNLIKE, "fastest"),
    ("Llama-3.1-8B", ("q4_k_m", "q8_0"), rigs.LAPTOP_6GB, "chat"),
    ("gpt-oss-20b", ("exps=mxfp4,*=q8_0",), rigs.LAPTOP_6GB, "long"),
    ("Qwen3-30B-A3B", ("q4_k_m", "q2_k", "q8_0"), rigs.LAPTOP_6GB, "chat"),
    ("Qwen3-30B-A3B", ("q4_k_m", "q8_0"), TWO_UNLIKE, "agent"),
)
IN_EVERY_RUN = 1  # the others take seconds each
CASES = [pytest.param(*case, marks=pytest.mark.full if i >= IN_EVERY_RUN else ()) for i, case in enumerate(SMALL)]
NAMES = [f"{model} {preset}" for model, _, _, preset in SMALL]
TIED = 0.01  # of cost, 1 % of the time: configs this near are equal, and which of them is first does not matter


@cache
def found(model: str, mixes: tuple[str, ...], hardware: str, preset: Preset, exhaustive: bool) -> list[Outcome]:
    rig = resolve(next(h for _, _, h, _ in SMALL if repr(h) == hardware))
    models = [build(model, mix) for mix in mixes]
    goal = resolve_goal(GoalRequest(preset=preset), models[0].n_ctx_train)
    cases = [SearchCase(e, i, m, rig, goal, Constraints()) for i, m in enumerate(models) for e in ENGINES]
    return search(cases, exhaustive=exhaustive)


def first_three(outcomes: list[Outcome]) -> list[Contender]:
    """Of what is split by layers: other modes have a formula for their speed, and one of each kind is tried."""
    contenders = [c for o in outcomes for c in o.contenders if c.fitted.flags.split_mode == "layer"]
    return rank(contenders, outcomes[0].case.goal).order[:3]


@pytest.mark.full
@pytest.mark.parametrize(("model", "mixes", "hardware", "preset"), CASES, ids=NAMES)
def test_pruning_loses_none_of_the_first_three_of_all_candidates(
    model: str, mixes: tuple[str, ...], hardware: Hardware, preset: Preset
) -> None:
    pruned, every = (found(model, mixes, repr(hardware), preset, exhaustive) for exhaustive in (False, True))
    kept, best = first_three(pruned), first_three(every)
    assert sum(o.placed for o in pruned) < sum(o.placed for o in every)
    assert len(kept) == len(best)
    whole = [c for c in kept if c.loss <= DAMAGED]  # what quantisation hurts only fills up a short list
    assert whole
    for ours, theirs in zip(whole, best, strict=False):
        goal = ours.problem.goal
        assert ours.cost(goal) <= theirs.cost(goal) + TIED


@pytest.mark.parametrize(("model", "mixes", "hardware", "preset"), CASES, ids=NAMES)
def test_every_candidate_is_a_contender_or_a_loser_with_its_reason(
    model: str, mixes: tuple[str, ...], hardware: Hardware, preset: Preset
) -> None:
    for outcome in found(model, mixes, repr(hardware), preset, False):
        candidates_told = len(outcome.contenders) + len(outcome.rejected)
        assert candidates_told == outcome.considered
        assert outcome.placed <= outcome.considered


def test_where_parts_of_a_layer_are_missing_the_first_card_attends_alone() -> None:
    """The card that holds experts only needs no buffers for attention and logits. With nothing in RAM there are no
    copies to turn off, as there are where some experts are hoped to stay."""
    model = build("Qwen3-30B-A3B", "q8_0")
    goal = resolve_goal(GoalRequest(preset="agent"), model.n_ctx_train)
    search = VariantSearch(SearchCase("llama.cpp", 0, model, resolve(TWO_UNLIKE), goal, Constraints()))
    [one] = [q for q in search.queue if q.candidate.cards == (0, 1) and not is_another(q.candidate.flags)]
    assert one.candidate.strategy == "all on GPU"
    in_ram = with_strategy(search.case.rig, "llama.cpp", model, one.candidate, "FFN in RAM")
    search.queue = [one, one._replace(candidate=in_ram)]

    search.place_all()

    assert len(search.contenders) == 2
    for found in search.contenders:
        assert found.candidate.strategy == "all on GPU"
        assert found.fitted.flags.tensor_split[1] == 0
        assert found.fitted.flags.op_offload


def is_another(flags: Flags) -> bool:
    return flags.n_ubatch != 512 or flags.cache_type_k != "f16" or flags.split_mode != "layer"


def test_an_engine_that_refuses_a_file_for_its_indexer_is_not_advised() -> None:
    goal, rig = resolve_goal(GoalRequest(), 131072), resolve(rigs.EIGHT_3090)
    refused = VariantSearch(SearchCase("ik_llama.cpp", 0, build("MiniMax-M3", "q2_k"), rig, goal, Constraints()))
    assert "indexer" in (refused.refusal or "")
    assert not refused.queue
    for engine, name in (("llama.cpp", "MiniMax-M3"), ("ik_llama.cpp", "MiniMax-M3-without-indexer")):
        assert unsupported(engine, build(name, "q2_k"), rig) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("cpu", ["i7-3770", "2x Xeon E5-2680 v2", "FX-8350"])
def test_an_engine_without_kernels_for_an_old_cpu_is_not_advised(cpu: str) -> None:
    body = ask("Qwen3-30B-A3B", "q4_k_m", hardware=parse_hardware(f"RTX 3060, {cpu}, 32GB DDR3-1600"))
    assert {c.engine for c in body.configs} == {"llama.cpp"}
    assert any("AVX2" in refusal.reason for refusal in body.refused)


def test_sets_of_like_cards_are_tried_once() -> None:
    rig = resolve(rigs.TWO_5090_TWO_4090)
    assert card_sets(rig) == [(0, 1, 2, 3), (0, 1, 2), (0, 2, 3), (0, 1), (0, 2), (2, 3), (0,), (2,)]


def test_eight_like_cards_are_tried_in_eight_numbers() -> None:
    assert [len(cards) for cards in card_sets(resolve(rigs.EIGHT_3090))] == [8, 7, 6, 5, 4, 3, 2, 1]


def test_with_vulkan_one_card_is_tried_where_all_are_alike() -> None:
    """Which one it is makes no difference then; of unlike cards the driver's order is unknown."""
    assert card_sets(resolve(parse_hardware("3x RX 7900 XTX, 7950X, 64GB, vulkan"))) == [(0, 1, 2), (0,)]
    assert card_sets(resolve(parse_hardware("RX 7900 XTX + RX 6800, 7950X, 64GB, vulkan"))) == [(0, 1)]


def test_of_three_kinds_of_cards_any_number_of_one_kind_is_tried_alone() -> None:
    """Qwen3-30B lay on eight cards of three kinds at 119 t/s; on two of the fast ones it makes 156."""
    rig = resolve(parse_hardware("3x RTX A6000 + 3x RTX 3090 + 2x Tesla P40, EPYC 7763, 768GB"))
    assert {(0,), (0, 1), (3,), (3, 4), (6,)} <= set(card_sets(rig))
    assert len(card_sets(rig)) < 20


def test_the_card_with_the_widest_link_is_tried_as_the_first() -> None:
    rig = resolve(TWO_UNLIKE)
    assert list(orders(rig, (0, 1))) == [(0, 1), (1, 0)]


def test_cards_on_equal_links_are_tried_in_the_runtimes_own_order_only() -> None:
    assert list(orders(resolve(rigs.EIGHT_3090), (0, 1))) == [(0, 1)]


def test_all_cards_on_every_layer_only_where_engine_and_architecture_have_it() -> None:
    rig = resolve(rigs.EIGHT_3090)

    def modes(engine: str, model: str, cache: str = "f16", date: str | None = None) -> set[str]:
        built = build(model, "q4_k_m")
        goal = resolve_goal(GoalRequest(), built.n_ctx_train)
        tried = list(candidates(engine, built, rig, goal, [CachePair(cache, cache)], date))  # type: ignore[arg-type]
        heads = max(layer.n_head_kv for layer in built.layers)  # llama.cpp issues 26837 and 24486
        assert not [c.cards for c in tried if c.flags.split_mode == "tensor" and heads % len(c.cards)]
        return {c.flags.split_mode for c in tried}

    assert modes("ik_llama.cpp", "Qwen3-32B") == {"layer", "graph"}
    assert modes("llama.cpp", "Qwen3-32B") == {"layer", "tensor"}
    assert modes("ik_llama.cpp", "Gemma-3-27B") == {"layer"}
    assert modes("llama.cpp", "DeepSeek-R1-0528") == {"layer"}
    assert modes("llama.cpp", "Qwen3-32B", "q8_0") == {"layer", "tensor"}  # since pull 23792
    assert modes("llama.cpp", "Qwen3-32B", "q8_0", "2026-05-15") == {"layer"}
    assert modes("llama.cpp", "Qwen3-32B", "f16", "2026-05-15") == {"layer", "tensor"}
    assert modes("llama.cpp", "Qwen3-32B", "q5_0") == {"layer"}, "it aborts (llama.cpp issue 27116)"
    assert modes("ik_llama.cpp", "Qwen3-32B", "q8_0") == {"layer"}, "its speed there is unknown"


def test_what_buffers_took_is_asked_of_as_many_cards_and_more_and_of_larger_batches() -> None:
    known, flags = KnownBuffers(), Flags(n_ubatch=1024, n_ctx=16384, split_mode="graph")
    known.note("ik_llama.cpp", flags, 4, 5e9)
    known.note("ik_llama.cpp", flags, 4, 4e9)

    assert known.least("ik_llama.cpp", flags, 4) == known.least("ik_llama.cpp", replace(flags, n_ubatch=2048), 6) == 4e9
    assert not known.least("ik_llama.cpp", flags, 3)
    assert not known.least("ik_llama.cpp", replace(flags, n_ubatch=512), 4)
    assert not known.least("ik_llama.cpp", replace(flags, cache_type_k="q8_0"), 4)
    assert not known.least("llama.cpp", flags, 4)


def test_cards_that_would_share_every_layer_are_not_placed_where_others_buffers_leave_no_room() -> None:
    model = build("Mistral-Large-123B", "q4_k_m")
    goal = resolve_goal(GoalRequest(), model.n_ctx_train)
    case, buffers = SearchCase("ik_llama.cpp", 0, model, resolve(rigs.EIGHT_3090), goal, Constraints()), KnownBuffers()
    plain, told = VariantSearch(case), VariantSearch(case, buffers)
    together = [one.candidate for one in told.queue if one.candidate.flags.split_mode == "graph"]
    least = min(together, key=lambda one: (len(one.cards), one.flags.n_ubatch))
    for n_cards in range(2, len(least.cards) + 1):
        for n_ubatch in MICRO_BATCHES:
            buffers.note("ik_llama.cpp", replace(least.flags, n_ubatch=n_ubatch), n_cards, 1e12)

    plain.place_first()
    told.place_first()

    assert [c.fitted.flags.split_mode for c in plain.contenders] == ["graph", "layer"]
    assert [c.fitted.flags.split_mode for c in told.contenders] == ["layer"]
    assert {one.why for one in told.rejected if one.candidate in together} == {"does not fit"}


@pytest.mark.parametrize("preset", some_of(["fastest", "chat"], 2))
def test_a_card_that_holds_nothing_is_not_in_a_config(preset: Preset) -> None:
    """The P40 are slower than RAM behind twelve channels: a layout may leave them empty."""
    rig = resolve(parse_hardware("RTX 4090 + 3x P40, EPYC 9355, 128GB DDR5-6400 12 channels"))
    model = build("Qwen3-235B-A22B", "iq4_xs")
    goal = resolve_goal(GoalRequest(preset=preset), model.n_ctx_train)
    contenders = search([SearchCase("ik_llama.cpp", 0, model, rig, goal, Constraints(reserve_mib=2048))])[0].contenders
    assert any(c.candidate.cards == (0,) for c in contenders)
    for c in contenders:
        assert all(d.weights + d.kv + d.compute for d in c.fitted.memory.devices[: len(c.candidate.cards)])


@pytest.mark.full
def test_fewer_cards_with_a_smaller_micro_batch_are_tried_beside_more_with_a_large_one() -> None:
    """A 27B whole on four nearly full RTX 4090 needs -ub 512; five cards with -ub 1024 came first, 7 % slower."""
    cards = [
        Gpu(name="RTX 4090", free_gib=4.5, pcie="4.0 x8"),
        Gpu(name="RTX 4090", count=3, free_gib=6.78, pcie="4.0 x16"),
        Gpu(name="RTX 3060", count=4, free_gib=4.43, pcie="4.0 x16"),
    ]
    rig = resolve(Hardware(gpus=cards, cpu=Cpu(model="EPYC 9354"), ram=Ram(total_gb=192)))
    model = build("Gemma-2-27B", "iq4_xs")
    asked = GoalRequest(preset="batch", prompt=900, depth=0, context=32_768, parallel=4)
    goal, constraints = resolve_goal(asked, model.n_ctx_train), Constraints(kv_types=["q8_0"])
    best = min(
        search([SearchCase("llama.cpp", 0, model, rig, goal, constraints)])[0].contenders, key=lambda c: c.cost(goal)
    )
    assert (len(best.candidate.cards), best.fitted.flags.n_ubatch) == (4, 512)


@pytest.mark.full
def test_rules_that_move_nothing_go_with_the_cards_they_name() -> None:
    """llama.cpp's own fit writes rules for a block that this model does not have, for cards that then hold nothing."""
    cards = [Gpu(name="RTX PRO 6000 Blackwell"), *[Gpu(name="RTX 4060 Ti", vram_gib=8, free_gib=4.2)] * 2]
    rig = resolve(Hardware(gpus=cards, ram=Ram(total_gb=192)))
    model = build("Llama-4-Scout", "iq4_xs")
    case = SearchCase(
        "llama.cpp", 0, model, rig, resolve_goal(GoalRequest(preset="long"), model.n_ctx_train), Constraints()
    )
    assert {c.candidate.cards for c in search([case])[0].contenders} == {(0,)}


@pytest.mark.full
def test_where_ram_is_a_little_short_only_as_much_as_needed_leaves_it() -> None:
    """Qwen3.5-397B on two nearly full RTX 4090, an A6000 and a 40HX with 192 GiB: another start of the search found a
    placement that was 2 % faster, with as little in RAM."""
    hardware = Hardware(
        gpus=[
            Gpu(name="RTX 4090", count=2, free_gib=6.3),
            Gpu(name="RTX A6000", pcie="4.0 x8"),
            Gpu(name="CMP 40HX", pcie="3.0 x16"),
        ],
        cpu=Cpu(model="Core i9-13900K"),
        ram=Ram(total_gb=192, type="DDR5", channels=2, mts=4800),
    )
    model = build("Qwen3.5-397B-A17B", "q4_k_m")
    goal = resolve_goal(GoalRequest(preset="long"), model.n_ctx_train)
    case = SearchCase("ik_llama.cpp", 0, model, resolve(hardware), goal, Constraints())
    best = min(search([case])[0].contenders, key=lambda c: c.typical)
    flags = replace(best.fitted.flags, overrides=(), tensor_split=())
    again = PlacementSearch(best.problem, flags, whole=False).search_from((0, 4, 4, 29, 61))
    assert isinstance(again, Placed)
    assert best.problem.seconds(best.fitted).expected <= again.seconds * 1.01


def test_a_cache_without_a_kernel_on_a_card_is_not_tried() -> None:
    """ik_llama.cpp's usual builds have q8_0 with q6_0, but not q6_0 for both, on cards before Volta with heads of 128,
    and only f16 with heads of 64."""
    new, old = (resolve(parse_hardware(f"{card}, 64GB")).cards for card in ("RTX 3090", "RTX 3090 + P40"))
    dense, small_heads, latent = (build(name, "q4_k_m") for name in ("Qwen3-14B", "gpt-oss-20b", "DeepSeek-R1-0528"))

    def tried(model: Model, cards: Sequence[Card]) -> set[CachePair]:
        return {pair for group in cache_pairs("ik_llama.cpp", model, cards, Constraints()) for pair in group}

    assert tried(dense, new) - tried(dense, old) == {("q6_0", "q6_0")}
    assert tried(small_heads, old) == {("f16", "f16")}
    assert tried(latent, old) == {("f16", "f16"), ("q8_0", "f16")}


def test_smaller_caches_wait_until_nothing_else_fits() -> None:
    model = build("Qwen3-14B", "q4_k_m")
    first, *later = cache_pairs("ik_llama.cpp", model, (), Constraints())
    assert first == [("f16", "f16"), ("q8_0", "q8_0")]
    assert ("q8_0", "q6_0") in [pair for group in later for pair in group]
    assert cache_pairs("llama.cpp", model, (), Constraints(kv_types=["q4_1"])) == [[("q4_1", "q4_1")]]


@pytest.mark.full
@pytest.mark.parametrize(("ram_gb", "cache"), some_of([(34, "q4_0"), (32, "q4_0"), (36, "q8_0")], 3))
def test_a_smaller_cache_is_tried_where_a_larger_one_fits_by_its_forecast_only(ram_gb: int, cache: str) -> None:
    """With 34 GB it was "does not fit", though 32 GB are enough."""
    hardware = parse_hardware(f"RTX 3090, Ryzen 7 5800X3D, {ram_gb}GB DDR4-3200, headless")
    body = ask("Llama-3.3-70B", "q4_k_m", hardware=hardware, goal=GoalRequest(context=65_536), engine="ik_llama.cpp")
    assert first(body).flags.cache_type_k == cache


def test_every_architecture_may_have_its_dense_part_on_a_gpu() -> None:
    """DeepSeek-V4's table of experts by token is of whole numbers, which no GPU multiplies by, and none has to."""
    for name in model_names():
        model = build(name, "q4_k_m")
        assert all(dense_part_runs_on_gpu(engine, model) for engine in ("ik_llama.cpp", "llama.cpp")), name


def test_v_stays_unquantised_where_the_engine_forces_flash_attention_off() -> None:
    model = build("Grok-2", "q4_k_m")
    for engine in ("ik_llama.cpp", "llama.cpp"):
        assert cache_pairs(engine, model, (), Constraints()) == [[("f16", "f16"), ("q8_0", "f16")]]
        assert cache_pairs(engine, model, (), Constraints(kv_types=["q4_0"])) == [[("q4_0", "f16")]]


def test_smaller_micro_batches_are_tried_where_larger_buffers_make_shares_uneven() -> None:
    model = build("Qwen3-14B", "q5_k_m")
    rig = resolve(parse_hardware("3x RTX 4070 Laptop 8GB, Ryzen 9 7950X, 64GB DDR5-5600"))
    goal = resolve_goal(GoalRequest(preset="agent"), model.n_ctx_train)
    found = search([SearchCase("ik_llama.cpp", 0, model, rig, goal, Constraints())])[0].contenders
    first = rank(found, goal).order[0]
    assert (first.fitted.flags.split_mode, first.fitted.flags.tensor_split) == ("graph", (1.0, 1.0, 1.0))


def test_the_last_try_of_cards_that_share_layers_is_the_one_with_the_smallest_buffers() -> None:
    model = build("Qwen3-32B", "q8_0")
    cards = [Gpu(name="RTX 4090"), Gpu(name="RTX 4060 Ti 8GB", count=7, free_gib=6.2)]
    rig = resolve(Hardware(gpus=cards, cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=96)))
    goal = resolve_goal(GoalRequest(preset="batch"), model.n_ctx_train)
    found = search([SearchCase("llama.cpp", 0, model, rig, goal, Constraints())])[0].contenders
    assert rank(found, goal).order[0].fitted.flags.split_mode == "tensor"


def test_cards_that_share_a_layer_get_shares_by_speed_up_to_their_room() -> None:
    assert even_shares([24.0, 24.0], [2.0, 1.0], 12.0) == [8.0, 4.0]
    assert even_shares([6.0, 24.0], [2.0, 1.0], 12.0) == [6.0, 6.0]
    assert sum(even_shares([6.0, 2.0], [1.0, 1.0], 12.0)) == 8.0


def test_something_is_found_where_no_layer_fits_the_card() -> None:
    """A card with 4.5 GiB free cannot hold a layer of this model with its cache: the CPU has all, the card may help."""
    hardware = Hardware(
        gpus=[Gpu(name="NVIDIA L4", free_gib=4.45)],
        cpu=Cpu(model="Ryzen 9 7950X"),
        ram=Ram(total_gb=384, type="DDR5", channels=2, mts=5600),
    )
    model = build("Command-R-35B", "q8_0")
    goal = resolve_goal(GoalRequest(preset="agent"), model.n_ctx_train)
    case = SearchCase("llama.cpp", 0, model, resolve(hardware), goal, Constraints())
    found = {c.candidate.strategy for c in search([case])[0].contenders}
    assert found
    assert found <= {"CPU only", "layers in RAM"}


@pytest.mark.full
def test_cards_behind_one_that_is_nearly_full_get_their_turn() -> None:
    """Every order that begins with the card in use fails; those that begin with another do not."""
    hardware = Hardware(
        gpus=[
            Gpu(name="RTX PRO 6000 Blackwell", pcie="3.0 x4"),
            Gpu(name="RTX 5090", count=2, pcie="4.0 x8"),
            Gpu(name="RTX PRO 6000 Blackwell", free_gib=5.14),
        ],
        cpu=Cpu(model="Threadripper PRO 7965WX"),
        ram=Ram(total_gb=384, type="DDR5", channels=8, mts=5200),
    )
    model = build("DeepSeek-V3.2", "q5_k_m")
    goal = resolve_goal(GoalRequest(preset="batch"), model.n_ctx_train)
    case = SearchCase("llama.cpp", 0, model, resolve(hardware), goal, Constraints())
    assert any(c.candidate.cards for c in search([case])[0].contenders)


@pytest.mark.parametrize(("model", "mixes", "hardware", "preset"), CASES, ids=NAMES)
def test_what_lies_on_the_cards_altogether_is_called_so_and_asks_for_no_threads(
    model: str, mixes: tuple[str, ...], hardware: Hardware, preset: Preset
) -> None:
    for outcome in found(model, mixes, repr(hardware), preset, False):
        for c in outcome.contenders:
            whole = strategy_of(c.fitted.placement) == "all on GPU"
            assert whole == (c.candidate.strategy == "all on GPU")
            assert whole == (c.fitted.flags.threads is None)


def test_a_third_card_gets_its_turn_where_two_hold_everything_by_forecast_only() -> None:
    """Llama-3.3-70B in Q4_K_M was offered with FFN in RAM and one P40, though three hold it whole."""
    rig = resolve(parse_hardware("3x Tesla P40, 2x Xeon E5-2680 v4, 128GB DDR4-2400 x8"))
    model = build("Llama-3.3-70B", "q4_k_m")
    goal = resolve_goal(GoalRequest(context=20_480), model.n_ctx_train)
    (outcome,) = search([SearchCase("llama.cpp", 0, model, rig, goal, Constraints())])
    best = min(outcome.contenders, key=lambda c: c.cost(goal))
    assert (best.candidate.strategy, len(best.candidate.cards)) == ("all on GPU", 3)


def test_the_head_is_put_on_the_card_where_whole_layers_lie_in_ram() -> None:
    """ik_llama.cpp leaves it in RAM with the first layer that lies there; a batch needs a copy of it on the card."""
    hardware = Hardware(
        gpus=[Gpu(name="RTX 3500 Ada Generation Laptop", free_gib=6.86)],
        cpu=Cpu(model="Ryzen 9 7950X"),
        ram=Ram(total_gb=32, type="DDR5", channels=2, mts=5600),
    )
    model = build("Ministral-3-8B", "q8_0")
    goal = resolve_goal(GoalRequest(preset="batch"), model.n_ctx_train)
    case = SearchCase("ik_llama.cpp", 0, model, resolve(hardware), goal, Constraints())
    whole = [c for c in search([case])[0].contenders if c.candidate.strategy == "layers in RAM" and c.candidate.cards]
    assert whole
    for c in whole:
        assert c.fitted.placement.head == 1
        assert c.fitted.placement.tensors["output.weight"] == 0
        without = replace(c.fitted.flags, overrides=tuple(o for o in c.fitted.flags.overrides if o.device == "CPU"))
        assert c.seconds.expected < 0.97 * c.problem.seconds(c.problem.tried(without)).expected


@pytest.mark.full
def test_smaller_batches_get_their_turn_where_the_buffers_of_large_ones_do_not_fit() -> None:
    """Nothing was said to fit, for eight sets of cards were tried with 8,192, which takes 40 GiB of the first card."""
    gpus = [Gpu(name="RTX 3090", count=7, free_gib=6.17), Gpu(name="RTX 5090")]
    case = _case("llama.cpp", "MiniMax-M3", "q3_k_m", "long", gpus, 192)
    found = VariantSearch(case)
    found.place_first()
    assert found.contenders


@pytest.mark.full
def test_what_a_large_batch_was_off_by_is_not_held_against_smaller_ones() -> None:
    """62 t/s were shown, beside 119 of the other engine: only -ub 4096 was placed, whose buffers left no room for even
    spans of layers (the cards of GenerelSchwerz/llama.cpp issue 96)."""
    cards, goal = Hardware(gpus=[Gpu(name="RTX 5070 Ti", count=2)]), GoalRequest(preset="agent", context=65_536)
    config = first(ask("Qwen3.5-35B-A3B", "q5_k_m", hardware=cards, engine="llama.cpp", goal=goal))
    assert config.speed[-1].tg_tps > 110
    first_card, second_card = config.flags.tensor_split
    assert abs(first_card - second_card) <= 2


def test_a_batch_is_no_larger_than_a_prompt_of_one_request_may_be() -> None:
    """While a prompt is evaluated in one batch, all others wait for their next token."""
    asked = GoalRequest(parallel=16, context=131_072)
    assert max(micro_batches(resolve_goal(asked, 131_072))) == 2048
    assert max(micro_batches(resolve_goal(replace(asked, parallel=1), 131_072))) == 8192


def test_a_card_with_little_memory_gets_a_small_micro_batch_before_it_is_left_out() -> None:
    """With 512 tokens the buffers for 131,072 of context do not fit, and the CPU alone is slower."""
    best = _best(_case("ik_llama.cpp", "MiMo-V2-Flash", "q5_k_m", "long", [Gpu(name="RTX 3090", free_gib=2.69)], 512))
    assert best.candidate.cards == (0,)
    assert best.fitted.flags.n_ubatch == 256


@pytest.mark.full
def test_cards_without_room_for_a_layer_are_left_out_before_all_cards_are() -> None:
    """Found by a random request whose answer was the CPU alone, three times as slow."""
    in_use = Hardware(
        gpus=[
            Gpu(name="RTX 4060 Ti 16GB", pcie="4.0 x16", free_gib=6.8),
            Gpu(name="RTX 3090", count=2, pcie="4.0 x16", free_gib=6.4),
            Gpu(name="RTX A2000 Laptop GPU", count=3, pcie="4.0 x16"),
        ],
        cpu=Cpu(model="Ryzen 9 7950X"),
        ram=Ram(total_gb=384, type="DDR5", channels=2, mts=5600),
    )
    body = ask(
        "MiniMax-M3-without-indexer",
        "exps=iq4_ks,*=q8_0",
        hardware=in_use,
        goal=GoalRequest(preset="long"),
        constraints=Constraints(reserve_mib=2048),
    )
    assert [one.device for one in first(body).devices] == ["CUDA0", "CUDA1", "CUDA2", "CPU"]


@pytest.mark.full
@pytest.mark.parametrize("starts", [(0, 81, 81, 81, 81, 81, 81), (0, 30, 32, 32, 39, 70, 81)])
def test_the_first_one_is_as_fast_as_what_other_spans_lead_to(starts: tuple[int, ...]) -> None:
    gpus = [Gpu(name="RTX 3090", count=6, free_gib=4.33)]
    best = _best(_case("ik_llama.cpp", "Nemotron-Super", "q3_k_m", "chat", gpus, 256))
    flags = replace(best.fitted.flags, overrides=(), tensor_split=())
    again = PlacementSearch(best.problem, flags, whole=False).search_from(starts)
    if isinstance(again, Placed):  # else nothing fits from these
        assert best.problem.seconds(best.fitted).expected <= again.seconds * 1.005


def test_a_larger_micro_batch_has_to_pay_in_prompts() -> None:
    """Ling-flash on an RTX 3060: 4,096 cost 1.8 % of the time, and made prompts 9 % faster."""
    case = _case("ik_llama.cpp", "Ling-flash-2.0", "q5_k_m", "chat", [Gpu(name="RTX 3060")], 192)
    contenders = search([case])[0].contenders
    first, best = rank(contenders, case.goal).order[0], min(contenders, key=lambda c: c.cost(case.goal))
    lost = first.cost(case.goal) - best.cost(case.goal)
    assert lost <= 0.1 * (first.speed.pp.expected / best.speed.pp.expected - 1)


def _case(engine: Engine, model: str, mix: str, preset: Preset, gpus: list[Gpu], ram_gb: int) -> SearchCase:
    ram = Ram(total_gb=ram_gb, type="DDR4", channels=8, mts=3200)
    built = build(model, mix)
    goal = resolve_goal(GoalRequest(preset=preset), built.n_ctx_train)
    rig = resolve(Hardware(gpus=gpus, cpu=Cpu(model="EPYC 7713"), ram=ram))
    return SearchCase(engine, 0, built, rig, goal, Constraints())


def _best(case: SearchCase) -> Contender:
    return min(search([case])[0].contenders, key=lambda c: c.cost(case.goal))


@pytest.mark.full
@pytest.mark.parametrize("free_gib", some_of([7.9, 7.7, 8.1], 3))
def test_a_cache_that_crowds_a_card_goes_to_ram_with_its_layers_where_that_costs_less(free_gib: float) -> None:
    """With experts alone in RAM a request costs 3 % more, and the cache has to be quantised."""
    case = _case("ik_llama.cpp", "ERNIE-4.5-21B-A3B", "q5_k_m", "batch", [Gpu(name="RTX 4090", free_gib=free_gib)], 192)
    best = _best(case._replace(goal=replace(case.goal, context=100_000, prompt=900)))
    assert best.candidate.strategy == "layers in RAM"
    assert best.fitted.flags.cache_type_k == "f16"


@pytest.mark.full
def test_a_dense_model_on_a_small_card_leaves_whole_layers_in_ram_where_that_is_as_fast() -> None:
    """With the FFN alone in RAM, all caches are on the card, and only quantised ones fit."""
    model = build("Llama-3.2-3B", "q8_0")
    rig = parse_hardware("RTX 4090 (4.18 GiB free), EPYC 9355, 256GB")
    goal = resolve_goal(GoalRequest(context=16_384), model.n_ctx_train)
    case = SearchCase("ik_llama.cpp", 0, model, resolve(rig), goal, Constraints())
    best = rank(search([case])[0].contenders, goal).order[0]
    assert best.candidate.strategy == "layers in RAM"


@pytest.mark.full
def test_where_two_cards_hold_whole_layers_a_third_does_too_though_the_caches_of_all_do_not_fit() -> None:
    """The forecast had FFN in RAM on three cards, which did not fit, so that two were advised: 21 % more time."""
    in_use = Hardware(
        gpus=[Gpu(name="RTX 3090", count=3, pcie="4.0 x8", free_gib=5.79)],
        cpu=Cpu(model="Ryzen 9 7950X"),
        ram=Ram(total_gb=128, type="DDR5", channels=2, mts=5600),
    )
    body = ask(
        "Gemma-2-27B",
        "exps=iq2_ks,*=iq5_ks",
        hardware=in_use,
        goal=GoalRequest(preset="long"),
        constraints=Constraints(reserve_mib=0),
    )
    assert [one.device for one in first(body).devices] == ["CUDA0", "CUDA1", "CUDA2", "CPU"]


@pytest.mark.full
def test_unlike_cards_share_every_layer_with_a_quantised_cache_too() -> None:
    """So randyjohnson11 runs Qwen3.8-27B (sudoingX/qwen38-mtp), 39.4 t/s; FFN on the other card was advised, 20 t/s."""
    model = build("Qwen3.5-27B", "iq4_xs")
    rig = resolve(parse_hardware("RTX 3080 Ti 12GB + RTX 3060 Ti 8GB, Ryzen 7 5800X, 32GB DDR4-3200"))
    goal = resolve_goal(GoalRequest(context=131_072), model.n_ctx_train)
    found = search([SearchCase("llama.cpp", 0, model, rig, goal, Constraints())])[0].contenders
    flags = rank(found, goal).order[0].fitted.flags
    assert (flags.split_mode, flags.overrides) == ("tensor", ())
    assert flags.cache_type_k in {"q8_0", "q4_0"}


@pytest.mark.full
def test_an_engines_own_placement_that_leaves_the_head_in_ram_is_placed_again_with_it_on_a_card() -> None:
    gpus = [Gpu(name="RTX 3090", count=2, free_gib=6.53, display=True), Gpu(name="RTX 3060", pcie="3.0 x4")]
    ram = Ram(total_gb=64, type="DDR5", channels=8, mts=5200)
    hardware = Hardware(gpus=gpus, cpu=Cpu(model="Threadripper PRO 7965WX"), ram=ram, os="Windows 11")
    config = first(ask("Qwen3-32B", "exps=iq2_ks,*=iq5_ks", hardware=hardware, goal=GoalRequest(preset="agent")))
    assert (config.strategy, config.flags.n_gpu_layers) == ("FFN in RAM", 999)


@pytest.mark.full
def test_whole_layers_in_ram_get_the_smallest_micro_batch_on_the_card_that_is_best() -> None:
    """With 4,096 tokens at a time the P40 was best; with fewer it holds more, but only the 3060 was tried so."""
    hardware = Hardware(
        gpus=[Gpu(name="RTX 3060", free_gib=4.32), Gpu(name="Tesla P40", free_gib=5.65)],
        cpu=Cpu(model="EPYC 9355"),
        ram=Ram(total_gb=512, type="DDR5", channels=12, mts=6400),
    )
    model = build("GLM-5.3-Flash", "q4_k_m")
    goal = resolve_goal(GoalRequest(), model.n_ctx_train)
    (outcome,) = search([SearchCase("llama.cpp", 0, model, resolve(hardware), goal, Constraints())])
    best = min(outcome.contenders, key=lambda c: c.cost(goal))
    assert 1 in best.candidate.cards
    assert best.typical < 0.9 * min(c.typical for c in outcome.contenders if c.candidate.cards == (0,))
