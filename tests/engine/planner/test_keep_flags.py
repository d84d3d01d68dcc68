"""Flags that the user keeps: in every config as given, and reported only where they hurt."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from service.engine.advice import AdviceBody
from service.engine.catalogue import resolve
from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.errors import InvalidFlags
from service.engine.goal import Constraints, EngineChoice, GoalRequest
from service.engine.hardware import Hardware
from service.engine.hardware_text import parse_hardware
from tests import rigs
from tests.checks import problems_of
from tests.engine.planner.asking import ask, first
from tests.models import build

QWEN = "Qwen3-235B-A22B"


def kept(
    *flags: str, engine: str | None = None, goal: GoalRequest | None = None, hardware: Hardware = rigs.ONE_3090_DESKTOP
) -> AdviceBody:
    engines = [EngineChoice(engine)] if engine else None  # type: ignore[arg-type]
    limits = Constraints(engines=engines, keep_flags=list(flags))
    body = ask(QWEN, "q2_K", hardware=hardware, goal=goal, constraints=limits)
    rig = resolve(hardware)
    assert [p for c in body.configs for p in problems_of(c, build(QWEN, "q2_K"), rig)] == []
    return body


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (("-ub 512",), {"n_ubatch": 512}),
        pytest.param(("-ub 3000",), {"n_ubatch": 3000}, marks=pytest.mark.full),
        (("-b 512",), {"n_batch": 512, "n_ubatch": 512}),
        (("-ctk q8_0", "-ctv q8_0"), {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
        (("-t 8", "--no-mmap"), {"threads": 8, "mmap": False}),
        pytest.param(("--ctx-size 40960",), {"n_ctx": 40_960}, marks=pytest.mark.full),
        pytest.param(("-ot exps=CPU",), {"n_gpu_layers": 999}, marks=pytest.mark.full),
        (("llama-server -m x.gguf -ncmoe 85 -ub 1024",), {"n_cpu_moe": 85, "n_ubatch": 1024}),
    ],
)
def test_every_config_has_what_is_kept(flags: tuple[str, ...], fields: dict[str, object]) -> None:
    body = kept(*flags)
    assert {c.engine for c in body.configs} == {"ik_llama.cpp", "llama.cpp"}
    for config in body.configs:
        parsed = parse(config.commands.server, config.engine)
        assert {name: getattr(parsed.flags, name) for name in fields} == fields


def test_a_small_micro_batch_that_is_kept_is_reported_with_what_it_costs() -> None:
    notes = first(kept("-ub 512", engine="llama.cpp", goal=GoalRequest(prompt=8000))).notes
    said = next(note for note in notes if note.startswith("you asked for -ub 512: "))
    assert "-ub 4096" in said or "-ub 8192" in said
    assert "PP +" in said


def test_what_costs_nothing_is_not_reported() -> None:
    assert not any("-t 16" in note for note in first(kept("-t 16", engine="llama.cpp")).notes)


def test_all_experts_in_ram_that_are_kept_stay_there() -> None:
    config = first(kept("-ot exps=CPU", engine="llama.cpp"))
    assert [(o.pattern, o.device) for o in config.flags.overrides] == [("exps", "CPU")]
    assert any("you asked for -ot exps=CPU: " in note and "GiB more of the weights" in note for note in config.notes)


def test_shares_that_are_kept_use_so_many_cards() -> None:
    body = kept("-ts 3,3,2,2", engine="llama.cpp", hardware=rigs.TWO_5090_TWO_4090)
    assert all(c.flags.tensor_split == (3, 3, 2, 2) for c in body.configs)
    assert all(len(c.devices) == 5 for c in body.configs)


def test_an_option_of_one_engine_refuses_the_other() -> None:
    body = kept("-rtr")
    assert {c.engine for c in body.configs} == {"ik_llama.cpp"}
    assert any(r.engine == "llama.cpp" for r in body.refused)


def test_an_option_without_effect_is_printed_for_the_server_only() -> None:
    config = first(kept("--temp 0.6", engine="llama.cpp"))
    assert "--temp 0.6" in config.commands.server
    assert "--temp" not in config.commands.bench


def test_what_does_not_fit_as_it_is_kept_is_refused_with_the_shortfall() -> None:
    body = kept("-ngl 40", engine="llama.cpp")
    assert not body.configs
    assert body.refused[0].short_by_mib


@pytest.mark.parametrize(
    "flags",
    [
        ("--banana 3",),
        ("-ub abc",),
        ("-ot x=CUDA5",),
        ("-ot (a*)*b=CPU",),
        ("-dev CUDA0",),
        ("-mg 1",),
        ("-ctk q9_9",),
        ("-ts 1,1,1",),
        ("-ub",),
        ("make it fast",),
    ],
)
def test_what_cannot_be_kept_is_an_error_of_its_field(flags: tuple[str, ...]) -> None:
    with pytest.raises(InvalidFlags) as error:
        kept(*flags)
    assert error.value.field == "constraints.keep_flags"


def test_llama_cpp_alone_has_no_split_mode_graph() -> None:
    with pytest.raises(InvalidFlags, match="no -sm graph"):
        kept("-sm graph", engine="llama.cpp")


def test_a_goal_that_says_another_context_is_an_error() -> None:
    with pytest.raises(InvalidFlags, match="leave one of them out"):
        kept("-c 32768", goal=GoalRequest(context=8192, depth=0))


def test_a_split_mode_that_neither_engine_has_today_is_an_error() -> None:
    with pytest.raises(InvalidFlags, match="has no -sm row") as caught:
        ask("Qwen3-32B", "q4_K_M", hardware=rigs.EIGHT_3090, constraints=Constraints(keep_flags=["-sm row"]))
    assert caught.value.field == "constraints.keep_flags"


def test_a_mode_that_needs_cards_is_kept_where_the_ram_alone_would_do() -> None:
    hardware = parse_hardware("RTX 4090 + RTX 3090, 64GB")
    config = first(ask("Qwen3-32B", "iq4_xs", hardware=hardware, constraints=Constraints(keep_flags=["-sm graph"])))
    assert config.flags.split_mode == "graph"


def test_layers_kept_on_cards_are_not_a_config_without_any_unless_there_is_none() -> None:
    assert all(len(config.devices) > 1 for config in kept("-ngl 20", engine="llama.cpp").configs)
    assert kept("-ngl 99", hardware=rigs.TWO_EPYC_NO_GPU).configs


@pytest.mark.parametrize("model", ["Qwen3-8B", "Qwen3-32B"])
def test_one_card_is_chosen_for_who_keeps_the_model_on_one(model: str) -> None:
    """It was `-sm none -ts 13.3,5.1` on both, or "does not fit"."""
    hardware = parse_hardware("RTX 3090 + RTX 3060 12GB, Ryzen 7 5800X, 64GB DDR4-3600")
    config = first(ask(model, "q4_k_m", hardware=hardware, constraints=Constraints(keep_flags=["-sm none"])))
    assert [row.gpu for row in config.devices if row.gpu] == ["NVIDIA GeForce RTX 3090"]
    assert "CUDA_VISIBLE_DEVICES=0 " in config.commands.server
    assert "-sm none" in config.commands.server
    assert "-ts" not in config.commands.server


def test_one_card_cannot_be_kept_with_vulkan_which_hides_none() -> None:
    hardware = replace(parse_hardware("2x RX 6800 XT, Ryzen 7 5800X, 64GB DDR4-3600"), backend="vulkan")
    with pytest.raises(InvalidFlags, match="cannot be chosen"):
        ask("Qwen3-8B", "q4_k_m", hardware=hardware, constraints=Constraints(keep_flags=["-sm none"]))


@pytest.mark.full
def test_a_kept_flag_that_places_everything_is_named_where_nothing_fits() -> None:
    hardware = parse_hardware("2x RTX 3090, Ryzen 9 5950X, 128GB DDR4-3600")
    for keep_flags in (["-ts 24,13", "-ub 2048"], ["-ub 2048 -ts 24,13"], ["-ts", "24,13", "-ub", "2048"]):
        constraints = Constraints(keep_flags=keep_flags)
        body = ask("gpt-oss-120b", "exps=mxfp4,*=q8_0", hardware=hardware, constraints=constraints)
        assert "too little on CUDA0, with everything placed by the kept -ts 24,13 (without it, more" in body.headline


def test_a_kept_rule_that_moves_nothing_is_not_said_to_make_room() -> None:
    hardware = parse_hardware("2x RTX 3090, Ryzen 9 5950X, 128GB DDR4-3600")
    constraints = Constraints(engines=[EngineChoice("llama.cpp")], keep_flags=["-ot output_norm=CUDA1"])
    config = first(ask("Qwen3-32B", "q4_k_m", hardware=hardware, constraints=constraints))
    assert "output_norm=CUDA1" in config.commands.server
    assert "one-micro-batch" not in {reason.rule for reason in config.reasons}


@pytest.mark.full
def test_keys_of_few_bits_are_rotated_where_the_engine_does_not_do_so_unasked() -> None:
    def server(engine: Engine, kind: str, build: str | None = None) -> str:
        limits = Constraints(engines=[EngineChoice(engine, build)], keep_flags=[f"-ctk {kind}"])
        return first(ask("Qwen3-30B-A3B", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, constraints=limits)).commands.server

    assert "-khad" in server("ik_llama.cpp", "q4_0").split()
    assert "-khad" not in server("ik_llama.cpp", "q8_0").split()
    assert "-khad" not in server("ik_llama.cpp", "q4_0", "2025-11-20").split()
    assert "-khad" not in server("llama.cpp", "q4_0").split()
