"""What holds for every config: no roofline is broken, parts add up, better hardware is never slower."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.calibration import shipped
from service.engine.config import ENGINES, Engine, Flags, Placement
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.run.resolved import resolve_run
from service.engine.speed.generation import token_seconds
from service.engine.speed.machine import machine_of
from service.engine.speed.predict import predict_speed
from service.engine.speed.prompt import batch_seconds
from service.engine.speed.sums import work_of
from service.engine.speed.work import Work
from tests.engine.speed.machines import (
    DUAL_SKYLAKE,
    EPYC_5090,
    M2_ULTRA,
    MI50,
    P40,
    RTX_3090,
    RTX_5090,
    THREADRIPPER_A6000,
    all_in_ram,
    all_on_gpu,
    devices,
    hybrid_flags,
    rig,
    spread,
)
from tests.models import build
from tests.sampling import examples

MODELS = [
    build("DeepSeek-R1-0528", "exps=iq2_k,*=q8_0"),
    build("Qwen3-235B-A22B", "exps=q4_K,*=q8_0"),
    build("gpt-oss-120b", "exps=mxfp4,*=q8_0"),
    build("Gemma-3-27B", "q4_0"),
    build("Llama-3.1-8B", "f16"),
    build("Qwen3-0.6B", "iq4_xs"),
    build("Qwen3-Next-80B-A3B", "q4_K"),
]
RIGS = [
    THREADRIPPER_A6000,
    EPYC_5090,
    DUAL_SKYLAKE,
    rig(RTX_5090, RTX_3090, P40),
    rig(MI50, isa="avx2", cpu_generation="zen3"),
    rig(M2_ULTRA, isa="apple", cpu_generation="m2"),
]


def placements(model: Model, n: int) -> list[Placement]:
    if not n:
        return [all_in_ram(model)]
    return [
        all_on_gpu(model, n),
        spread(model, n),
        spread(model, n, experts_on_gpu=range(model.n_layer // 3)),
        spread(model, n, layers_on_gpu=model.n_layer // 2),
        all_in_ram(model, n),
    ]


cases = st.tuples(
    st.sampled_from(ENGINES),
    st.sampled_from(MODELS),
    st.sampled_from(RIGS),
    st.integers(0, 4),
    st.integers(0, 131_072),
    st.sampled_from((1, 16, 32, 512, 1024, 4096, 16384)),
    st.sampled_from(("f16", "q8_0", "q4_0")),
    st.sampled_from((None, 0, 1, 2, 3)),
    st.booleans(),
)


def config(case: tuple[object, ...]) -> tuple[Engine, Model, Flags, Placement, Rig, int]:
    engine, model, of, which, n_kv, u, kv, mla, repack = case
    options = placements(model, len(of.cards))  # type: ignore[attr-defined,arg-type]
    flags = hybrid_flags(u, cache_type_k=kv, cache_type_v=kv, mla=mla, runtime_repack=repack)  # type: ignore[arg-type]
    return engine, model, flags, options[which % len(options)], of, n_kv  # type: ignore[operator,return-value]


def share(model: Model, name: str) -> float:
    return model.n_expert_used / model.n_expert if "_exps." in name else 1.0


@given(cases)
@examples(150)
def test_tokens_are_never_faster_than_their_bytes_over_the_bandwidth(case: tuple[object, ...]) -> None:
    engine, model, flags, placement, of, n_kv = config(case)
    fastest = 0.0
    for name, device in placement.tensors.items():
        if name.startswith("output") and model.tied:
            continue
        bandwidth = of.cards[device].bandwidth_gbs if device < len(of.cards) else of.cpu_bandwidth_gbs
        tensor = model.by_name[name]
        if "_norm" not in name and len(tensor.dims) > 1:
            fastest += tensor.nbytes * share(model, name) / (bandwidth * 1e9)
    assert (
        predict_speed(resolve_run(engine, model, flags, of, devices(of), placement=placement), n_kv).tg.expected
        <= 1 / fastest
    )


@given(cases)
@examples(150)
def test_prompts_are_never_faster_than_all_peaks_together(case: tuple[object, ...]) -> None:
    engine, model, flags, placement, of, n_kv = config(case)
    operations = sum(
        2 * share(model, t.name) * t.dims[0] * t.dims[1] * (t.dims[2] if len(t.dims) > 2 else 1)
        for t in model.tensors
        if len(t.dims) > 1 and ".ffn_" in t.name
    )
    cpu = of.physical_cores * of.ghz * 1e9 * 256  # int8 operations of two 512-bit units, the widest there are
    peak = sum(card.int8_tops * 1e12 for card in of.cards) + cpu
    assert (
        predict_speed(resolve_run(engine, model, flags, of, devices(of), placement=placement), n_kv).pp.expected
        <= peak / operations
    )


@given(cases)
@examples(100)
def test_parts_add_up_and_intervals_hold_the_expected_value(case: tuple[object, ...]) -> None:
    engine, model, flags, placement, of, n_kv = config(case)
    speed = predict_speed(resolve_run(engine, model, flags, of, devices(of), placement=placement), n_kv)
    assert 1 / sum(speed.parts_tg.values()) == pytest.approx(speed.tg.expected)
    assert speed.n_ubatch / sum(speed.parts_pp.values()) == pytest.approx(speed.pp.expected)
    assert all(seconds >= 0 for parts in (speed.parts_tg, speed.parts_pp) for seconds in parts.values())
    for estimate in (speed.tg, speed.pp):
        assert 0 < estimate.low < estimate.expected <= estimate.high


def better(of: Rig, what: str) -> Rig:
    if what == "RAM":
        return msgspec.structs.replace(of, cpu_bandwidth_gbs=of.cpu_bandwidth_gbs * 1.3)
    if what == "cores":
        return msgspec.structs.replace(of, ghz=of.ghz * 1.3)
    field = {"VRAM": "bandwidth_gbs", "link": "pcie_gbs", "peak": "int8_tops"}[what]
    cards = (msgspec.structs.replace(c, **{field: getattr(c, field) * 1.3}) for c in of.cards)
    return msgspec.structs.replace(of, cards=tuple(cards))


@given(cases, st.sampled_from(("RAM", "cores", "VRAM", "link", "peak")))
@examples(150)
def test_more_bandwidth_clock_or_peak_is_never_slower(case: tuple[object, ...], what: str) -> None:
    engine, model, flags, placement, of, n_kv = config(case)
    before, after = (
        predict_speed(resolve_run(engine, model, flags, r, devices(r), placement=placement), n_kv)
        for r in (of, better(of, what))
    )
    assert after.tg.expected >= before.tg.expected * (1 - 1e-9)
    assert after.pp.expected >= before.pp.expected * (1 - 1e-9)


@given(cases, st.integers(1, 65_536))
@examples(100)
def test_more_tokens_in_the_cache_are_never_faster(case: tuple[object, ...], more: int) -> None:
    engine, model, flags, placement, of, n_kv = config(case)
    before, after = (
        predict_speed(resolve_run(engine, model, flags, of, devices(of), placement=placement), d)
        for d in (n_kv, n_kv + more)
    )
    assert after.tg.expected <= before.tg.expected * (1 + 1e-9)
    assert after.pp.expected <= before.pp.expected * (1 + 1e-9)


def test_one_depth_takes_less_than_a_third_of_a_millisecond() -> None:
    model, of = MODELS[0], rig(RTX_5090, RTX_3090, P40)
    flags, placement = hybrid_flags(4096), spread(MODELS[0], 3, experts_on_gpu=range(20))
    run, p = resolve_run("ik_llama.cpp", model, flags, of, devices(of), placement=placement), shipped().coefficients
    work = work_of(run)
    machine = machine_of(of, devices(of), flags, p)
    best = 1.0
    for _ in range(200):
        start = time.perf_counter()
        token_seconds(work, machine, p, 8192)
        batch_seconds(work, machine, p, 4096, 8192)
        best = min(best, time.perf_counter() - start)
    assert best < 0.0003


def test_the_work_of_a_placement_is_summed_once() -> None:
    model, placement = MODELS[0], spread(MODELS[0])

    def work(flags: Flags) -> Work:
        return work_of(resolve_run("ik_llama.cpp", model, flags, rig(RTX_5090), (), placement=placement))

    assert work(hybrid_flags()) is work(hybrid_flags())
    assert work(hybrid_flags(512)) is not work(hybrid_flags())


def test_every_parameter_says_what_it_is_and_how_sure() -> None:
    known = shipped()
    assert len(known.parameters) > 100
    for name, parameter in known.parameters.items():
        assert parameter.value >= 0, name
        assert 0 <= parameter.spread < 1, name
        assert parameter.meaning, name
        assert parameter.unit in {"ratio", "s", "exponent", "GB/s", "tokens", "TOPS/W", "instructions"}, name


def _of_capability(capability: float) -> tuple[float, float, float]:
    """Seconds of a token in Q4_K, and of a prompt in Q4_K and in IQ2_XXS, on a Tesla P100 of this capability."""
    p100 = msgspec.structs.replace(
        P40, bandwidth_gbs=732.0, fp16_tflops=19.1, int8_tops=19.1, compute_capability=capability
    )
    machine, seconds = rig(p100), []
    p = dict(shipped().coefficients)
    for mix in ("q4_K", "iq2_xxs"):
        model = build("Llama-3.1-8B", mix)
        config = resolve_run("llama.cpp", model, Flags(), machine, devices(machine), placement=all_on_gpu(model))
        work, rates = work_of(config), machine_of(machine, devices(machine), Flags(), p)
        seconds.append(
            (sum(token_seconds(work, rates, p, 0).values()), sum(batch_seconds(work, rates, p, 512, 0).values()))
        )
    return seconds[0][0], seconds[0][1], seconds[1][1]


def test_a_card_without_int8_products_computes_tokens_and_multiplies_prompts_of_all_types_alike() -> None:
    token, prompt, of_other_type = _of_capability(6.0)
    with_products, slow_prompt, slow_of_other_type = _of_capability(6.1)
    assert token > 1.3 * with_products
    assert prompt < slow_prompt
    assert of_other_type == pytest.approx(prompt, rel=0.03)
    assert slow_of_other_type > 1.05 * slow_prompt
