"""Effects that people measured come out with the right sign. The numbers quoted are the published ones."""

from __future__ import annotations

import msgspec
import pytest

from service.engine.config import Engine, Flags, Placement
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.run.resolved import resolve_run
from service.engine.speed.predict import Speed, predict_speed
from tests.engine.speed.machines import (
    DESKTOP_9950X,
    DUAL_SKYLAKE,
    EPYC_5090,
    P40,
    RTX_3090,
    RTX_4090,
    RTX_5090,
    RTX_A6000,
    THREADRIPPER,
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

IK: Engine = "ik_llama.cpp"
MAINLINE: Engine = "llama.cpp"
R1 = build("DeepSeek-R1-0528", "exps=iq2_k,*=q8_0")
QWEN_235B = build("Qwen3-235B-A22B", "exps=iq3_k,*=q8_0")
GLM_AIR = build("GLM-4.5-Air", "exps=q4_K,*=q8_0")


def speed(
    model: Model,
    of: Rig,
    placement: Placement | None = None,
    flags: Flags | None = None,
    n_kv: int = 0,
    engine: Engine = IK,
) -> Speed:
    chosen = spread(model, len(of.cards)) if placement is None else placement
    return predict_speed(resolve_run(engine, model, flags or hybrid_flags(), of, devices(of), placement=chosen), n_kv)


def pp(*args: object, **more: object) -> float:
    return speed(*args, **more).pp.expected  # type: ignore[arg-type]


def tg(*args: object, **more: object) -> float:
    return speed(*args, **more).tg.expected  # type: ignore[arg-type]


def test_a_larger_micro_batch_pays_where_experts_are_copied_from_ram() -> None:
    # pr529: 75, 178, 272, 323 t/s at -ub 512, 2048, 4096, 8192
    speeds = [pp(R1, THREADRIPPER_A6000, flags=hybrid_flags(u)) for u in (512, 2048, 4096, 8192)]
    assert speeds == sorted(speeds)
    assert 2.3 < speeds[2] / speeds[0] < 5.0


def test_a_larger_micro_batch_does_not_change_token_generation() -> None:
    assert tg(R1, THREADRIPPER_A6000, flags=hybrid_flags(512)) == tg(R1, THREADRIPPER_A6000, flags=hybrid_flags(4096))


def test_all_on_the_gpu_a_larger_micro_batch_pays_less() -> None:
    # pr739: 1199 to 1668 t/s from -ub 512 to 4096, GLM-4.5-Air on two A6000
    two = rig(RTX_A6000, RTX_A6000)
    small, large = (pp(GLM_AIR, two, all_on_gpu(GLM_AIR, 2), hybrid_flags(u)) for u in (512, 4096))
    assert 1.05 < large / small < 1.9


def test_more_expert_layers_on_the_gpu_make_tokens_faster() -> None:
    speeds = [tg(R1, THREADRIPPER_A6000, spread(R1, 1, experts_on_gpu=range(3, 3 + n))) for n in (0, 1, 4, 8)]
    assert speeds == sorted(speeds)
    assert speeds[-1] > speeds[0] * 1.02


def test_slow_ram_makes_expert_layers_on_the_gpu_pay_more() -> None:
    # discussion 477: 3.40 to 5.77 with 85 GB/s; discussion 258: 17.95 to 18.06 with a fast CPU
    slow = rig(RTX_A6000, cpu_bandwidth_gbs=85.0)
    gain = [tg(R1, r, spread(R1, 1, experts_on_gpu=range(3, 11))) / tg(R1, r, spread(R1)) for r in (slow, EPYC_5090)]
    assert gain[0] > gain[1]


def test_repacking_hurts_at_large_and_helps_at_small_micro_batches() -> None:
    # discussion 491: -ub 4096 287 to 169, -ub 1024 103 to 150; discussion 548: -ub 512 54 to 228 (llama.cpp rule of 32)
    model = build("Qwen3-235B-A22B", "exps=iq4_xs,*=q8_0")
    for u, helps in ((4096, False), (512, True)):
        plain, repacked = (
            pp(model, THREADRIPPER_A6000, flags=hybrid_flags(u, runtime_repack=r)) for r in (False, True)
        )
        assert (repacked > plain) is helps


def test_a_repacked_type_with_cuda_kernels_is_still_copied() -> None:
    model = build("Qwen3-235B-A22B", "exps=iq4_ks,*=q8_0")
    parts = speed(model, THREADRIPPER_A6000, flags=hybrid_flags(4096, runtime_repack=True)).parts_pp
    assert parts["experts in RAM"] == 0
    assert parts["copies over PCIe"] > 0


@pytest.mark.parametrize("model", [R1, QWEN_235B, GLM_AIR], ids=lambda m: m.name)
def test_deeper_is_slower(model: Model) -> None:
    speeds = [speed(model, THREADRIPPER_A6000, n_kv=d) for d in (0, 4096, 32768, 131072)]
    assert [s.tg.expected for s in speeds] == sorted((s.tg.expected for s in speeds), reverse=True)
    assert [s.pp.expected for s in speeds] == sorted((s.pp.expected for s in speeds), reverse=True)
    assert speeds[0].tg.expected > speeds[-1].tg.expected * 1.1


def test_a_quantised_cache_costs_nothing_at_first_and_much_at_depth() -> None:
    # pr700: 17.15 to 9.97 t/s at 98k with 12 heads a KV head, -2 % at 0
    two = rig(RTX_A6000, RTX_A6000)
    f16, q8 = Flags(), Flags(cache_type_k="q8_0", cache_type_v="q8_0")
    shallow, deep = (
        tg(GLM_AIR, two, all_on_gpu(GLM_AIR, 2), q8, d) / tg(GLM_AIR, two, all_on_gpu(GLM_AIR, 2), f16, d)
        for d in (0, 98304)
    )
    assert 0.97 < shallow <= 1.0
    assert 0.3 < deep < 0.7


def test_mla_3_keeps_its_speed_at_depth_where_mla_2_does_not() -> None:
    # pr386: 3.07 times at 61k on the GPU
    model = build("DeepSeek-V2-Lite", "q4_K")
    one = rig(RTX_4090)
    two, three = (tg(model, one, all_on_gpu(model), Flags(mla=m), 61440) for m in (2, 3))
    assert three > two * 1.5


def test_prompts_are_faster_with_mla_3_than_with_mla_1() -> None:
    # two runs of V3 on seven GPUs: 175 to 223
    flags = [msgspec.structs.replace(hybrid_flags(2048), mla=m) for m in (1, 3)]
    one, three = (pp(R1, THREADRIPPER_A6000, flags=f, n_kv=8192) for f in flags)
    assert three > one


def test_a_fused_layer_torn_between_devices_is_many_times_slower() -> None:
    # issue 521: two such layers, 8.72 to 1.57 t/s
    placement = spread(R1)
    torn = placement.tensors | {f"blk.{i}.ffn_up_exps.weight": 0 for i in (30, 31)}
    whole = tg(R1, THREADRIPPER_A6000, placement)
    assert tg(R1, THREADRIPPER_A6000, msgspec.structs.replace(placement, tensors=torn)) < whole * 0.6


def test_llama_cpp_does_not_fuse_and_so_does_not_tear() -> None:
    model = build("DeepSeek-R1-0528", "exps=q3_K,*=q8_0")
    placement = spread(model)
    torn = placement.tensors | {f"blk.{i}.ffn_up_exps.weight": 0 for i in (30, 31)}
    torn_placement = msgspec.structs.replace(placement, tensors=torn)
    whole, apart = (tg(model, THREADRIPPER_A6000, p, engine=MAINLINE) for p in (placement, torn_placement))
    assert apart > whole * 0.95


def test_an_interleaved_type_without_kernels_on_a_gpu_is_many_times_slower() -> None:
    # discussion 491: six layers of R8 experts on GPUs, 17 to 1.3 t/s
    model = build("Qwen3-235B-A22B", "exps=iq4_xs_r8,*=q8_0")
    on_gpu, in_ram = spread(model, 1, experts_on_gpu=range(6)), spread(model)
    assert tg(model, rig(RTX_3090), on_gpu) < tg(model, rig(RTX_3090), in_ram) * 0.5


def test_a_slow_second_card_slows_a_model_that_fits_the_first() -> None:
    model = build("Qwen3-14B", "q4_K")
    alone = tg(model, rig(RTX_5090), all_on_gpu(model), Flags())
    assert tg(model, rig(RTX_5090, P40), all_on_gpu(model, 2), Flags()) < alone * 0.8


def test_spreading_the_whole_ffn_costs_more_changes_than_the_experts_only() -> None:
    # issue 629: whole-FFN overrides 22.5, experts only 24.1 t/s
    model = QWEN_235B
    experts = spread(model)
    moved = {n: 1 for n in experts.tensors if ".ffn_" in n}
    whole = msgspec.structs.replace(experts, tensors=experts.tensors | moved)
    assert tg(model, EPYC_5090, experts) > tg(model, EPYC_5090, whole)


def test_copies_can_be_switched_off() -> None:
    # issue 765: 550 against 141 with copies switched off, -ub 8192
    on, off = (pp(R1, EPYC_5090, flags=hybrid_flags(8192, op_offload=o)) for o in (True, False))
    assert on > off * 2


def test_copies_of_experts_can_be_switched_off_by_operation() -> None:
    off = speed(R1, EPYC_5090, flags=hybrid_flags(8192, other=("-op 28,0,31,0",)))
    assert off.parts_pp["experts in RAM"] > 0
    assert speed(R1, EPYC_5090, flags=hybrid_flags(8192)).parts_pp["experts in RAM"] == 0


def test_fewer_experts_a_token_are_faster() -> None:
    # discussion 459: -ser 4,1 7.2 to 10.1 t/s
    assert tg(QWEN_235B, EPYC_5090, flags=hybrid_flags(other=("-ser 4,1",))) > 1.2 * tg(QWEN_235B, EPYC_5090)


def test_fewer_experts_a_token_do_not_move_the_threshold_for_copies() -> None:
    # discussion 548: -ser 6,1 at -ub 512 still copies, 228 to 54 t/s
    flags = hybrid_flags(512, other=("-ser 6,1",))
    assert speed(QWEN_235B, THREADRIPPER_A6000, flags=flags).parts_pp["experts in RAM"] == 0


def test_copies_do_not_pay_over_a_slow_link() -> None:
    # issue 765: 67 with copies, 93 without, on a Turing card with a slow link
    slow = rig(card("Quadro RTX 8000", "turing", 48, 672, 261, 4.0))
    on, off = (pp(R1, slow, flags=hybrid_flags(4096, op_offload=o)) for o in (True, False))
    assert on < off


def test_ik_leaves_experts_to_the_cpu_below_its_threshold_and_llama_cpp_does_not() -> None:
    model = build("DeepSeek-R1-0528", "exps=q3_K,*=q8_0")
    below, above = (speed(model, THREADRIPPER_A6000, flags=hybrid_flags(u)).parts_pp for u in (1023, 1024))
    assert below["experts in RAM"] > 0
    assert above["experts in RAM"] == 0
    assert speed(model, THREADRIPPER_A6000, flags=hybrid_flags(512), engine=MAINLINE).parts_pp["experts in RAM"] == 0


def test_attention_on_the_gpu_is_faster_than_cpu_only() -> None:
    # pr232: 28.7 to 45.3 t/s
    model = build("DeepSeek-V2-Lite", "iq4_nl")
    of = rig(RTX_4090, cpu_bandwidth_gbs=67.0, physical_cores=16)
    assert tg(model, of) > 1.2 * tg(model, rig(cpu_bandwidth_gbs=67.0, physical_cores=16), all_in_ram(model))


def test_dense_layers_in_ram_are_far_slower_than_on_the_gpu() -> None:
    # issue 255: -ngl 64, 32, 0: 25.2, 4.0, 2.2 t/s
    model = build("Qwen2.5-32B", "q4_0")
    of = rig(RTX_4090, cpu_bandwidth_gbs=67.0, physical_cores=16)
    speeds = [tg(model, of, spread(model, 1, layers_on_gpu=n), Flags()) for n in (0, 32, 64)]
    assert speeds[2] > 3 * speeds[1] > 3 * speeds[0]


def test_ik_prompts_are_faster_than_llama_cpp_on_a_cpu() -> None:
    # disc758, pr344: 1.2 to 4.1 times
    model = build("Qwen3-14B", "q4_0")
    ours, theirs = (pp(model, DESKTOP_9950X, all_in_ram(model), Flags(), engine=e) for e in (IK, MAINLINE))
    assert ours > 1.2 * theirs


def test_trellis_types_are_slow_for_tokens_on_a_cpu() -> None:
    # pr602: IQ2_KT 20.2, IQ2_KS 37.8 t/s, Qwen3-14B
    kt, ks = (build("Qwen3-14B", t) for t in ("iq2_kt", "iq2_ks"))
    assert tg(kt, THREADRIPPER, all_in_ram(kt), Flags()) < 0.8 * tg(ks, THREADRIPPER, all_in_ram(ks), Flags())


def test_two_sockets_give_less_than_twice_one() -> None:
    model = build("Qwen3-30B-A3B", "q8_0")
    one = msgspec.structs.replace(DUAL_SKYLAKE, sockets=1, physical_cores=20, cpu_bandwidth_gbs=102.5)
    both, single = (tg(model, r, all_in_ram(model), Flags()) for r in (DUAL_SKYLAKE, one))
    assert both < 1.6 * single


def test_windows_is_slower_where_the_cpu_works() -> None:
    windows = msgspec.structs.replace(THREADRIPPER_A6000, os="Windows 11")
    assert tg(R1, windows) < tg(R1, THREADRIPPER_A6000)
    assert pp(R1, windows) < 1.01 * pp(R1, THREADRIPPER_A6000)  # the GPU computes batches of 4,096


def test_only_windowed_layers_stop_growing_with_depth() -> None:
    model = build("Gemma-3-27B", "q4_0")
    full = build("Qwen2.5-32B", "q4_0")
    of = rig(RTX_5090)
    lost = [1 - tg(m, of, all_on_gpu(m), Flags(), 32768) / tg(m, of, all_on_gpu(m), Flags()) for m in (model, full)]
    assert 0 < lost[0] < lost[1]


def test_compressed_rows_keep_deepseek_v4_fast_at_depth() -> None:
    # llama.cpp pull 26490, 4x4090: PP 1133, 1042 and 962 t/s, TG 72.7, 69.9 and 67.5 after 0, 10k and 20k tokens
    model = build("DeepSeek-V4-Flash", "iq2_xxs")
    of = rig(*[RTX_4090] * 4)
    placement = spread(model, 4, experts_on_gpu=range(43))
    pps, tgs = (
        [f(model, of, placement, Flags(n_ubatch=512), n, engine=MAINLINE) for n in (0, 20000)] for f in (pp, tg)
    )
    assert pps[1] / pps[0] == pytest.approx(0.85, abs=0.12)
    assert tgs[1] / tgs[0] == pytest.approx(0.93, abs=0.06)
