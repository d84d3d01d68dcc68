"""Old builds behave as they did."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from service.engine.calibration import shipped
from service.engine.config import Engine, Flags
from service.engine.engines import all_engines
from service.engine.engines.speed import Milestone
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.run.resolved import resolve_run
from service.engine.speed.predict import Speed, predict_speed
from service.engine.speed.sums import changes_after
from tests.engine.speed.machines import (
    DESKTOP_9950X,
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
AIR = build("GLM-4.5-Air", "q4_0")


def speed(model: Model, flags: Flags, date: str | None, n_kv: int = 0) -> Speed:
    of = THREADRIPPER_A6000
    return predict_speed(
        resolve_run("ik_llama.cpp", model, flags, of, devices(of), date, placement=spread(model)), n_kv
    )


def test_without_a_date_nothing_is_missing() -> None:
    assert changes_after("ik_llama.cpp", None) == frozenset()
    assert changes_after("ik_llama.cpp", "2026-08-15") == frozenset()


@pytest.mark.parametrize(
    ("engine", "milestone"),
    [pytest.param(one.name, m, id=f"{one.name} {m.change}") for one in all_engines() for m in one.speed.milestones],
)
def test_a_change_is_missing_until_its_day(engine: Engine, milestone: Milestone) -> None:
    day_before = f"{milestone.date[:8]}{int(milestone.date[8:]) - 1:02}"
    assert milestone.change in changes_after(engine, day_before)
    assert milestone.change not in changes_after(engine, milestone.date)


def test_experts_were_copied_from_32_tokens_on_before_june_2025() -> None:
    old, new = (speed(R1, hybrid_flags(512), d).parts_pp for d in ("2025-06-11", "2025-06-12"))
    assert old["experts in RAM"] == 0
    assert new["experts in RAM"] > 0


def test_interleaved_types_were_not_copied_before_they_had_kernels() -> None:
    model = build("DeepSeek-R1-0528", "exps=iq2_k_r4,*=q8_0")
    old, new = (speed(model, hybrid_flags(4096), d).parts_pp for d in ("2025-05-20", "2025-06-30"))
    assert old["experts in RAM"] > 0
    assert new["experts in RAM"] == 0


def test_all_experts_were_copied_before_only_active_ones() -> None:
    model = build("gpt-oss-120b", "exps=mxfp4,*=q8_0")
    old, new = (speed(model, hybrid_flags(1024), d).parts_pp for d in ("2025-08-16", None))
    assert old["copies over PCIe"] > 1.2 * new["copies over PCIe"]


def test_twelve_heads_a_kv_head_were_slow_at_depth_before_august_2025() -> None:
    two = rig(RTX_A6000, RTX_A6000)
    old, new = (
        predict_speed(
            resolve_run("ik_llama.cpp", AIR, Flags(), two, devices(two), d, placement=all_on_gpu(AIR, 2)), 16_384
        ).tg.expected
        for d in ("2025-08-16", "2025-08-17")
    )
    assert new > 1.4 * old


def test_plain_types_were_slow_on_the_cpu_before_they_were_repacked_on_the_fly() -> None:
    model = build("Qwen3-14B", "iq3_xxs")
    of = DESKTOP_9950X
    old, new = (
        predict_speed(
            resolve_run("ik_llama.cpp", model, Flags(), of, (), d, placement=all_in_ram(model)), 0
        ).pp.expected
        for d in ("2025-06-01", None)
    )
    assert new > 1.2 * old


def test_an_mla_model_cached_heads_by_default_until_november_2025() -> None:
    old, new = (speed(R1, hybrid_flags(512), d, 32_768).parts_tg["attention"] for d in ("2025-07-01", None))
    assert old > 2 * new


@pytest.mark.parametrize(
    ("backend", "generation", "day_before", "slower"),
    [
        ("vulkan", "rdna3", "2026-01-31", True),
        ("rocm", "rdna3", "2026-01-31", False),
        ("rocm", "rdna3", "2025-12-04", True),
        ("rocm", "rdna2", "2025-12-04", False),
        ("metal", "apple m2", "2024-08-01", False),
    ],
)
def test_new_kernels_of_one_back_end_change_no_other(
    backend: str, generation: str, day_before: str, slower: bool
) -> None:
    of = rig(card("a card", generation, 24, 900, 120, 31.5, backend=backend))
    model = build("Llama-3.1-8B", "q4_0")
    old, new = (
        predict_speed(
            resolve_run("llama.cpp", model, Flags(flash_attn="on"), of, devices(of), date, placement=all_on_gpu(model)),
            0,
        ).parts_pp["weights on GPU"]
        for date in (day_before, None)
    )
    assert (old > 1.1 * new) is slower


def test_attention_on_rdna_uses_matrix_units_since_july_2026_for_heads_of_up_to_128_values() -> None:
    of = rig(card("Radeon AI PRO R9700", "rdna4", 32, 645, 191, 31.5, backend="rocm"))

    def attention(shape: str, date: str | None) -> float:
        model = build(shape, "q4_0")
        run = resolve_run("llama.cpp", model, Flags(), of, devices(of), date, placement=all_on_gpu(model))
        return predict_speed(run, 16_384).parts_pp["attention"]

    assert attention("Llama-3.1-8B", "2026-06-30") > 1.5 * attention("Llama-3.1-8B", "2026-07-01")
    assert attention("Gemma-3-12B", "2026-06-30") == pytest.approx(attention("Gemma-3-12B", None))


@pytest.mark.parametrize(
    ("shape", "kind", "date", "backend", "in_ram"),
    [
        ("gpt-oss-120b", "q4_0", "2025-09-26", "cuda", True),  # heads of 64
        ("gpt-oss-120b", "q8_0", "2025-09-26", "rocm", True),
        ("gpt-oss-120b", "q8_0", "2025-09-26", "vulkan", False),
        ("gpt-oss-120b", "f16", "2025-09-26", "cuda", False),
        ("gpt-oss-120b", "q4_0", "2025-09-27", "cuda", False),
        ("gpt-oss-120b", "bf16", "2026-03-21", "cuda", True),
        ("gpt-oss-120b", "bf16", "2026-03-22", "cuda", False),
        ("gpt-oss-120b", "q4_0", None, "cuda", False),
        ("Gemma-3-12B", "q8_0", "2025-09-26", "cuda", True),  # of 256
        ("Llama-3.1-8B", "q8_0", "2025-09-26", "cuda", False),  # of 128
    ],
)
def test_the_cpu_attended_to_caches_for_which_cards_had_no_kernel_yet(
    shape: str, kind: str, date: str | None, backend: str, in_ram: bool
) -> None:
    model, of = build(shape, "q4_0"), rig(card("a card", "ampere", 96, 900, 120, 31.5, backend=backend))

    def after(n_kv: int, kind: str) -> Speed:
        flags = Flags(flash_attn="on", cache_type_k=kind, cache_type_v=kind)
        run = resolve_run("llama.cpp", model, flags, of, devices(of), date, placement=all_on_gpu(model))
        return predict_speed(run, n_kv)

    found, f16 = after(10_000, kind), after(10_000, "f16")
    assert (found.parts_tg["attention"] > 4 * f16.parts_tg["attention"]) is in_ram
    assert (found.parts_pp["attention"] > 4 * f16.parts_pp["attention"]) is in_ram
    assert (found.parts_tg["copies over PCIe"] > 0) is in_ram


def test_gpt_oss_with_a_q4_0_cache_in_august_2025_is_as_slow_as_it_was_measured() -> None:
    """reddit.com/r/LocalLLaMA/comments/1ng0fmv: 10 to 11 t/s with -ctk q4_0 -ctv q4_0, 35 with f16, RTX 5090."""
    model, of = build("gpt-oss-120b", "exps=mxfp4,*=q8_0"), rig(RTX_5090, physical_cores=8, cpu_bandwidth_gbs=80)

    def tg(kind: str) -> float:
        flags = Flags(
            flash_attn="on", n_gpu_layers=99, n_cpu_moe=22, n_ctx=65_536, cache_type_k=kind, cache_type_v=kind
        )
        return predict_speed(resolve_run("llama.cpp", model, flags, of, devices(of), "2025-08-29"), 10_000).tg.expected

    assert 8 < tg("q4_0") < 25
    assert tg("f16") > 33


HYBRID = build("Qwen3.5-35B-A3B", "down_exps=q5_K,exps=q4_K,output=q6_K,token_embd=q4_K,*=q8_0")


def tokens(of: Rig, date: str) -> float:
    run = resolve_run("llama.cpp", HYBRID, Flags(), of, devices(of), date, placement=all_on_gpu(HYBRID))
    return predict_speed(run, 0).tg.expected


def test_recurrent_layers_of_march_2026_took_longer_to_launch() -> None:
    """Qwen3.5-35B-A3B on one RTX 4090: 124 t/s by build b8396 of 17 March, 158 by b8720 of 9 April."""
    of = rig(RTX_4090)
    assert tokens(of, "2026-03-17") == pytest.approx(124, rel=0.15)
    assert tokens(of, "2026-04-09") == pytest.approx(158, rel=0.15)
    assert tokens(of, "2026-03-09") < tokens(of, "2026-03-17")


V4 = build("DeepSeek-V4-Flash", "exps=iq1_s,*=q8_0")
ARC_B65 = rig(
    card("Arc Pro B65", "battlemage", 32, 608, 98, 31.5, backend="vulkan"), cpu_generation="zen5", physical_cores=16,
    cpu_bandwidth_gbs=75.0,
)  # fmt: skip


def test_vulkan_fused_the_hyper_connections_of_deepseek_v4_two_months_after_cuda() -> None:
    """ggml-org/llama.cpp 26568: UD-IQ1_S with all experts in RAM, August 2026: 7 to 9 t/s on an Arc Pro B65 by Vulkan,
    some 20 on a 5070 Ti. 26578: 1.8 times the tokens on two Strix Halos."""

    def tg(of: Rig, date: str) -> float:
        flags = Flags(n_gpu_layers=99, n_cpu_moe=43)
        return predict_speed(resolve_run("llama.cpp", V4, flags, of, devices(of), date), 0).tg.expected

    assert 7 < tg(ARC_B65, "2026-08-04") < 9
    assert tg(ARC_B65, "2026-09-07") > 1.6 * tg(ARC_B65, "2026-08-04")
    geforce = rig(card("RTX 5070 Ti", "blackwell", 16, 896, 176, 63), cpu_generation="zen5", cpu_bandwidth_gbs=75.0)
    assert tg(geforce, "2026-08-04") == pytest.approx(20, rel=0.2)
    assert tg(geforce, "2026-08-04") == tg(geforce, "2026-09-07")


NEXT = build("Qwen3-Next-80B-A3B", "iq4_xs")
THREADRIPPER_3995WX = rig(
    cpu_generation="zen2", isa="avx2", physical_cores=64, ghz=3.2, cpu_bandwidth_gbs=164.0, bandwidth_measured=False
)
RYZEN_6800H = rig(cpu_generation="zen3+", isa="avx2", physical_cores=8, ghz=4.0, cpu_bandwidth_gbs=46.5)


def in_ram(engine: Engine, model: Model, of: Rig, date: str | None) -> Speed:
    return predict_speed(resolve_run(engine, model, Flags(), of, (), date, placement=all_in_ram(model)), 0)


@pytest.mark.parametrize(
    ("engine", "date", "tokens_measured", "prompt_measured"),
    [  # Qwen3-Next-80B-A3B IQ4_XS on a Threadripper 3995WX (tests/data/perf_delta_net_cpu.jsonl; the first two are the
        # code of llama.cpp as it was ported to ik_llama.cpp, pull requests 1251 and 1266)
        ("llama.cpp", "2026-02-10", 7.2, None),
        ("llama.cpp", "2026-02-17", 10.3, 97.4),
        ("ik_llama.cpp", "2026-02-17", 22.6, 275.0),
    ],
)
def test_delta_nets_on_the_cpu_waited_for_one_thread_before_they_were_one_operation(
    engine: Engine, date: str, tokens_measured: float, prompt_measured: float | None
) -> None:
    old, new = (in_ram(engine, NEXT, THREADRIPPER_3995WX, day) for day in (date, None))
    assert old.tg.expected == pytest.approx(tokens_measured, rel=0.2)
    assert old.tg.low < tokens_measured < old.tg.high
    assert new.tg.expected > 1.1 * old.tg.expected
    if prompt_measured is not None:
        assert old.pp.expected == pytest.approx(prompt_measured, rel=0.25)
        assert new.pp.expected > 1.5 * old.pp.expected


def test_delta_nets_on_the_cpu_still_wait_for_one_thread() -> None:
    """Qwen3.6-35B-A3B of 13.1 GiB on a Ryzen 7 6800H, llama.cpp of September 2026: 15.3 t/s on the CPU, 22.5 on its GPU
    (tests/data/perf_delta_net_cpu.jsonl)."""
    found = in_ram("llama.cpp", build("Qwen3.5-35B-A3B", "exps=iq3_xxs,*=q5_K"), RYZEN_6800H, None)
    assert found.tg.expected == pytest.approx(15.3, rel=0.1)
    assert found.tg.high / found.tg.expected > 1.4  # few machines were published


def test_a_fit_of_an_older_release_says_how_certain_delta_nets_on_the_cpu_are() -> None:
    known = {name: factor for name, factor in shipped().intervals.items() if not name.endswith("states_in_ram")}
    older = replace(RYZEN_6800H, fitted=replace(shipped(), intervals=known))
    old, new = (in_ram("llama.cpp", NEXT, of, None).tg for of in (older, RYZEN_6800H))
    assert (old.low, old.high) == (new.low, new.high)


@pytest.mark.parametrize("change", ["2026-02-14", "2026-03-11"])
def test_what_made_delta_nets_faster_on_the_cpu_changed_no_card_and_no_other_state(change: str) -> None:
    before = f"{change[:8]}{int(change[8:]) - 1:02}"
    on_card = [
        predict_speed(resolve_run("llama.cpp", NEXT, Flags(), two, devices(two), day, placement=all_on_gpu(NEXT, 2)), 0)
        for two in [rig(RTX_A6000, RTX_A6000)]
        for day in (before, change)
    ]
    mamba = build("Granite-4.0-H-Small", "q4_0")
    in_memory = [in_ram("llama.cpp", mamba, THREADRIPPER_3995WX, day) for day in (before, change)]
    for old, new in (on_card, in_memory):
        assert old.parts_tg == new.parts_tg
        assert old.parts_pp == new.parts_pp


@pytest.mark.parametrize(
    ("name", "generation", "bandwidth", "tflops", "date", "measured"),
    [  # llama.cpp runs of Qwen3.5- and Qwen3.6-35B-A3B, 4-bit (tests/data/perf_2026_11.jsonl and perf_2026.jsonl)
        ("M1 Max", "apple m1", 400, 10.4, "2026-07-27", 47.6),
        ("M3 Max", "apple m3", 400, 14.2, "2026-05-03", 57.9),
        ("M4 Max", "apple m4", 546, 18.4, "2026-05-16", 72.6),
        ("M5", "apple m5", 153, 5.7, "2026-05-07", 31.1),
        ("M5 Max", "apple m5", 614, 22.8, "2026-06-27", 93.0),
    ],
)
def test_hybrid_models_are_faster_on_larger_chips_of_apple(
    name: str, generation: str, bandwidth: float, tflops: float, date: str, measured: float
) -> None:
    of = rig(card(name, generation, 64, bandwidth, 2 * tflops, 0.0, backend="metal", unified=True))
    assert tokens(of, date) == pytest.approx(measured, rel=0.3)
