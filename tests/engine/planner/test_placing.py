"""The best placement for given flags: what it costs, that it fits, and that nothing small is left undone."""

from __future__ import annotations

import itertools
import random

import pytest
from msgspec.structs import replace

from service.engine.config import Engine, Flags, Override
from service.engine.engines.ik_llama_cpp.placement import split_layers as split_ik
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from service.engine.memory.device_shares import split_layers as split_llama
from service.engine.planner.pricing import costs
from service.engine.planner.pricing.blocks import blocks_of
from service.engine.planner.pricing.costs import costs_of
from service.engine.planner.pricing.fit import Fitted, Placed, Problem, Shortfall, check, slack
from service.engine.planner.search.knapsack import OPTIONS, Item, one_block, pack
from service.engine.planner.search.layout_flags import tensor_split_for
from service.engine.planner.search.placement import PlacementSearch, best_placement
from service.engine.planner.search.simple import filled
from service.engine.run.placement import place
from service.engine.speed.predict import goal_seconds
from tests import rigs
from tests.engine.planner.asking import ask, first
from tests.engine.planner.problems import flags_of, problem_of
from tests.models import build

TWO_UNLIKE = Hardware(
    gpus=[Gpu(name="RTX 4090"), Gpu(name="RTX 3060")],
    cpu=Cpu(model="Ryzen 9 7950X"),
    ram=Ram(total_gb=192, type="DDR5", channels=2, mts=5600),
)
CASES: tuple[tuple[Hardware, Engine, str, str], ...] = (
    (rigs.TWO_5090_TWO_4090, "ik_llama.cpp", "DeepSeek-R1-0528", "ffn_down_exps=iq5_ks_r4,exps=iq4_ks_r4,*=q8_0"),
    (rigs.TWO_5090_TWO_4090, "llama.cpp", "Qwen3-235B-A22B", "q4_k_m"),
    (rigs.ONE_3090_DESKTOP, "ik_llama.cpp", "GLM-4.5-Air", "q4_k_m"),
    (rigs.ONE_3090_DESKTOP, "llama.cpp", "Llama-3.3-70B", "q4_k_m"),
    (rigs.LAPTOP_6GB, "ik_llama.cpp", "Qwen3-30B-A3B", "q4_k_m"),
    (TWO_UNLIKE, "ik_llama.cpp", "gpt-oss-120b", "exps=mxfp4,*=q8_0"),
    (TWO_UNLIKE, "llama.cpp", "Qwen3-Next-80B-A3B", "q4_k_m"),
)
NAMES = [f"{model}, {engine}" for _, engine, model, _ in CASES]


def placed(problem: Problem, flags: Flags) -> Placed:
    found = best_placement(problem, flags)
    assert isinstance(found, Placed), found
    return found


def seconds(problem: Problem, found: Placed) -> float:
    return goal_seconds(problem.run(found.fitted.flags), problem.goal).expected


def test_a_rule_that_moves_nothing_makes_room_where_only_the_copies_for_several_micro_batches_do_not_fit() -> None:
    two = Hardware(gpus=[Gpu(name="RTX 3090")] * 2, cpu=Cpu(model="Ryzen 9 7950X"), ram=Ram(total_gb=96))
    problem = problem_of(two, "llama.cpp", "Llama-3.3-70B", "q4_k_m")
    found = best_placement(problem, replace(flags_of(problem, 1024, "all on GPU"), n_ctx=18432), whole=True)
    assert isinstance(found, Placed)
    plain = check(problem, replace(found.fitted.flags, overrides=()))
    assert isinstance(plain, Shortfall)
    without = problem.run(replace(found.fitted.flags, overrides=()))
    assert without.placement == found.fitted.placement
    assert without.may_pipeline
    assert not found.fitted.run.may_pipeline


def test_shares_of_every_layer_that_stop_the_engine_do_not_fit() -> None:
    unlike = Hardware(gpus=[Gpu(name="A100 80GB"), Gpu(name="RTX 5090")], cpu=Cpu(model="Threadripper PRO 7965WX"))
    problem = problem_of(unlike, "ik_llama.cpp", "Qwen3-235B-A22B", "exps=iq2_ks,*=iq5_ks")
    flags = replace(flags_of(problem, 512, "all on GPU"), n_ctx=4096, split_mode="graph")
    assert isinstance(check(problem, replace(flags, tensor_split=(20.0, 40.0))), Fitted)
    assert isinstance(check(problem, replace(flags, tensor_split=(15.5, 47.5))), Shortfall)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_placement_fits_under_the_reserve_and_costs_what_the_speed_model_says(
    case: tuple[Hardware, Engine, str, str],
) -> None:
    problem = problem_of(*case)
    found = placed(problem, flags_of(problem))
    assert min(slack(problem, found.fitted.memory)) >= 0
    assert found.seconds == pytest.approx(seconds(problem, found), rel=0.01)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_up_and_gate_stay_together_and_attention_stays_on_the_cards(case: tuple[Hardware, Engine, str, str]) -> None:
    problem = problem_of(*case)
    placement = placed(problem, flags_of(problem)).fitted.placement
    for name, device in placement.tensors.items():
        if ".ffn_up" in name:
            assert placement.tensors.get(name.replace("_up", "_gate"), device) == device
        if ".attn_" in name:
            assert device < placement.n_devices


@pytest.mark.parametrize("case", CASES[:3], ids=NAMES[:3])
def test_one_more_piece_on_any_card_does_not_fit_or_is_no_faster(case: tuple[Hardware, Engine, str, str]) -> None:
    problem = problem_of(*case)
    found = placed(problem, flags_of(problem))
    flags, placement = found.fitted.flags, found.fitted.placement
    best = seconds(problem, found)
    in_ram = [n for n, d in placement.tensors.items() if d == placement.n_devices and ".ffn_down_exps.weight" in n]
    for name, device in itertools.product(random.Random(1).sample(in_ram, 3), problem.devices):
        layer = name.split(".")[1]
        rule = Override(rf"blk\.{layer}\.ffn_down_exps", device.name)
        other = replace(flags, overrides=(rule, *flags.overrides))
        tried = problem.tried(other)
        fits = min(slack(problem, tried.memory)) >= 0
        assert not fits or goal_seconds(tried.run, problem.goal).expected > best * 0.99


def test_a_model_that_fits_is_spread_so_that_fast_cards_have_the_most() -> None:
    problem = problem_of(rigs.TWO_5090_TWO_4090, "ik_llama.cpp", "Llama-3.3-70B", "q4_k_m")
    found = best_placement(problem, flags_of(problem, 512, "all on GPU"), whole=True)
    assert isinstance(found, Placed)
    owners = found.fitted.placement.layers
    assert found.fitted.flags.overrides == ()
    assert owners.count(0) + owners.count(1) > owners.count(2) + owners.count(3)


def test_experts_lie_apart_from_attention_on_the_fastest_card_where_that_pays_though_all_fits() -> None:
    unlike = Hardware(
        gpus=[Gpu(name="RTX PRO 6000 Blackwell"), Gpu(name="RTX A6000", count=4)],
        cpu=Cpu(model="Ryzen 9 7950X"),
        ram=Ram(total_gb=96, type="DDR5", channels=2, mts=5600),
    )
    problem = problem_of(unlike, "ik_llama.cpp", "Qwen3-Coder-480B-A35B", "q3_k_m", "long", first=1)
    flags = flags_of(problem, 2048, "all on GPU")
    found, together = best_placement(problem, flags, whole=True), PlacementSearch(problem, flags, whole=True).best()
    assert isinstance(found, Placed)
    assert isinstance(together, Placed)
    assert found.seconds < 0.98 * together.seconds
    placement = found.fitted.placement
    assert placement.layers.count(1) > together.fitted.placement.layers.count(1)
    assert not any(device == placement.n_devices for name, device in placement.tensors.items() if "_exps" in name)
    assert min(slack(problem, found.fitted.memory)) >= 0


def test_what_fits_the_cards_only_in_pieces_is_found_though_one_card_cannot_hold_all_attention() -> None:
    unlike = Hardware(
        gpus=[Gpu(name="RTX 3080"), Gpu(name="RTX 4060 Ti 16GB", count=2)],
        cpu=Cpu(model="Ryzen 9 7950X"),
        ram=Ram(total_gb=128),
    )
    problem = problem_of(unlike, "llama.cpp", "GLM-4-32B", "q8_0", "long")
    flags = replace(flags_of(problem, 1024, "all on GPU"), cache_type_k="q8_0", cache_type_v="q8_0")
    assert isinstance(PlacementSearch(problem, flags, whole=True).best(), Shortfall)
    found = best_placement(problem, flags, whole=True)
    assert isinstance(found, Placed)
    in_ram = [n for n, d in found.fitted.placement.tensors.items() if d == found.fitted.placement.n_devices]
    assert in_ram == ["token_embd.weight"]
    assert min(slack(problem, found.fitted.memory)) >= 0


def test_pieces_too_many_move_to_other_cards_and_the_layers_stay_spread() -> None:
    """The search gave the first card all attention, and took half as long again as the plain split."""
    four = Hardware(
        gpus=[Gpu(name="RTX 3090", count=4)], cpu=Cpu(model="Threadripper PRO 5995WX"), ram=Ram(total_gb=64)
    )
    mix = "ffn_down_exps=iq3_s,exps=iq3_xxs,attn=q5_K,ffn=q5_K,token_embd=q4_K,*=q6_K"
    problem = problem_of(four, "llama.cpp", "MiniMax-M2", mix, "agent")
    flags = replace(flags_of(problem, 512, "all on GPU"), cache_type_k="q4_0", cache_type_v="q4_0")
    by_hand = replace(
        flags,
        tensor_split=(16.0, 16.0, 16.0, 15.0),
        overrides=(Override(r"blk\.(15|31|47)\.ffn_down_exps", "CUDA3"),),
    )
    assert isinstance(check(problem, replace(by_hand, overrides=())), Shortfall)
    assert isinstance(usual := check(problem, by_hand), Fitted)
    found = best_placement(problem, flags, whole=True)
    assert isinstance(found, Placed)
    assert seconds(problem, found) < problem.seconds(usual).expected * 1.01


def test_small_cards_hold_pieces_where_a_large_micro_batch_leaves_no_room_for_attention() -> None:
    unlike = Hardware(
        gpus=[Gpu(name="RTX 5090", count=2, pcie="4.0 x16"), Gpu(name="RTX 3060", count=2, pcie="3.0 x4")],
        cpu=Cpu(model="Threadripper PRO 7965WX"),
        ram=Ram(total_gb=384, type="DDR5", channels=8, mts=5200),
    )
    problem = problem_of(unlike, "ik_llama.cpp", "Kimi-K2-Instruct", "q3_k_m", "long")
    found = best_placement(problem, replace(flags_of(problem, 4096), cache_type_k="q8_0"))
    assert isinstance(found, Placed)
    placement = found.fitted.placement
    assert not {2, 3} & {*placement.layers}
    assert {2, 3} <= {device for name, device in placement.tensors.items() if "_exps" in name}


def test_pieces_on_other_cards_are_tried_from_the_spans_of_whole_blocks_too() -> None:
    """The search from spans by memory left a piece in RAM; with a clock of the CPU 2 % higher it did not."""
    in_use = Hardware(
        gpus=[Gpu(name="RTX PRO 6000 Blackwell", count=5, pcie="4.0 x16", free_gib=5.04), Gpu(name="GTX 980M")],
        cpu=Cpu(model="Core i9-13900K"),
        ram=Ram(total_gb=384, type="DDR5", channels=2, mts=6000),
    )
    problem = problem_of(in_use, "ik_llama.cpp", "Gemma-2-27B", "iq4_xs", "quality", reserve_mib=2048)
    flags = replace(flags_of(problem, 512, "all on GPU"), cache_type_k="q4_0", cache_type_v="q4_0")
    whole = PlacementSearch(problem, flags, whole=True).best()
    found = best_placement(problem, flags, whole=True)
    assert isinstance(whole, Placed)
    assert isinstance(found, Placed)
    assert found.seconds < 0.8 * whole.seconds


def test_a_model_that_fits_no_card_is_refused_with_the_bytes_that_are_missing() -> None:
    problem = problem_of(rigs.LAPTOP_6GB, "ik_llama.cpp", "Llama-3.3-70B", "q4_k_m")
    found = best_placement(problem, flags_of(problem, 512, "all on GPU"), whole=True)
    assert isinstance(found, Shortfall)
    assert found.device == "CUDA0"
    assert found.n_bytes > 30 * 2**30


@pytest.mark.parametrize("engine", ["ik_llama.cpp", "llama.cpp"])
def test_shares_give_every_card_the_run_of_blocks_that_is_meant(engine: Engine) -> None:
    rng, model = random.Random(3), build("Qwen3-30B-A3B", "q4_k_m")
    for _ in range(50):
        n_cards = rng.randint(2, 8)
        free = [rng.randrange(8, 97) * 2**30 for _ in range(n_cards)]
        starts = (0, *sorted(rng.randint(0, model.n_layer + 1) for _ in range(n_cards - 1)), model.n_layer + 1)
        flags = tensor_split_for(engine, model, Flags(n_ctx=16384, n_ubatch=2048), free, starts)
        assert flags is not None
        owners = split_ik(model, flags, free) if engine == "ik_llama.cpp" else split_llama(model, flags, free)
        assert [owners.count(d) for d in range(n_cards)] == [b - a for a, b in itertools.pairwise(starts)]
        assert tuple(owners[:-1]) == place(engine, model, flags, free).layers


def test_the_knapsack_finds_what_trying_everything_finds() -> None:
    rng = random.Random(5)
    for _ in range(60):
        offers = [_random_offer(rng, kind) for kind in range(rng.randint(1, 2))]
        room = rng.randint(0, sum(offer.all_bytes for offer in offers))
        assert pack(offers, room).saved == pytest.approx(_most_saved(offers, room), rel=0.01)


def _random_offer(rng: random.Random, kind: int) -> Item:
    pair, down = rng.randint(50, 90), rng.randint(25, 50)
    rate = rng.uniform(0.5, 2)
    n_blocks, saved = rng.randint(1, 5), (rate * (pair + down) + 3, rate * pair, rate * down)
    return one_block(kind, (pair + down, pair, down), saved).times(n_blocks)


def _most_saved(offers: list[Item], room: int) -> float:
    choices = [
        [by for by in itertools.product(range(offer.n_blocks + 1), repeat=len(OPTIONS)) if sum(by) <= offer.n_blocks]
        for offer in offers
    ]
    best = 0.0
    for taken in itertools.product(*choices):
        pairs = [
            (n, b, s)
            for by, o in zip(taken, offers, strict=True)
            for n, b, s in zip(by, o.n_bytes, o.saved, strict=True)
        ]
        if sum(n * b for n, b, _ in pairs) <= room:
            best = max(best, sum(n * s for n, _, s in pairs))
    return best


@pytest.mark.parametrize("engine", ["ik_llama.cpp", "llama.cpp"])
def test_experts_in_ram_are_of_layers_side_by_side_also_where_kinds_of_attention_alternate(engine: Engine) -> None:
    problem = problem_of(rigs.LAPTOP_6GB, engine, "gpt-oss-20b", "exps=mxfp4,*=q8_0")
    assert len({layer.n_swa for layer in problem.model.layers}) > 1
    placement = placed(problem, flags_of(problem, 512)).fitted.placement
    in_ram = {
        int(name.split(".")[1])
        for name, device in placement.tensors.items()
        if "_exps." in name and device == placement.n_devices
    }
    assert 1 < len(in_ram) < problem.model.n_layer
    assert in_ram == set(range(min(in_ram), max(in_ram) + 1))


SEVERAL_CARDS = [case for case in CASES if len(case[0].gpus or ()) > 1]


@pytest.mark.parametrize("case", SEVERAL_CARDS, ids=[f"{model}, {engine}" for _, engine, model, _ in SEVERAL_CARDS])
def test_the_plainest_placement_has_the_first_layers_in_ram_and_fills_every_card(
    case: tuple[Hardware, Engine, str, str],
) -> None:
    problem = problem_of(*case)
    found = filled(problem, flags_of(problem))
    assert found is not None
    placement, n_devices = found.memory.placement, found.memory.placement.n_devices
    in_ram = [i for i in problem.model.moe_layers if placement.tensors[f"blk.{i}.ffn_down_exps.weight"] == n_devices]
    assert in_ram == [*problem.model.moe_layers[: len(in_ram)]]
    assert (found.flags.n_cpu_moe > 0) == (problem.engine == "llama.cpp")
    assert len(found.flags.overrides) == (problem.engine == "ik_llama.cpp")
    assert min(slack(problem, found.memory)) >= 0
    experts = sum(t.nbytes for t in problem.model.by_layer[problem.model.n_layer // 2] if "_exps." in t.name)
    assert all(left < 2 * experts for left in slack(problem, found.memory)[:-1])
    assert isinstance(check(problem, found.flags), Fitted)


@pytest.mark.parametrize(("hardware", "engine", "model"), [
    (rigs.EIGHT_3090, "ik_llama.cpp", "DeepSeek-R1-0528"),
    (rigs.EIGHT_3090, "llama.cpp", "Llama-3.3-70B"),
    (rigs.TWO_5090_TWO_4090, "llama.cpp", "Qwen3.5-122B-A10B"),
])  # fmt: skip
def test_like_cards_cost_what_each_would_if_it_were_worked_out_alone(
    hardware: Hardware, engine: Engine, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(hardware, engine, model, "q4_K_M")
    flags, blocks = flags_of(problem), blocks_of(problem.model, engine)
    together = costs_of(problem, flags, blocks)
    monkeypatch.setattr(costs, "_alike", lambda machine: range(len(machine.cards)))

    assert costs_of(problem, flags, blocks) == together


def test_cards_that_are_as_fast_either_way_share_the_layers_evenly() -> None:
    """27, 16 and 22 layers took as long, with 561 MiB left on one P100 and 6,700 on the next."""
    hardware = parse_hardware("3x Tesla P100 16GB, 2x E5-2680 v4, 128GB DDR4-2400")
    rows = first(ask("Qwen3-32B", "q8_0", hardware=hardware, engine="llama.cpp")).devices[:-1]
    assert len(rows) == 3
    assert min(row.free_mib for row in rows) > 2_500
