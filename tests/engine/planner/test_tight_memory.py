"""Where memory is short by little: smaller buffers, other shares or a smaller cache make room, and are tried."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.config import Engine
from service.engine.goal import Constraints, GoalRequest, resolve_goal
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.planner.ranking.rank import Contender
from service.engine.planner.search.all_variants import search
from service.engine.planner.search.outcome import SearchCase
from tests.models import build


def contenders(
    hardware: Hardware, engines: tuple[Engine, ...], model: tuple[str, str], goal: GoalRequest, constraints: Constraints
) -> list[Contender]:
    """What a search finds for one variant, the best first."""
    built, rig = build(*model), resolve(hardware)
    resolved = resolve_goal(goal, built.n_ctx_train)
    found = search([SearchCase(engine, 0, built, rig, resolved, constraints) for engine in engines])
    return sorted((c for one in found for c in one.contenders), key=lambda c: c.cost(resolved))


def test_a_small_micro_batch_is_placed_though_the_buffers_of_a_large_one_took_most_of_the_card() -> None:
    hardware = Hardware(
        gpus=[Gpu(name="RTX 3090")],
        cpu=Cpu(model="Ryzen 7 5800X3D"),
        ram=Ram(total_gb=192, type="DDR4", channels=2, mts=3600),
    )
    only_q8 = Constraints(kv_types=["q8_0"], reserve_mib=1557)
    best = contenders(hardware, ("llama.cpp",), ("Command-R-35B", "q2_k"), GoalRequest(preset="fastest"), only_q8)[0]
    assert (best.engine, best.fitted.flags.n_ubatch) == ("llama.cpp", 512)


def test_cards_that_share_layers_get_a_smaller_micro_batch_before_more_cards_do() -> None:
    hardware = Hardware(
        gpus=[Gpu(name="RTX 3060", count=6, pcie="4.0 x16"), Gpu(name="RTX 4060 Ti 16GB", count=2, free_gib=5.07)],
        cpu=Cpu(model="Ryzen 7 5800X3D"),
        ram=Ram(total_gb=128, type="DDR4", channels=2, mts=3600),
    )
    goal = GoalRequest(preset="fastest", depth=0, context=4096)
    tight = Constraints(kv_types=["q8_0"], reserve_mib=1200)
    best = contenders(hardware, ("llama.cpp",), ("Llama-4-Scout", "q2_k"), goal, tight)[0]
    assert (best.fitted.flags.split_mode, len(best.candidate.cards)) == ("tensor", 4)
    assert best.fitted.flags.n_ubatch == 512


@pytest.mark.full
def test_what_fits_with_the_smallest_cache_alone_is_found_after_many_that_do_not() -> None:
    hardware = Hardware(
        gpus=[Gpu(name="RTX 3060", count=2, pcie="4.0 x16"), Gpu(name="RTX 5090", pcie="4.0 x8")],
        cpu=Cpu(model="Core i9-13900K"),
        ram=Ram(total_gb=32, type="DDR5", channels=2, mts=6000),
    )
    model, goal = ("Command-R-35B", "exps=iq2_ks,*=iq5_ks"), GoalRequest(context=100_000)
    found = contenders(hardware, ("ik_llama.cpp",), model, goal, Constraints())
    assert found
    assert found[0].fitted.flags.cache_type_k == "q4_0"


@pytest.mark.full
def test_cards_that_hold_nothing_are_left_out_of_the_command() -> None:
    """`-ts 23,26,0,8,0` on five cards was shown, because the search from three alone did not find those spans."""
    hardware = Hardware(gpus=[Gpu(name="RTX 5090", count=8, free_gib=4.17)])
    goal = GoalRequest(preset="fastest", prompt=1100)
    found = contenders(hardware, ("llama.cpp",), ("Nemotron-Nano-9B-v2", "q3_k_m"), goal, Constraints(reserve_mib=0))
    assert all(device.weights for c in found for device in c.fitted.memory.devices[:-1])


@pytest.mark.full
def test_a_rule_that_makes_room_without_moving_anything_names_a_tensor_that_the_model_has() -> None:
    """LFM2's output norm is called token_embd_norm: a rule for output_norm matched nothing."""
    cards = [Gpu(name="NVIDIA L4", count=2, free_gib=6.22), Gpu(name="RTX 3060", free_gib=5.37)]
    hardware = Hardware(gpus=cards, cpu=Cpu(model="Core i9-13900K"), ram=Ram(total_gb=512, type="DDR5", mts=6000))
    goal, constraints = GoalRequest(context=100_000), Constraints(kv_types=["q8_0"])
    found = contenders(hardware, ("llama.cpp",), ("LFM2-8B-A1B", "q8_0"), goal, constraints)
    rules = [rule.pattern for one in found for rule in one.fitted.flags.overrides]
    assert r"blk\.23\.attn_norm" in rules
    assert "output_norm" not in rules
