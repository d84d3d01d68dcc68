"""The pick *Simple*: a far shorter command for the first config's own placement, where that costs little."""

from __future__ import annotations

import pytest

from bench.judgment import words_of
from service.engine.catalogue import resolve
from service.engine.check.run import check
from service.engine.goal import Constraints, EngineChoice, GoalRequest, resolve_goal
from service.engine.hardware_text import parse_hardware
from service.engine.planner.pricing.candidate import strategy_of
from service.engine.planner.search.all_variants import search
from service.engine.planner.search.outcome import SearchCase
from service.engine.planner.search.simple import simplified
from tests.engine.planner.asking import ask, first
from tests.models import build


@pytest.mark.full
def test_a_first_config_with_rules_has_a_simple_one_beside_it() -> None:
    hardware = parse_hardware("RTX 2080 Ti 11GB, Ryzen 7 3800X, 32GB DDR4-3600")
    best, *others = ask("Nemotron-3-Nano-30B-A3B", "q4_k_m", hardware=hardware).configs
    assert "-ot" in best.commands.server
    simple = next(c for c in others if c.pick and c.pick.name == "simple")
    assert words_of(simple.commands.server) < words_of(best.commands.server)
    assert (simple.engine, simple.variant, simple.strategy) == (best.engine, best.variant, best.strategy)
    assert simple.goal_seconds[1] <= 1.15 * best.goal_seconds[1]
    assert all(device.fits for device in simple.devices)


def test_a_shorter_command_puts_nothing_in_ram_of_what_is_all_on_gpu() -> None:
    model = build("Qwen3-30B-A3B", "q5_k_m")
    rig = resolve(parse_hardware("2x RTX 3060 12GB, Ryzen 9 7950X, 64GB"))
    goal = resolve_goal(GoalRequest(context=32768), model.n_ctx_train)
    found = search([SearchCase("llama.cpp", 0, model, rig, goal, Constraints())])[0].contenders
    split = [c for c in found if c.candidate.strategy == "all on GPU" and c.fitted.flags.overrides]
    assert split
    assert {strategy_of(simplified(c).fitted.placement) for c in split} == {"all on GPU"}


@pytest.mark.full
def test_where_the_head_is_the_embedding_ik_leaves_whole_layers_in_ram_by_its_own_fit() -> None:
    # `-ngl` keeps a tied head in RAM as soon as one layer lies there, and no rule moves it alone
    small = parse_hardware("RTX 5090 3.78GB free, Ryzen 9 7950X, 128GB DDR5-5600")
    config = first(ask("Qwen3-4B", "q8_0", hardware=small, engine="ik_llama.cpp"))
    server = config.commands.server
    assert "--fit" in server
    assert "-ngl" not in server
    assert "of 37 layers are on CUDA0" in config.reasons[0].text
    checked = check(server, config.engine, build("Qwen3-4B", "q8_0"), resolve(small))
    assert [row.total_mib for row in checked.memory.devices] == [row.total_mib for row in config.devices]


def test_layers_without_experts_count_in_the_short_command_of_an_engine_that_counts_from_the_first() -> None:
    """Of 52 layers 23 have experts, layer 1 first: thirteen of them in RAM are `-ncmoe 30`."""
    rig = parse_hardware("RTX 3060 12GB, Ryzen 7 3800X, 32GB DDR4-3600, headless")
    config = first(ask("Nemotron-3-Nano-30B-A3B", "q4_k_m", hardware=rig, engine="llama.cpp"))
    assert "-ncmoe 30" in config.commands.server
    assert "-ot" not in config.commands.server
    assert config.strategy == "FFN in RAM"
    assert config.devices[0].free_mib > 512


@pytest.mark.full
def test_all_experts_in_ram_are_one_word_also_where_layers_lie_there_as_the_engine_places_them() -> None:
    """It was a rule for each of 44 layers, the unused one for drafting among them."""
    rig = parse_hardware("RTX 4090 6.0GB free, Ryzen 7 7800X3D, 192GB DDR5-5200")
    config = first(ask("Hy3", "iq4_xs", "q3_k_m", hardware=rig, engine="llama.cpp"))
    assert config.strategy == "layers in RAM"
    assert " -cmoe " in config.commands.server
    assert "-ot" not in config.commands.server


@pytest.mark.full
def test_a_short_command_has_the_largest_micro_batch_that_it_leaves_room_for() -> None:
    rig, goal = parse_hardware("RTX 4090, Ryzen 9 7950X, 64GB DDR5-6000"), GoalRequest(context=200_000)
    config = first(ask("gpt-oss-120b", "exps=mxfp4,*=q8_0", hardware=rig, goal=goal, engine="llama.cpp"))
    assert "-ncmoe" in config.commands.server
    assert config.flags.n_ubatch == config.flags.n_batch == 2048
    assert all(device.fits for device in config.devices)


def test_a_short_command_takes_the_larger_micro_batch_for_which_there_is_room() -> None:
    """The long one moves pieces of layers to make room for micro-batches of 1,024; with whole layers 4,096 fit as well,
    and long prompts take two thirds of the time."""
    rig = parse_hardware("RTX 4080 16GB, i7-13700K, 64GB DDR5-5600")
    config = first(ask("gpt-oss-120b", "exps=mxfp4,*=q8_0", hardware=rig, engine="llama.cpp"))
    assert "-ncmoe" in config.commands.server
    assert config.flags.n_ubatch == config.flags.n_batch == 4096
    assert all(device.fits for device in config.devices)


@pytest.mark.parametrize(("batch", "n_ubatch"), [("-b 2048", 2048), ("-b 8192", 4096)])
def test_a_short_command_takes_the_larger_micro_batch_within_the_batch_that_the_user_states(
    batch: str, n_ubatch: int
) -> None:
    rig = parse_hardware("RTX 4080 16GB, i7-13700K, 64GB DDR5-5600")
    limits = Constraints(engines=[EngineChoice("llama.cpp")], keep_flags=[batch])
    config = first(ask("gpt-oss-120b", "exps=mxfp4,*=q8_0", hardware=rig, constraints=limits))
    assert "-ncmoe" in config.commands.server
    assert (config.flags.n_ubatch, config.flags.n_batch) == (n_ubatch, int(batch[3:]))
