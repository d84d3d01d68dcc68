"""Old builds behave as they did."""

from __future__ import annotations

import pytest

from service.engine.config import Flags
from service.engine.model import Model
from service.engine.speed import Speed, predict_speed
from service.engine.speed.builds import MILESTONES, changes_after
from tests.engine.speed.machines import (
    DESKTOP_9950X,
    RTX_A6000,
    THREADRIPPER_A6000,
    all_in_ram,
    all_on_gpu,
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
    return predict_speed("ik_llama.cpp", model, flags, spread(model), of, devices(of), n_kv, date)


def test_without_a_date_nothing_is_missing() -> None:
    assert changes_after("ik_llama.cpp", None) == frozenset()
    assert changes_after("ik_llama.cpp", "2026-08-15") == frozenset()


@pytest.mark.parametrize("milestone", MILESTONES, ids=lambda m: f"{m.engine} {m.change}")
def test_a_change_is_missing_until_its_day(milestone: object) -> None:
    m = milestone
    day_before = f"{m.date[:8]}{int(m.date[8:]) - 1:02}"  # type: ignore[attr-defined]
    assert m.change in changes_after(m.engine, day_before)  # type: ignore[attr-defined]
    assert m.change not in changes_after(m.engine, m.date)  # type: ignore[attr-defined]


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
        predict_speed("ik_llama.cpp", AIR, Flags(), all_on_gpu(AIR, 2), two, devices(two), 16_384, d).tg.expected
        for d in ("2025-08-16", "2025-08-17")
    )
    assert new > 1.4 * old


def test_plain_types_were_slow_on_the_cpu_before_they_were_repacked_on_the_fly() -> None:
    model = build("Qwen3-14B", "iq3_xxs")
    of = DESKTOP_9950X
    old, new = (
        predict_speed("ik_llama.cpp", model, Flags(), all_in_ram(model), of, (), 0, d).pp.expected
        for d in ("2025-06-01", None)
    )
    assert new > 1.2 * old


def test_an_mla_model_cached_heads_by_default_until_november_2025() -> None:
    old, new = (speed(R1, hybrid_flags(512), d, 32_768).parts_tg["attention"] for d in ("2025-07-01", None))
    assert old > 2 * new
