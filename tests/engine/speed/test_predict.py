"""Intervals, the time of a goal, and comparing two configs."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from service.engine.calibration import shipped
from service.engine.config import Device, Flags, Placement
from service.engine.goal import Goal, GoalRequest, resolve_goal
from service.engine.hardware import Assumption, Rig
from service.engine.run.resolved import resolve_run
from service.engine.speed.predict import goal_seconds, predict_speed, versus
from service.engine.speed.work import quant_class
from tests.engine.speed.machines import (
    DUAL_SKYLAKE,
    M2_ULTRA,
    MI50,
    P40,
    RTX_3090,
    RTX_4090,
    RTX_5090,
    RTX_A6000,
    THREADRIPPER_A6000,
    all_in_ram,
    all_on_gpu,
    card,
    devices,
    hybrid_flags,
    rig,
    spread,
)
from tests.models import build

R1 = build("DeepSeek-R1-0528", "exps=iq2_k,*=q8_0")
QWEN = build("Qwen3-14B", "q4_K")
AIR = build("GLM-4.5-Air", "exps=q4_K,*=q8_0")


def width(low: float, high: float) -> float:
    return math.sqrt(high / low)


def assuming(of: Rig, *fields: str) -> Rig:
    return msgspec.structs.replace(of, assumed=tuple(Assumption(f, "?", "not stated", "speed") for f in fields))


def test_a_calibrated_interval_says_what_it_is_based_on() -> None:
    speed = predict_speed(
        resolve_run(
            "ik_llama.cpp", R1, hybrid_flags(), THREADRIPPER_A6000, devices(THREADRIPPER_A6000), placement=spread(R1)
        ),
        0,
    )
    assert speed.tg.basis == f"calibrated on {shipped().n_runs} published runs"
    intervals = shipped().intervals
    assert width(speed.tg.low, speed.tg.high) == pytest.approx(intervals["tg.hybrid"], abs=0.01)
    assert width(speed.pp.low, speed.pp.high) == pytest.approx(intervals["pp.hybrid"], abs=0.01)


@pytest.mark.parametrize("cards", [(MI50,), (M2_ULTRA,), (card("Arc Graphics", "xe-lpg", 16, 120, 9, 15.75, "sycl"),)])
def test_hardware_without_published_runs_gets_a_formula_and_at_least_a_factor_of_two(cards: tuple[object, ...]) -> None:
    of = rig(*cards)  # type: ignore[arg-type]
    speed = predict_speed(resolve_run("llama.cpp", QWEN, Flags(), of, devices(of), placement=all_on_gpu(QWEN)), 0)
    assert speed.tg.basis == speed.pp.basis == "formula"
    assert speed.tg.expected / speed.tg.low >= 2
    assert width(speed.pp.low, speed.pp.high) >= 2


def test_splits_other_than_by_layer_are_formula() -> None:
    of = rig(RTX_3090, RTX_3090)
    speed = predict_speed(
        resolve_run("ik_llama.cpp", QWEN, Flags(split_mode="graph"), of, devices(of), placement=all_on_gpu(QWEN, 2)), 0
    )
    assert speed.tg.basis == "formula"
    assert speed.tg.expected / speed.tg.low >= 2


def test_two_sockets_widen_the_interval_only_where_the_cpu_works() -> None:
    cpu = predict_speed(resolve_run("ik_llama.cpp", QWEN, Flags(), DUAL_SKYLAKE, (), placement=all_in_ram(QWEN)), 0)
    assert width(cpu.tg.low, cpu.tg.high) >= shipped().intervals["tg.two_sockets"] * 0.999
    of = msgspec.structs.replace(DUAL_SKYLAKE, cards=(RTX_3090,))
    gpu = predict_speed(resolve_run("ik_llama.cpp", QWEN, Flags(), of, devices(of), placement=all_on_gpu(QWEN)), 0)
    assert width(gpu.tg.low, gpu.tg.high) < 1.4


def test_an_assumed_link_widens_prompts_with_copies_and_nothing_else() -> None:
    known, assumed = THREADRIPPER_A6000, assuming(THREADRIPPER_A6000, "hardware.gpus[0].pcie")
    a, b = (
        predict_speed(resolve_run("ik_llama.cpp", R1, hybrid_flags(), r, devices(r), placement=spread(R1)), 0)
        for r in (known, assumed)
    )
    assert b.pp.high / b.pp.low > a.pp.high / a.pp.low
    assert b.tg == a.tg


@pytest.mark.parametrize("field", ["hardware.cpu", "hardware.cpu.ghz", "hardware.ram.mts", "hardware.ram.channels"])
def test_assumed_facts_about_cpu_and_ram_widen_what_runs_there(field: str) -> None:
    of = msgspec.structs.replace(THREADRIPPER_A6000, bandwidth_measured=False)
    a, b = (
        predict_speed(resolve_run("ik_llama.cpp", R1, hybrid_flags(), r, devices(r), placement=spread(R1)), 0)
        for r in (of, assuming(of, field))
    )
    assert b.tg.low < a.tg.low
    assert b.tg.high > a.tg.high


def test_a_card_of_unknown_bandwidth_widens_its_interval() -> None:
    known = rig(RTX_3090)
    unknown = rig(msgspec.structs.replace(RTX_3090, bandwidth_known=False))
    a, b = (
        predict_speed(resolve_run("ik_llama.cpp", QWEN, Flags(), r, devices(r), placement=all_on_gpu(QWEN)), 0)
        for r in (known, unknown)
    )
    assert b.tg.high / b.tg.low > a.tg.high / a.tg.low


def test_not_even_the_upper_end_beats_the_bandwidth_of_the_card() -> None:
    model = build("Qwen2.5-72B", "q4_K")
    read = sum(t.nbytes for t in model.tensors if "token_embd" not in t.name and "norm" not in t.name)
    ends = []
    for one in (RTX_3090, RTX_4090, RTX_5090, P40):
        of = rig(one)
        speed = predict_speed(
            resolve_run("ik_llama.cpp", model, Flags(), of, devices(of), placement=all_on_gpu(model)), 0
        )
        ends.append(speed.tg.high / (one.bandwidth_gbs * 1e9 / read))
    assert max(ends) == pytest.approx(1, rel=0.01)


def test_a_deep_quantised_cache_is_less_certain() -> None:
    of = rig(RTX_A6000, RTX_A6000)
    flags = Flags(cache_type_k="q8_0", cache_type_v="q8_0")
    speed = predict_speed(resolve_run("ik_llama.cpp", AIR, flags, of, devices(of), placement=all_on_gpu(AIR, 2)), 65536)
    assert speed.tg.expected / speed.tg.low >= 1.5


def seconds(goal: Goal, flags: Flags) -> float:
    of = THREADRIPPER_A6000
    return goal_seconds(resolve_run("ik_llama.cpp", R1, flags, of, devices(of), placement=spread(R1)), goal).expected


def goal(**numbers: Any) -> Goal:
    return resolve_goal(GoalRequest(context=163_840, **numbers), 163_840)


def test_the_time_of_a_goal_is_that_of_its_prompt_and_output() -> None:
    of = THREADRIPPER_A6000
    wanted = goal(prompt=4096, output=400, depth=8192)
    speed = predict_speed(
        resolve_run("ik_llama.cpp", R1, hybrid_flags(4096), of, devices(of), placement=spread(R1)), 8192
    )
    late = predict_speed(
        resolve_run("ik_llama.cpp", R1, hybrid_flags(4096), of, devices(of), placement=spread(R1)), 8192 + 4096 + 200
    )
    expected = 4096 / speed.pp.expected + 400 / late.tg.expected
    assert seconds(wanted, hybrid_flags(4096)) == pytest.approx(expected)


def test_a_long_prompt_is_the_sum_of_its_micro_batches() -> None:
    of, wanted = THREADRIPPER_A6000, goal(prompt=32_768, output=1, depth=1000)
    batches = [
        2048
        / predict_speed(
            resolve_run("ik_llama.cpp", R1, hybrid_flags(2048), of, devices(of), placement=spread(R1)), d
        ).pp.expected
        for d in range(1000, 33_768, 2048)
    ]
    assert seconds(wanted, hybrid_flags(2048)) == pytest.approx(sum(batches), rel=0.01)


def test_the_last_partial_micro_batch_may_run_on_the_cpu() -> None:
    whole, more = (seconds(goal(prompt=n, output=1, depth=0), hybrid_flags(4096)) for n in (4096, 4096 + 900))
    copied = seconds(goal(prompt=4096 + 1100, output=1, depth=0), hybrid_flags(4096))
    assert whole < more
    assert whole < copied


def test_a_prompt_shorter_than_a_micro_batch_runs_as_one() -> None:
    assert seconds(goal(prompt=100, output=1, depth=0), hybrid_flags(4096)) == pytest.approx(
        seconds(goal(prompt=100, output=1, depth=0), hybrid_flags(512))
    )


def test_cards_without_layers_take_no_part_in_a_long_prompt() -> None:
    of = rig(RTX_3090, RTX_3090, RTX_3090)

    def prompt_seconds(placement: Placement) -> float:
        run = resolve_run("llama.cpp", QWEN, Flags(n_ubatch=512), of, devices(of), placement=placement)
        return goal_seconds(run, resolve_goal(GoalRequest(prompt=16_384, output=1, depth=0), 32_768)).expected

    on_one, on_three = all_on_gpu(QWEN, 1), all_on_gpu(QWEN, 3)
    tensors = {name: 3 * device for name, device in on_one.tensors.items()}  # 1 was the CPU, which is 3 now
    first_only = msgspec.structs.replace(on_one, n_devices=3, tensors=tensors)
    assert prompt_seconds(first_only) > 1.3 * prompt_seconds(on_three)


def test_the_interval_of_a_goal_is_no_narrower_than_its_phases() -> None:
    of = THREADRIPPER_A6000
    estimate = goal_seconds(
        resolve_run("ik_llama.cpp", R1, hybrid_flags(), of, devices(of), placement=spread(R1)), goal()
    )
    assert width(estimate.low, estimate.high) >= min(shipped().intervals[f"{p}.hybrid"] for p in ("tg", "pp"))


def test_two_configs_of_one_rig_compare_more_narrowly_than_each_is_known() -> None:
    of = THREADRIPPER_A6000
    some, none = (
        predict_speed(resolve_run("ik_llama.cpp", R1, hybrid_flags(), of, devices(of), placement=p), 4096)
        for p in (spread(R1, 1, experts_on_gpu=range(3, 13)), spread(R1))
    )
    ratio = versus(some, none, "tg")
    assert ratio.expected == pytest.approx(some.tg.expected / none.tg.expected)
    assert ratio.high / ratio.low < some.tg.high / some.tg.low


def test_a_config_against_itself_is_too_close_to_call() -> None:
    of = THREADRIPPER_A6000
    speed = predict_speed(resolve_run("ik_llama.cpp", R1, hybrid_flags(), of, devices(of), placement=spread(R1)), 0)
    ratio = versus(speed, speed, "pp")
    assert ratio.low < 1 < ratio.high
    assert ratio.expected == pytest.approx(1)


def test_a_micro_batch_of_another_size_compares_by_tokens_a_second() -> None:
    of = THREADRIPPER_A6000
    a, b = (
        predict_speed(resolve_run("ik_llama.cpp", R1, hybrid_flags(u), of, devices(of), placement=spread(R1)), 0)
        for u in (4096, 1024)
    )
    ratio = versus(a, b, "pp")
    assert ratio.expected == pytest.approx(a.pp.expected / b.pp.expected)
    assert ratio.low > 1


def test_another_engine_shares_less_of_the_error() -> None:
    of = rig(RTX_5090)
    a, b = (
        predict_speed(resolve_run(e, QWEN, Flags(), of, devices(of), placement=all_on_gpu(QWEN)), 0)
        for e in ("ik_llama.cpp", "llama.cpp")
    )
    same, other = versus(a, b, "tg"), versus(a, b, "tg", same_engine=False)
    assert other.high / other.low > same.high / same.low


def test_devices_may_be_some_of_the_cards_in_any_order() -> None:
    of = rig(RTX_5090, RTX_3090)
    second = (Device("CUDA0", 1, RTX_3090.free, RTX_3090.total),)
    slow = predict_speed(resolve_run("ik_llama.cpp", QWEN, Flags(), of, second, placement=all_on_gpu(QWEN)), 0)
    alone = predict_speed(
        resolve_run("ik_llama.cpp", QWEN, Flags(), rig(RTX_3090), devices(rig(RTX_3090)), placement=all_on_gpu(QWEN)), 0
    )
    assert slow.tg == alone.tg


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(("q4_K", "k"), ("q8_0_r8", "k"), ("iq4_xs", "k"), ("mxfp4", "k"), ("iq4_nl_r4", "k")),
        *(("iq2_k_r4", "iqk"), ("iq4_kss", "iqk"), ("iq2_kl", "iqk"), ("iq5_ks_r4", "iqk"), ("iq3_kt", "kt")),
        *(("iq1_s_r4", "iq1"), ("iq1_m", "iq1"), ("iq2_xxs", "iq"), ("iq3_s_r4", "iq"), ("bf16_r16", "f")),
    ],
)
def test_types_fall_into_the_classes_of_the_calibration(name: str, expected: str) -> None:
    assert quant_class(name) == expected


def prompt_of(of: Rig, flags: Flags, n_kv: int = 0) -> float:
    model = build("Llama-3.1-8B", "q4_0")
    run = resolve_run("llama.cpp", model, flags, of, devices(of), placement=all_on_gpu(model))
    return predict_speed(run, n_kv).pp.expected


def test_a_board_of_little_power_multiplies_below_its_peak() -> None:
    a30 = msgspec.structs.replace(RTX_3090, int8_tops=330.0, tdp_w=165.0)
    unlimited = msgspec.structs.replace(a30, tdp_w=0.0)
    assert prompt_of(rig(a30), Flags()) < 0.7 * prompt_of(rig(unlimited), Flags())
    assert prompt_of(rig(msgspec.structs.replace(a30, tdp_w=5000.0)), Flags()) == pytest.approx(
        prompt_of(rig(unlimited), Flags()), rel=0.01
    )


def test_without_flash_attention_a_deep_prompt_moves_its_scores() -> None:
    on, off = Flags(flash_attn="on"), Flags(flash_attn="off")
    shallow, deep = (prompt_of(rig(RTX_3090), off, n) / prompt_of(rig(RTX_3090), on, n) for n in (0, 32_768))
    assert deep < shallow


def test_every_hardware_thread_slows_tokens_beside_gpus_only() -> None:
    """Published: -t 128 on 64 cores gave a quarter to 0.62 of the tokens of -t 64 with experts in RAM."""

    def tokens(machine: Rig, placement: Placement, threads: int) -> float:
        flags = msgspec.structs.replace(hybrid_flags(), threads=threads)
        run = resolve_run("ik_llama.cpp", AIR, flags, machine, devices(machine), placement=placement)
        return predict_speed(run, 0).tg.expected

    def gain(machine: Rig, placement: Placement, threads: int) -> float:
        return tokens(machine, placement, threads) / tokens(machine, placement, machine.physical_cores)

    beside = rig(RTX_3090)
    assert gain(beside, spread(AIR, 1), 48) < 0.7
    assert gain(beside, spread(AIR, 1), 36) > 0.9
    assert gain(rig(), all_in_ram(AIR), 48) > 0.9


def test_a_fit_of_an_older_release_takes_the_parameters_it_lacks_from_the_shipped_one() -> None:
    known = {name: p for name, p in shipped().parameters.items() if name != "threads.every"}
    older = msgspec.structs.replace(shipped(), parameters=known)
    machine = msgspec.structs.replace(rig(RTX_3090), fitted=older)
    run = resolve_run("ik_llama.cpp", AIR, hybrid_flags(), machine, devices(machine), placement=spread(AIR, 1))
    as_shipped = msgspec.structs.replace(run, rig=rig(RTX_3090))
    assert predict_speed(run, 0).tg == predict_speed(as_shipped, 0).tg


def test_a_micro_batch_is_no_larger_than_the_context() -> None:
    of = rig(RTX_3090)
    short, cut = (Flags(n_ctx=256, n_ubatch=n) for n in (512, 256))
    speeds = [
        predict_speed(resolve_run("ik_llama.cpp", QWEN, flags, of, devices(of), placement=all_on_gpu(QWEN)), 0)
        for flags in (short, cut)
    ]
    assert [speed.n_ubatch for speed in speeds] == [256, 256]
    assert speeds[0].pp == speeds[1].pp
