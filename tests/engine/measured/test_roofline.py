"""The fastest that can be: above every published run, below what cannot be."""

import pytest
from msgspec.structs import replace

from bench import runs
from service.engine.catalogue import resolve
from service.engine.errors import InvalidInput
from service.engine.hardware import Gpu, Hardware, Ram
from service.engine.measured.roofline import bounding_rig, most_pp, most_tg, require_possible
from service.engine.measured.rows import MeasuredRow
from tests import rigs
from tests.models import build


@pytest.mark.full
def test_every_published_speed_is_well_below_the_bound() -> None:
    nearest = {"TG": 0.0, "PP": 0.0}
    for setup in runs.setups()[0][::4]:
        most = {"TG": most_tg(setup.model, setup.rig), "PP": most_pp(setup.model, setup.rig)}
        for test in runs.tests_of(setup, False):
            nearest[test.phase] = max(nearest[test.phase], test.observed / most[test.phase])
    assert 0.3 < nearest["TG"] < 0.65
    assert nearest["PP"] < 0.65


def test_matrix_units_of_which_no_peak_is_known_are_no_boast() -> None:
    """An M5 Max took up 7,462 tokens a second of Gemma 4 E2B's prompts (defai-digital/ax-engine, June 2026)."""
    rig = resolve(Hardware(gpus=[Gpu(name="M5 Max")]))
    assert most_pp(build("Gemma-4-E2B", "q4_K"), rig) > 1.5 * 7_462


def test_a_dense_model_cannot_run_faster_than_memory_is_read() -> None:
    model, rig = build("Llama-3.1-8B", "q8_0"), resolve(rigs.ONE_3090_DESKTOP)
    assert 936 / 8.0 < most_tg(model, rig) < 2 * 936 / 8.0
    assert most_tg(model, rig, slots=4) == 4 * most_tg(model, rig)


def test_experts_count_by_the_share_that_a_token_uses() -> None:
    rig = resolve(rigs.ONE_3090_DESKTOP)
    sparse, dense = build("Qwen3-30B-A3B", "q8_0"), build("Qwen3-32B", "q8_0")
    assert most_tg(sparse, rig) > 5 * most_tg(dense, rig)
    assert most_pp(sparse, rig) > 5 * most_pp(dense, rig)


def test_nobody_lifts_the_bound_by_what_he_states_of_a_card_that_all_know() -> None:
    model, stated = build("Llama-3.1-8B", "q8_0"), rigs.ONE_3090_DESKTOP
    boast = replace(stated, gpus=[replace(stated.gpus[0], bandwidth_gbs=50_000)])
    assert most_tg(model, bounding_rig(boast)) == most_tg(model, resolve(stated))
    memory = replace(stated, ram=replace(stated.ram or Ram(), measured_bandwidth_gbs=20_000))
    assert most_tg(model, bounding_rig(memory)) < 1.3 * most_tg(model, resolve(stated))
    unknown = Hardware(gpus=[Gpu(name="X9000", vram_gib=24, bandwidth_gbs=2_000)])
    assert bounding_rig(unknown).cards[0].bandwidth_gbs == 2_000


def test_a_million_tokens_per_second_is_nobodys() -> None:
    model, rig = build("Qwen3-0.6B", "q4_0"), resolve(rigs.EIGHT_3090)
    assert most_tg(model, rig) < 1_000_000


@pytest.mark.parametrize(("seconds", "n", "right"), [(1e-6 * 1.1, 1, False), (1.0, 430, True), (1.0, 2_001, False)])
def test_a_microsecond_eval_is_refused_and_an_honest_430_tokens_a_second_is_not(
    seconds: float, n: int, right: bool
) -> None:
    """llmfit #1038 had a million tokens a second; a fixed limit of 250 refused honest figures (project-nomad #274)."""
    rows = [MeasuredRow(n_kv=0, n_gen=n, tg_seconds=(seconds,))]
    if right:
        require_possible(rows, 2_000.0, 50_000.0)
        return
    with pytest.raises(InvalidInput, match=r"is impossible: at most 2,000") as caught:
        require_possible(rows, 2_000.0, 50_000.0)
    assert caught.value.field == "rows[0].tg_seconds"
