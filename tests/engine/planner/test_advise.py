"""The answers that real machines get."""

from __future__ import annotations

import re

import msgspec
import pytest

from bench.judgment import variants_of
from service.engine.advice import AdviceBody, AdvisedConfig, Refusal
from service.engine.advise import advise
from service.engine.catalogue import resolve
from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.goal import Constraints, EngineChoice, GoalRequest
from service.engine.hardware import Gpu, Hardware
from service.engine.hardware_text import parse_hardware
from service.engine.run.devices import rig_of_command
from service.wire.advice.card import card_of
from tests import rigs
from tests.checks import attention_is_on_gpus, placement_of, problems_of
from tests.engine.planner.asking import ask, first, variant
from tests.models import build
from tests.sampling import some_of

R1, R1_IK = "DeepSeek-R1-0528", "ffn_down_exps=iq5_ks_r4,exps=iq4_ks_r4,*=q8_0"
QWEN = "Qwen3-235B-A22B"


def _together(config: AdvisedConfig) -> bool:
    return config.flags.split_mode != "layer"


def all_hold(body: AdviceBody, model: str, hardware: Hardware) -> None:
    """Every printed command gives back the printed placement and figures, and fits."""
    rig = resolve(hardware)
    assert [p for c in body.configs for p in problems_of(c, build(model, c.variant), rig)] == []


@pytest.mark.full
def test_deepseek_r1_on_four_cards_keeps_attention_and_cache_on_them() -> None:
    body = ask(R1, R1_IK, hardware=rigs.TWO_5090_TWO_4090)
    config = first(body)
    all_hold(body, R1, rigs.TWO_5090_TWO_4090)
    command = parse(config.commands.server, config.engine)
    assert attention_is_on_gpus(placement_of(command, build(R1, R1_IK), resolve(rigs.TWO_5090_TWO_4090)))
    assert config.engine == "ik_llama.cpp"
    assert config.strategy == "FFN in RAM"


def test_llama_cpp_is_refused_for_types_that_only_ik_has_by_their_name() -> None:
    body = ask(R1, R1_IK, hardware=rigs.TWO_5090_TWO_4090)
    reason = next(r.reason for r in body.refused if r.engine == "llama.cpp")
    assert "IQ4_KS_R4" in reason
    assert "ik_llama.cpp" in reason


def test_a_3090_with_128_gb_runs_qwen3_235b_with_most_experts_in_ram() -> None:
    body = ask(QWEN, "q4_K_M", "q2_K", hardware=rigs.ONE_3090_DESKTOP)
    all_hold(body, QWEN, rigs.ONE_3090_DESKTOP)
    assert {c.engine for c in body.configs} == {"ik_llama.cpp", "llama.cpp"}
    assert all(c.strategy == "FFN in RAM" for c in body.configs)


@pytest.mark.parametrize("engine", ["ik_llama.cpp", "llama.cpp"])
def test_one_card_gets_ncmoe_instead_of_a_rule_where_layers_differ_too(engine: Engine) -> None:
    flags = first(ask("gpt-oss-120b", "mxfp4", hardware=rigs.ONE_3090_DESKTOP, engine=engine)).flags
    assert flags.n_cpu_moe > 0
    assert not flags.overrides


@pytest.mark.full
def test_layers_without_their_feed_forward_are_ranges_where_that_is_as_fast() -> None:
    hardware = parse_hardware("laptop rtx 3060 6gb, 16gb ram")
    config = first(ask("Qwen3-8B", "iq4_xs", hardware=hardware, engine="ik_llama.cpp"))
    assert config.flags.overrides
    for rule in config.flags.overrides:
        layers = [i for i in range(36) if re.search(rule.pattern, f"blk.{i}.ffn_down.weight")]
        assert layers == list(range(layers[0], layers[-1] + 1))


@pytest.mark.full
def test_cards_that_are_alike_and_share_every_layer_are_given_the_same_plain_share() -> None:
    hardware = parse_hardware("2x3090 nvlink, Threadripper 3960X, 128GB")
    config = first(ask("Llama-3.3-70B", "iq4_xs", hardware=hardware, engine="llama.cpp"))
    assert _together(config)
    assert config.flags.tensor_split == (1.0, 1.0)


def test_quality_that_is_worth_its_time_comes_first_and_the_rest_by_time() -> None:
    goal = GoalRequest(min_tg=3)
    body = ask(QWEN, "q4_K_M", "q2_K", hardware=rigs.ONE_3090_DESKTOP, goal=goal)
    assert first(body).variant == "q4_K_M"
    seconds = [c.goal_seconds[1] for c in body.configs[1:]]
    assert seconds == sorted(seconds)


def test_when_nothing_is_fast_enough_the_answer_says_so() -> None:
    body = ask(QWEN, "q4_K_M", "q2_K", hardware=rigs.ONE_3090_DESKTOP, goal=GoalRequest(min_tg=500))
    assert "nothing here reaches the goal's 500 t/s" in body.headline


def test_at_most_two_configs_a_variant_and_engine_and_eight_in_all() -> None:
    body = ask(QWEN, "q4_K_M", "q3_K_M", "q2_K", "iq4_xs", hardware=rigs.ONE_3090_DESKTOP)
    pairs = [(c.variant, c.engine) for c in body.configs]
    assert len(body.configs) <= 8
    assert max(pairs.count(p) for p in pairs) <= 2


def test_a_small_model_goes_onto_one_card_and_the_others_are_hidden() -> None:
    body = ask("Llama-3.1-8B", "q4_K_M", hardware=rigs.TWO_5090_TWO_4090, engine="llama.cpp")
    config = first(body)
    all_hold(body, "Llama-3.1-8B", rigs.TWO_5090_TWO_4090)
    assert config.strategy == "all on GPU"
    assert parse(config.commands.server, config.engine).env["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.full
def test_a_dense_model_larger_than_the_card_leaves_feed_forward_layers_in_ram() -> None:
    body = ask("Llama-3.3-70B", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP)
    all_hold(body, "Llama-3.3-70B", rigs.ONE_3090_DESKTOP)
    assert {c.strategy for c in body.configs} <= {"FFN in RAM", "layers in RAM"}


@pytest.mark.full
def test_a_card_of_6_gb_still_helps_a_30b_moe() -> None:
    body = ask("Qwen3-30B-A3B", "q4_K_M", hardware=rigs.LAPTOP_6GB)
    all_hold(body, "Qwen3-30B-A3B", rigs.LAPTOP_6GB)
    assert first(body).strategy in ("FFN in RAM", "layers in RAM")


@pytest.mark.full
def test_two_sockets_without_a_card_run_on_the_cpu_spread_over_both() -> None:
    body = ask(R1, "q4_K_M", hardware=rigs.TWO_EPYC_NO_GPU)
    config = first(body)
    all_hold(body, R1, rigs.TWO_EPYC_NO_GPU)
    assert config.strategy == "CPU only"
    assert parse(config.commands.server, config.engine).flags.numa == "distribute"
    assert config.commands.server.startswith("numactl --interleave=all ")


def test_a_mac_has_one_pool_of_memory_and_llama_cpp_only() -> None:
    body = ask(QWEN, "q4_K_M", hardware=rigs.MAC_STUDIO)
    assert {c.engine for c in body.configs} == {"llama.cpp"}
    assert first(body).strategy == "all on GPU"
    assert "-ot" not in first(body).commands.server
    assert any("NVIDIA" in r.reason for r in body.refused)
    assert "of the 512 GiB that GPU and CPU share." in body.headline
    assert not any("from RAM" in reason.text for reason in first(body).reasons), "all memory is RAM there"


def test_a_jetson_runs_8b_on_its_gpu_with_an_engine_that_is_built_on_it() -> None:
    nano = parse_hardware("Jetson Orin Nano Super 8GB")
    config = first(ask("Qwen3-8B", "q3_K_M", hardware=nano, goal=GoalRequest(context=4096)))
    assert config.devices[0].total_mib > 4_000
    assert (config.commands.packages, config.commands.docker) == ((), "")
    assert config.commands.build is not None
    assert 'CMAKE_CUDA_ARCHITECTURES="87"' in config.commands.build.line


def test_a_radeon_gets_llama_cpp_and_its_own_device_names() -> None:
    body = ask("Qwen3-30B-A3B", "q4_K_M", hardware=rigs.RADEON)
    assert {c.engine for c in body.configs} == {"llama.cpp"}
    assert first(body).devices[0].device == "ROCm0"


def test_cards_of_two_makers_run_a_small_model_on_one_of_them_and_the_answer_says_which() -> None:
    body = ask("Qwen3-30B-A3B", "q4_K_M", hardware=rigs.MIXED_MAKERS)
    assert {c.engine for c in body.configs} == {"ik_llama.cpp", "llama.cpp"}
    assert [d.device for d in first(body).devices] == ["CUDA0", "CPU"]
    assert any(reason.rule == "one-maker" for reason in first(body).reasons)
    assert any(a.field == "hardware.gpus.backend" for a in body.assumed)


def test_a_command_for_one_maker_s_cards_of_several_names_them() -> None:
    """A Vulkan build would take all cards, and a reader of the command could not tell."""
    hardware = parse_hardware("2x RX 7900 XTX + RTX 3060 12GB, Ryzen 9 7950X, 64GB")
    body = ask("Llama-3.3-70B", "q4_k_s", hardware=hardware, engine="llama.cpp")
    config = next(c for c in body.configs if c.devices[0].device == "ROCm0")
    names = [d.device for d in config.devices if d.device != "CPU"]
    assert f" -dev {','.join(names)}" in config.commands.server
    assert f" -dev {'/'.join(names)}" in config.commands.bench
    rig = rig_of_command(hardware, parse(config.commands.server, "llama.cpp"))
    assert [card.name for card in rig.cards] == ["AMD Radeon RX 7900 XTX"] * 2
    together = [c for c in body.configs if c.devices[0].device == "Vulkan0"]
    assert all("-dev" not in c.commands.server for c in together)


def test_a_command_for_rocm_on_a_gpu_that_vulkan_drives_as_well_names_its_device() -> None:
    hardware = parse_hardware("Strix Halo 128GB")
    body = ask("Qwen3-30B-A3B", "q5_K_M", hardware=hardware, goal=GoalRequest(preset="agent"), engine="llama.cpp")
    config = first(body)
    assert config.devices[0].device == "ROCm0"
    assert config.commands.server.endswith(" -dev ROCm0")
    rig = rig_of_command(hardware, parse(config.commands.server, "llama.cpp"))
    assert problems_of(config, build("Qwen3-30B-A3B", "q5_K_M"), rig) == []
    alone = ask("Qwen3-8B", "q4_K_M", hardware=rigs.RADEON, engine="llama.cpp")
    assert first(alone).devices[0].device == "ROCm0"
    assert "-dev" not in first(alone).commands.server, "its build is for no other back end"


@pytest.mark.full
def test_cards_of_two_makers_run_a_larger_model_together_with_vulkan_and_llama_cpp() -> None:
    body = ask("Llama-3.3-70B", "q4_k_s", hardware=rigs.MIXED_MAKERS)
    config = next(c for c in body.configs if c.devices[0].device == "Vulkan0")
    assert config.engine == "llama.cpp"
    assert [d.device for d in config.devices] == ["Vulkan0", "Vulkan1", "CPU"]
    assert any(reason.rule == "vulkan-for-all" for reason in config.reasons)
    assert config.speed[-1].basis == "formula"


def test_a_variant_that_quantisation_has_damaged_is_no_plain_yes() -> None:
    mix = "ffn_down_exps=iq2_xxs,exps=iq1_s,attn=q5_K,ffn=q5_K,token_embd=q4_K,*=q6_K"
    body = ask("Qwen3-30B-A3B", mix, hardware=parse_hardware("no GPU, i5-6500, 16GB DDR4-2133 x2"))
    assert body.headline.startswith("It fits, but quantisation has damaged this variant: ")


def test_what_does_not_fit_says_by_how_much_and_the_smallest_change() -> None:
    body = ask(R1, "q4_K_M", hardware=rigs.LAPTOP_6GB)
    assert not body.configs
    for refusal in body.refused:
        assert refusal.short_by_mib is not None
        assert refusal.short_by_mib > 300 * 1024
        assert refusal.smallest_change is not None
        assert "GiB more RAM or fewer bits per weight" in refusal.smallest_change


@pytest.mark.parametrize(
    ("model", "mixes", "text", "gb"),
    [
        ("Qwen3-235B-A22B", ("q6_K", "q2_K"), "RTX 3090, Ryzen 9 7950X, {}GB DDR5-5600", 128),
        ("Qwen3-235B-A22B", ("q8_0", "q2_K"), "no GPU, Ryzen 9 7950X, {}GB DDR5-5600", 192),
        ("gpt-oss-120b", ("mxfp4",), "M3 Max {}GB", 64),
    ],
)
def test_with_as_much_more_ram_as_a_refusal_asks_for_it_fits(
    model: str, mixes: tuple[str, ...], text: str, gb: int
) -> None:
    """The system keeps a share of that as well."""

    def refused(gib: int) -> list[Refusal]:
        found = ask(model, *mixes, hardware=_with_gib(text, gib), engine="llama.cpp").refused
        return [one for one in found if one.variant == mixes[0]]

    more = re.match(r"(\d+) GiB more RAM", refused(gb)[0].smallest_change or "")
    assert more is not None
    assert not refused(gb + int(more[1]))
    assert refused(gb + int(more[1]) - 2)


def _with_gib(text: str, gib: int) -> Hardware:
    """A machine whose RAM is replaced as a number, as no module or Mac comes in every size."""
    machine = parse_hardware(text.format(64))
    assert machine.ram is not None
    return msgspec.structs.replace(machine, ram=msgspec.structs.replace(machine.ram, total_gb=float(gib)))


def test_what_no_weights_make_room_for_is_less_context() -> None:
    body = ask("Qwen3-8B", "q4_k_m", hardware=rigs.LAPTOP_6GB, goal=GoalRequest(context=1 << 24))
    for refusal in body.refused:
        assert refusal.smallest_change is not None
        assert "GiB more RAM or a context below 16,777,216 tokens" in refusal.smallest_change


@pytest.mark.parametrize("preset", some_of(["agent", "chat", "long", "batch", "fastest", "quality"], 3))
def test_every_goal_gets_configs_that_fit_with_its_context(preset: str) -> None:
    body = ask("GLM-4.5-Air", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, goal=GoalRequest(preset=preset))  # type: ignore[arg-type]
    all_hold(body, "GLM-4.5-Air", rigs.ONE_3090_DESKTOP)
    assert first(body).flags.n_ctx == body.goal.context
    assert first(body).max_context >= body.goal.context


@pytest.mark.parametrize(
    ("model", "hardware"),
    some_of(
        [
            ("gpt-oss-120b", rigs.EIGHT_3090),
            ("MiniMax-M2", rigs.TWO_5090_TWO_4090),
            ("Gemma-3-27B", rigs.EIGHT_3090),
            ("Qwen3-Next-80B-A3B", rigs.EIGHT_3090),
            ("Llama-4-Scout", rigs.EIGHT_3090),
        ],
        2,
    ),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_family_gets_commands_that_give_back_their_figures(model: str, hardware: Hardware) -> None:
    body = ask(model, "q4_K_M", hardware=hardware)
    all_hold(body, model, hardware)
    assert body.configs


def test_cards_in_a_known_order_are_named_by_their_place_on_the_bus() -> None:
    hardware = Hardware(
        gpus=[Gpu(name="RTX 5090", pci_order=[1]), Gpu(name="RTX 3090", pci_order=[0])],
        cpu=rigs.TWO_5090_TWO_4090.cpu,
        ram=rigs.TWO_5090_TWO_4090.ram,
    )
    body = ask("Llama-3.3-70B", "q4_K_M", hardware=hardware, engine="llama.cpp")
    env = parse(first(body).commands.server, "llama.cpp").env
    assert env == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,0"}


def test_cards_of_one_name_that_are_left_out_are_counted() -> None:
    body = ask("Llama-3.1-8B", "q4_K_M", hardware=rigs.TWO_5090_TWO_4090)
    (left,) = [reason.text for reason in first(body).reasons if reason.rule == "fewer-gpus"]
    assert left.endswith("hidden from the engine: NVIDIA GeForce RTX 5090, 2x NVIDIA GeForce RTX 4090")


def test_the_same_question_gets_the_same_answer() -> None:
    again = advise([variant("Qwen3-30B-A3B", "q4_K_M")], rigs.LAPTOP_6GB, GoalRequest(), Constraints())
    assert again == ask("Qwen3-30B-A3B", "q4_K_M", hardware=rigs.LAPTOP_6GB)


def test_the_list_has_a_line_a_variant_of_the_front_and_the_first_ones_variant_on_the_other_engine() -> None:
    body = ask("GLM-4.5-Air", "q4_K_M", "q2_K", "iq4_xs", "q8_0", hardware=rigs.ONE_3090_DESKTOP)
    top = first(body)
    assert any(c.variant == top.variant and c.engine != top.engine for c in body.configs[1:])
    assert sorted(c.variant for c in body.configs if c is not body.configs[3]) == ["iq4_xs", "q4_K_M", "q8_0"]
    left_out = [loser.why for loser in body.losers if loser.variant == "q2_K" and loser.placed]
    assert left_out
    assert all(why.startswith("quantisation raises its perplexity by about") for why in left_out)


@pytest.mark.full
def test_a_way_to_split_that_nobody_has_proven_is_not_said_to_be_hardly_faster() -> None:
    two = msgspec.structs.replace(rigs.ONE_3090_DESKTOP, gpus=[Gpu(name="RTX 3090", count=2)])
    body = ask("Llama-3.1-8B", "q4_K_M", "q8_0", hardware=two, engine="ik_llama.cpp")
    why = [one.why for one in body.losers if one.placed and "-sm graph" in one.differs and "faster than #" in one.why]
    assert why
    ending = "but the speed of -sm graph is unproven: it ranks by its predicted time times 1.15"
    assert all(one.startswith("predicted ") and one.endswith(ending) for one in why)


@pytest.mark.full
def test_fewer_cards_get_no_line_each_where_other_variants_are_shown() -> None:
    variants = ("q4_K_M", "iq4_xs", "q5_K_M", "q6_K")
    two = msgspec.structs.replace(rigs.ONE_3090_DESKTOP, gpus=[Gpu(name="RTX 3090"), Gpu(name="RTX 3090")])
    body = ask("GLM-4.5-Air", *variants, hardware=two, engine="llama.cpp")
    shown = [c.variant for c in body.configs if c.pick is None]
    assert len(shown) >= 2
    assert len(shown) == len(set(shown))


def test_a_repo_with_one_variant_still_has_something_to_compare() -> None:
    body = ask(QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP)
    assert [c.variant for c in body.configs[1:]] != []


def test_a_config_that_only_uses_more_cards_at_the_same_speed_is_not_shown() -> None:
    body = ask("Llama-3.1-8B", "q4_K_M", hardware=rigs.EIGHT_3090, engine="llama.cpp")
    assert [len(c.devices) - 1 for c in body.configs if c.flags.split_mode == "layer"] == [1]


@pytest.mark.full
def test_cards_that_share_a_layer_come_first_where_they_gain_much_and_as_a_formula() -> None:
    body = ask("Llama-3.3-70B", "q4_K_M", hardware=rigs.EIGHT_3090)
    all_hold(body, "Llama-3.3-70B", rigs.EIGHT_3090)
    together = [c for c in body.configs if c.flags.split_mode != "layer"]
    assert {c.flags.split_mode for c in together} == {"graph", "tensor"}
    assert first(body).flags.split_mode == "graph"
    for config in together:
        assert config.speed[-1].basis == "formula"
        assert any("measure it" in note for note in config.notes)


def test_a_slow_link_between_cards_that_share_a_layer_copies_no_weights() -> None:
    """The rig of 5p00kyy/club-5060ti issue 5."""
    cards = parse_hardware("3x RTX 5060 Ti 16GB, i7-8700, 61GB DDR4-2666")
    config = first(ask("Qwen3.5-27B", "q6_K", hardware=cards, engine="ik_llama.cpp"))
    assert config.flags.split_mode == "graph"
    assert "approximate: this architecture's buffers with -sm graph are not known exactly" in config.notes
    (limit,) = (reason.text for reason in config.reasons if reason.rule == "limit-prompts")
    assert limit.startswith("prompts: data transfer between the GPUs takes ")


@pytest.mark.full
def test_what_does_not_depend_on_links_is_listed_with_a_first_config_that_has_all_cards_on_every_layer() -> None:
    """All eight configs were of a mode whose speed is only a formula (Command A on six 3090, tests/data, x21)."""
    mixes = ("iq4_xs", "q4_k_m", "q5_k_m", "q6_k", "q8_0", "iq3_xxs", "q3_k_m")
    hardware = parse_hardware("6x RTX 3090, EPYC 7302, 128GB DDR4-3200 x8")
    body = ask("Command-A-111B", *mixes, hardware=hardware)
    assert first(body).flags.split_mode != "layer"
    by_layers = [c for c in body.configs if c.flags.split_mode == "layer"]
    assert first(body).variant in {c.variant for c in by_layers}


@pytest.mark.full
def test_what_lies_whole_on_the_cards_is_listed_with_a_first_config_that_does_not() -> None:
    """Seven 3090 were shown nothing without weights in RAM, where ikawrakow's hold all of GLM-4.7 (pull 1177, x22)."""
    hardware = parse_hardware("7x RTX 3090, EPYC 7443P, 256GB DDR4-3200 x8")
    body = advise(variants_of("unsloth/GLM-4.7-GGUF"), hardware, GoalRequest(), Constraints())
    assert first(body).strategy == "FFN in RAM"
    assert any(c.strategy == "all on GPU" for c in body.configs)


def test_without_a_minimum_speed_what_fits_the_card_comes_first() -> None:
    body = ask(
        "Qwen3-30B-A3B", "q2_K", "q4_K_M", "q8_0", hardware=rigs.ONE_3090_DESKTOP, goal=GoalRequest(preset="batch")
    )
    assert (first(body).variant, first(body).strategy) == ("q4_K_M", "all on GPU")
    config = first(body)
    assert config.at_once is not None
    assert config.at_once.requests == 4
    assert config.speed[-1].tg_tps < config.at_once.tps < 4 * config.speed[-1].tg_tps
    assert any(f"4 concurrent requests: about {config.at_once.tps:.0f} t/s in total" in note for note in config.notes)
    assert f", about {config.at_once.each:.1f} t/s (" in body.headline
    assert ") for each of 4 concurrent requests with an empty cache, " in body.headline


@pytest.mark.parametrize(("least", "missed"), [(12, True), (8, False)])
def test_a_minimum_that_each_of_many_requests_misses_is_said(least: int, missed: bool) -> None:
    rig = parse_hardware("L4 24GB, EPYC 7313, 64GB")
    goal = GoalRequest(preset="agent", context=524_288, parallel=8, min_tg=least)
    body = ask("gpt-oss-20b", "exps=mxfp4,*=q8_0", hardware=rig, goal=goal, engine="llama.cpp")
    config = first(body)
    assert config.at_once is not None
    assert 8 <= config.at_once.each < 12 < config.speed[-1].tg_tps
    said = f"{config.at_once.each:.1f} each: the goal's 12 t/s are reached by one request at a time only"
    assert any(note.endswith(said) for note in config.notes) is missed


def test_a_cache_is_quantised_only_where_that_gains_or_is_asked_for() -> None:
    body = ask("gpt-oss-120b", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, goal=GoalRequest(preset="agent"))
    by_engine = {c.engine: c for c in reversed(body.configs)}
    for config in by_engine.values():
        plain = [c for c in body.configs if c.engine == config.engine and c.flags.cache_type_k == "f16"]
        assert config.flags.cache_type_k == "f16" or all(
            config.goal_seconds[1] < c.goal_seconds[1] * 0.96 for c in plain
        )


def test_a_depth_that_the_model_cannot_reach_is_listed_as_assumed() -> None:
    body = ask("Qwen3-14B", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, goal=GoalRequest(preset="long"))
    assert {"goal.depth", "goal.context"} <= {a.field for a in body.assumed}


def test_files_that_no_allowed_engine_can_load_are_answered_with_the_reason() -> None:
    body = ask(R1, R1_IK, hardware=rigs.MAC_STUDIO, engine="llama.cpp")
    assert body.headline.startswith("No: ")
    assert "cannot load the tensor types IQ4_KS_R4" in body.headline


def test_where_gpu_and_cpu_share_their_memory_a_larger_variant_lacks_more_of_it_and_no_gpu_is_named() -> None:
    body = ask(QWEN, "q2_K", "q4_K_M", "q8_0", hardware=rigs.MACBOOK_64)
    lacking = [r.short_by_mib or 0 for r in body.refused if r.kind == "memory"]
    sizes = [lacking[i + 1] - lacking[i] for i in range(2)]
    assert len(lacking) == 3
    assert min(sizes) > 40 * 1024, "Q2_K, Q4_K_M and Q8_0 of this model are 50 GiB and more apart"
    assert body.headline.startswith("No: nothing here fits. q2_K with llama.cpp comes closest: ")
    assert " MiB too little RAM." in body.headline
    assert "drive" not in body.headline, "its GPU reads no mapped weights"


def test_fastest_ranks_by_time_alone_and_quality_by_bits_that_reach_five_tokens_a_second() -> None:
    mixes = ("q2_K", "q8_0")
    fastest = ask("Qwen3-30B-A3B", *mixes, hardware=rigs.ONE_3090_DESKTOP, goal=GoalRequest(preset="fastest"))
    quality = ask("Qwen3-30B-A3B", *mixes, hardware=rigs.ONE_3090_DESKTOP, goal=GoalRequest(preset="quality"))
    assert first(fastest).variant == "q2_K"
    assert first(quality).variant == "q8_0"
    assert first(quality).speed[-1].tg_tps >= 5


def test_every_loser_has_its_reason_and_the_answer_says_how_many_were_considered_and_placed() -> None:
    body = ask(QWEN, "q4_K_M", "q3_K_M", "q2_K", "iq4_xs", hardware=rigs.ONE_3090_DESKTOP)
    assert body.considered > body.placed > len(body.configs)
    assert 0 < len(body.losers) <= 60
    assert all(loser.why for loser in body.losers)
    assert {loser.engine for loser in body.losers} == {"ik_llama.cpp", "llama.cpp"}
    assert any("does not fit" in loser.why for loser in body.losers)
    assert any(" s at best" in loser.why for loser in body.losers)


def test_the_front_has_what_is_best_at_something_and_ties_are_mutual() -> None:
    body = ask(QWEN, "q4_K_M", "q3_K_M", "q2_K", "iq4_xs", hardware=rigs.ONE_3090_DESKTOP)
    by_rank = {c.rank: c for c in body.configs}
    for measure in ("bits", "time", "pp", "tg", "context"):
        assert any(measure in c.best_at for c in body.configs)
    assert any(c.on_front for c in body.configs)
    for config in body.configs:
        assert all(config.rank in by_rank[rank].tied_with for rank in config.tied_with)
        assert config.rank not in config.tied_with


def test_a_context_beyond_the_training_is_advised_and_said() -> None:
    body = ask("Qwen3-14B", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, goal=GoalRequest(context=65_536))
    (said,) = [a for a in body.assumed if a.field == "goal.context"]
    assert body.goal.context == 65_536
    assert "trained for 40,960" in said.why


@pytest.mark.parametrize(
    ("engine", "server", "older"),
    [
        ("llama.cpp", "uses 40,960 of the 65,536 tokens", " (builds before 2026-09-03 also need --override-kv "),
        ("ik_llama.cpp", "ends an answer at 40,960 tokens unless the request sets max_tokens", ";"),
    ],
)
def test_a_context_beyond_the_training_is_noted_with_what_the_server_does_and_the_options_for_it(
    engine: Engine, server: str, older: str
) -> None:
    body = ask("Qwen3-14B", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, goal=GoalRequest(context=65_536), engine=engine)
    for config in body.configs:
        assert config.notes[0].startswith(f"{engine}'s server {server}")
        assert f"add --rope-scaling yarn --rope-scale 2 --yarn-orig-ctx 40960{older}" in config.notes[1]
        assert "--rope" not in config.commands.server
    card = card_of(body)
    assert card is not None
    assert card.facts[0].name == "context"
    within = ask("Qwen3-14B", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, goal=GoalRequest(context=40_960), engine=engine)
    assert not any("trained" in note for c in within.configs for note in c.notes)


@pytest.mark.full
def test_the_first_config_says_what_llama_cpps_own_fit_would_give_as_check_finds_it() -> None:
    """`-fit` of the same command, without what places the model, is the asker's command of a second request."""
    config = first(ask("GLM-4.5-Air", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, engine="llama.cpp"))
    said = next(r.text for r in config.reasons if r.rule == "fit-off")
    bare = re.sub(r"(?: -(?:ngl|ncmoe|ts|fit) \S+| -ot '[^']*'| --n-cpu-moe \S+)", "", config.commands.server)
    limits = Constraints(engines=[EngineChoice("llama.cpp")], current_command=bare)
    mine = ask("GLM-4.5-Air", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, constraints=limits).mine
    assert mine is not None
    assert f"(TG {mine.speed[-1].tg_tps:.1f} and PP {mine.speed[-1].pp_tps:,.0f} t/s" in said


def test_an_own_fit_of_llama_cpp_that_is_faster_is_said_to_leave_too_little_free() -> None:
    hardware = parse_hardware("RTX 4070 12GB, i5-12600K, 32GB DDR5-6000")
    limits = Constraints(engines=[EngineChoice("llama.cpp")], reserve_mib=2048)
    config = first(ask("Qwen3-30B-A3B", "q4_K_M", hardware=hardware, constraints=limits))
    said = next(r.text for r in config.reasons if r.rule == "fit-off")
    assert "it leaves too little free for the reserve" in said


def test_cards_before_turing_get_a_build_with_cuda_12_and_the_releases_that_were_built_with_it() -> None:
    # conda-forge/llama.cpp-feedstock, .ci_support: CUDA 13 is what the last driver for these cards gets there
    older = parse_hardware("2x Tesla P40, 64GB DDR4-2400")
    config = first(ask("Qwen3-8B", "q4_k_m", hardware=older, engine="llama.cpp"))
    assert config.commands.build is not None
    assert config.commands.build.line.startswith("# use CUDA 12: CUDA 13 no longer compiles")
    assert {one.shell for one in config.commands.packages} == {"posix", "powershell"}
    assert all("-cuda-12." in one.line and "conda" not in one.line for one in config.commands.packages)
    newer = first(ask("Qwen3-8B", "q4_k_m", hardware=parse_hardware("RTX 3090, 64GB"), engine="llama.cpp"))
    assert newer.commands.build is not None
    assert "CUDA 12" not in newer.commands.build.line
    assert newer.commands.packages


@pytest.mark.full
def test_a_reason_for_a_quantised_cache_gives_the_share_of_both_types_and_what_it_is_good_for() -> None:
    def said(model: str, mix: str, hardware: str, types: str) -> str:
        goal = GoalRequest(preset="agent", context=32_768)
        body = ask(model, mix, hardware=parse_hardware(hardware), goal=goal, engine="ik_llama.cpp")
        return next(r.text for c in body.configs for r in c.reasons if r.rule == "kv-type" and f"is {types}," in r.text)

    cpu = said("Qwen3-8B", "q4_k_m", "no GPU, Ryzen 7 8845HS, 64GB DDR5-5600", "q8_0")
    assert cpu == "the cache is q8_0, 53 % of the size of f16: each token reads less"
    card = said("Qwen3-14B", "q3_k_m", "RTX 3080 10GB, Ryzen 5 5600X, 32GB DDR4-3600", "K q8_0, V q6_0")
    assert card == "the cache is K q8_0, V q6_0, 47 % of the size of f16: more room for weights"


# llama.cpp ggml/src/ggml-cpu/CMakeLists.txt: "MSVC is not supported for ARM, use clang"
def test_windows_on_arm_builds_with_clang() -> None:
    def built(hardware: str) -> str:
        build = first(
            ask("Qwen3-8B", "q4_k_m", hardware=parse_hardware(hardware), engine="ik_llama.cpp")
        ).commands.build
        return build.line if build else ""

    assert " -T ClangCL " in built("Snapdragon X Elite, 32GB LPDDR5X, Windows 11")
    assert "Clang" not in built("Snapdragon X Elite, 32GB LPDDR5X, Ubuntu 25.04")
    assert "Clang" not in built("no GPU, Ryzen 7 8845HS, 64GB DDR5-5600, Windows 11")


# ik_llama.cpp README (8337e4cd3): CUDA (Turing or newer); its author in pull 2079: no way of testing for Pascal
def test_who_gets_ik_on_a_card_before_turing_is_told_that_nobody_tests_it_there() -> None:
    def notes(hardware: str, engine: Engine) -> list[str]:
        body = ask("Qwen3-8B", "q4_k_m", hardware=parse_hardware(hardware), engine=engine)
        return [note for note in first(body).notes if "Turing" in note]

    assert notes("2x Tesla P40, 64GB DDR4-2400", "ik_llama.cpp") == [
        "ik_llama.cpp is tested on NVIDIA cards from Turing on only, not on Tesla P40"
    ]
    assert not notes("2x Tesla P40, 64GB DDR4-2400", "llama.cpp")
    assert not notes("RTX 3090, 64GB", "ik_llama.cpp")


@pytest.mark.full
def test_where_no_expert_layer_lies_on_the_card_the_reason_says_all_stay_in_ram() -> None:
    hardware = parse_hardware("RTX 3090, EPYC 7532, 512GB DDR4-3200 x8")
    goal = GoalRequest(preset="agent", context=32_768)
    body = ask(R1, "iq4_xs", hardware=hardware, goal=goal, engine="ik_llama.cpp")
    (text,) = [r.text for r in first(body).reasons if r.rule == "experts-in-ram"]
    assert text == "all 58 expert layers stay in RAM, where each token reads only the experts it uses"


@pytest.mark.parametrize(
    ("cards", "shown"),
    [
        ("2x Arc B580 12GB, Ryzen 5 5500, 32GB, sycl", "ONEAPI_DEVICE_SELECTOR=level_zero:0 llama-server"),
        ("2x RX 7900 XTX, Ryzen 9 7950X, 64GB, vulkan", "-sm none"),
    ],
)
def test_a_model_on_one_of_two_cards_of_amd_or_intel_is_kept_off_the_other(cards: str, shown: str) -> None:
    """Without it, llama.cpp divides every model among all cards; two under Vulkan are slower than one."""
    hardware = parse_hardware(cards)
    body = ask("Llama-3.1-8B", "q4_k", hardware=hardware)
    all_hold(body, "Llama-3.1-8B", hardware)
    alone = next(c for c in body.configs if len([d for d in c.devices if d.device != "CPU"]) == 1)
    assert shown in alone.commands.server
    assert alone is body.configs[0]


def test_under_windows_amds_cards_run_what_their_driver_brings() -> None:
    """The archive for ROCm lacks hipBLAS and rocBLAS, lists no card without them and says nothing (issue 26996)."""
    usual = ask("Llama-3.1-8B", "q4_k", hardware=parse_hardware("RX 6800, Ryzen 5 5600, 32GB, Windows 11"))
    assert first(usual).devices[0].device == "Vulkan0"
    assert "winget install llama.cpp" in [package.line for package in first(usual).commands.packages]
    for said in ("RX 6800, Ryzen 5 5600, 32GB, Windows 11, ROCm", "RX 6800, Ryzen 5 5600, 32GB, Ubuntu"):
        assert first(ask("Llama-3.1-8B", "q4_k", hardware=parse_hardware(said))).devices[0].device == "ROCm0"
