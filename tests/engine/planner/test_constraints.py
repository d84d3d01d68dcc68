"""What an answer is held to: limits that are kept, refused, or told where they cost much."""

from __future__ import annotations

import re

import msgspec
import pytest

from service.engine.advice import AdviceBody
from service.engine.errors import InvalidInput, UnknownVariant
from service.engine.goal import Constraints, EngineChoice, GoalRequest
from service.engine.hardware_text import parse_hardware
from tests import rigs
from tests.engine.planner.asking import ask, first

R1, R1_IK = "DeepSeek-R1-0528", "ffn_down_exps=iq5_ks_r4,exps=iq4_ks_r4,*=q8_0"
QWEN = "Qwen3-235B-A22B"
LLAMA_CACHE_TYPES = "f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1"


def test_a_reserve_is_kept_on_every_card() -> None:
    constraints = Constraints(reserve_mib=6000, engines=[EngineChoice("ik_llama.cpp")])
    body = ask(QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP, constraints=constraints)
    assert all(d.free_mib >= 6000 for c in body.configs for d in c.devices if d.device != "CPU")


def test_ram_beyond_the_allowed_is_not_used() -> None:
    constraints = Constraints(engines=[EngineChoice("llama.cpp")], max_ram_gib=70)
    body = ask(QWEN, "q4_K_M", "q2_K", hardware=rigs.ONE_3090_DESKTOP, constraints=constraints)
    assert body.configs
    assert all(d.total_mib <= 70 * 1024 for c in body.configs for d in c.devices if d.device == "CPU")


def test_only_the_stated_cache_types_are_used() -> None:
    body = ask(QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP, constraints=Constraints(kv_types=["q8_0"]))
    assert {c.flags.cache_type_k for c in body.configs} == {"q8_0"}


def test_a_cache_type_that_one_engine_lacks_refuses_that_engine_only() -> None:
    body = ask("Qwen3-4B", "q4_k_m", hardware=rigs.ONE_3090_DESKTOP, constraints=Constraints(kv_types=["q6_0"]))
    assert {(c.engine, c.flags.cache_type_k) for c in body.configs} == {("ik_llama.cpp", "q6_0")}
    refused = [(r.engine, r.reason) for r in body.refused]
    assert refused == [("llama.cpp", f"llama.cpp has no cache type q6_0: it takes {LLAMA_CACHE_TYPES}")]


def test_an_engine_named_twice_is_considered_once() -> None:
    once, twice = (
        ask("Qwen3-4B", "q4_k_m", hardware=rigs.ONE_3090_DESKTOP, constraints=Constraints(engines=choices))
        for choices in ([EngineChoice("llama.cpp")], [EngineChoice("llama.cpp"), EngineChoice("llama.cpp", None)])
    )
    assert twice == once


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("engines", [{"name": "llama.cpp"}] * 17),
        ("kv_types", ["iq2_xxs"]),
        ("reserve_mib", -1),
        ("reserve_mib", [512, -20_000]),
        ("max_ram_gib", 1e308),
        ("max_ram_gib", float("inf")),
    ],
)
def test_constraints_that_no_machine_can_have_are_refused(field: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=rf"\$\.{field}"):
        msgspec.convert({field: value}, Constraints)


def test_a_reserve_for_another_number_of_cards_names_its_field() -> None:
    with pytest.raises(InvalidInput) as caught:
        ask(QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP, constraints=Constraints(reserve_mib=[512, 512]))
    assert caught.value.field == "constraints.reserve_mib"


def test_a_variant_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(UnknownVariant) as caught:
        ask(QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP, constraints=Constraints(variants=["q9_K"]))
    assert caught.value.choices == ("q2_K",)


def test_bits_that_no_variant_has_are_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput) as caught:
        ask(QWEN, "q2_K", hardware=rigs.ONE_3090_DESKTOP, constraints=Constraints(min_bpw=8))
    assert "2.77" in caught.value.detail


def test_of_variants_with_the_same_types_the_one_named_for_more_bits_is_advised_unless_another_is_asked_for() -> None:
    """Unsloth's UD-Q3_K_M and UD-IQ4_NL of Nemotron-3-Nano have the same size: jeanfbrito.github.io."""
    two_bits, three_bits = "exps=iq2_xxs,*=q6_K", "exps=q3_K,*=q6_K"  # 1,856 a row: both become iq4_nl
    body = ask("Nemotron-3-Nano-30B-A3B", two_bits, three_bits, hardware=rigs.ONE_3090_DESKTOP)
    assert {c.variant for c in body.configs} == {three_bits}
    named = Constraints(variants=[two_bits])
    body = ask("Nemotron-3-Nano-30B-A3B", two_bits, three_bits, hardware=rigs.ONE_3090_DESKTOP, constraints=named)
    assert {c.variant for c in body.configs} == {two_bits}


def test_latent_attention_in_ik_gets_no_type_for_values_that_it_would_ignore() -> None:
    constraints = Constraints(engines=[EngineChoice("ik_llama.cpp")], kv_types=["q8_0"])
    body = ask(R1, R1_IK, hardware=parse_hardware("RTX 4090, EPYC 9355, 512GB"), constraints=constraints)
    assert body.configs
    assert all(c.flags.cache_type_v == "f16" and "-ctv" not in c.commands.server for c in body.configs)


@pytest.mark.full
def test_a_cache_type_asked_for_is_kept_and_told_where_it_is_what_hurts() -> None:
    goal = GoalRequest(context=131_072, depth=100_000, min_tg=0)
    asked = Constraints(engines=[EngineChoice("llama.cpp")], kv_types=["f16"])
    body = ask("GLM-4.5-Air", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, goal=goal, constraints=asked)
    assert {c.flags.cache_type_k for c in body.configs} == {"f16"}
    assert any("you asked for a cache of f16: q8_0 would give TG +" in note for note in first(body).notes), first(body)


def test_one_engine_asked_for_is_kept_and_told_where_the_other_is_faster() -> None:
    asked = Constraints(engines=[EngineChoice("llama.cpp")])
    body = ask(QWEN, "q4_K_M", hardware=rigs.TWO_EPYC_NO_GPU, constraints=asked)
    assert {c.engine for c in body.configs} == {"llama.cpp"}
    assert any("you asked for llama.cpp: ik_llama.cpp would give" in note for note in first(body).notes)


@pytest.mark.full
def test_a_long_context_asked_for_is_kept_and_told_where_the_usual_one_is_faster() -> None:
    def asked(context: int) -> AdviceBody:
        goal = GoalRequest(context=context)
        return ask("GLM-4.5-Air", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, goal=goal, engine="llama.cpp")

    body = asked(131_072)
    assert first(body).flags.n_ctx == 131_072
    assert any("you asked for a context of 131,072: 16,384 would give TG +" in note for note in first(body).notes)
    assert not any("context" in note and "asked for" in note for note in first(asked(16_384)).notes)


@pytest.mark.full
def test_what_fewer_slots_gain_is_said_to_be_for_one_request_at_a_time() -> None:
    hardware, goal = parse_hardware("2x3090, Ryzen 9 5950X, 64GB"), GoalRequest(parallel=4)
    body = ask("Llama-3.3-70B", "iq4_xs", hardware=hardware, goal=goal, engine="ik_llama.cpp")
    assert any("you asked for 4 slots: 1, for one request at a time, would give TG +" in n for n in first(body).notes)


def test_a_reserve_beyond_the_usual_is_kept_and_told_where_it_hurts() -> None:
    asked = Constraints(engines=[EngineChoice("llama.cpp")], reserve_mib=[6_144])
    body = ask("GLM-4.5-Air", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, constraints=asked)
    assert any("you asked for a larger reserve: 512 MiB per GPU would give TG +" in note for note in first(body).notes)


def test_an_old_build_asked_for_is_kept_and_told_where_todays_is_faster() -> None:
    asked = Constraints(engines=[EngineChoice("ik_llama.cpp", "2025-03-01")])
    body = ask("Qwen2-57B-A14B", "q4_K_M", hardware=rigs.ONE_3090_DESKTOP, constraints=asked)
    assert any("asked for ik_llama.cpp" in n and ": today's build would give" in n for n in first(body).notes), first(
        body
    )


@pytest.mark.full
@pytest.mark.parametrize("constraints", [Constraints(kv_types=["f16"]), Constraints(kv_types=["q8_0", "f16"])])
def test_what_the_request_allows_as_well_is_no_price_of_it(constraints: Constraints) -> None:
    rig = parse_hardware("3090, 12700K, 64GB DDR5-5600")
    goal = GoalRequest(preset="agent", context=131_072)
    body = ask("gpt-oss-120b", "exps=mxfp4,*=q8_0", hardware=rig, goal=goal, constraints=constraints)
    assert not [note for note in first(body).notes if "you asked for a cache" in note]
    context = next(note for note in first(body).notes if "you asked for a context of 131,072: 65,536" in note)
    prompts = re.search(r"PP \+(\d+) %", context)  # PP +40 % is that of -ub 4096, for which either context has room
    assert prompts is not None
    assert int(prompts[1]) < 10


@pytest.mark.full
def test_what_stays_as_it_is_is_no_gain() -> None:
    rig, goal = parse_hardware("RTX 3090, Ryzen 9 5900X, 64GB"), GoalRequest(preset="agent", context=131_072)
    mix = "ffn_down_exps=q5_K,exps=q4_K,*=q6_K"
    body = ask("Qwen3.5-35B-A3B", mix, hardware=rig, goal=goal, engine="llama.cpp")
    (said,) = [note for note in first(body).notes if "you asked for a context" in note]
    assert "would give PP +" in said
