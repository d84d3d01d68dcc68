"""Repeats become one figure a depth, with an honest interval; memory and speed stand next to what was predicted."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.advice import DeviceMemory, SpeedPoint
from service.engine.check.compare import compare_predicted
from service.engine.logs.read import LogBuffers
from service.engine.measured.reader import Reader
from service.engine.measured.rows import MeasuredRow
from service.engine.measured.summary import UNKNOWN_SPREAD, agreed, measured_speed, memory_of, speed_at, spread

LOGS = Path(__file__).parents[2] / "data" / "engine_logs"


def row(*tg_tps: float, n_kv: int = 0, n_prompt: int = 512) -> MeasuredRow:
    """Return a row whose outputs of 100 tokens came at these speeds, and its prompts at 500 t/s."""
    prompts = (n_prompt / 500,) * len(tg_tps)
    seconds = tuple(100 / tps for tps in tg_tps)
    return MeasuredRow(n_kv=n_kv, n_prompt=n_prompt, n_gen=100, pp_seconds=prompts, tg_seconds=seconds)


def point(n_kv: int, pp: float, tg: float) -> SpeedPoint:
    return SpeedPoint(
        n_kv=n_kv, pp_tps=pp, pp_low=pp * 0.8, pp_high=pp * 1.2, tg_tps=tg, tg_low=tg * 0.8, tg_high=tg * 1.2, basis="x"
    )


def test_the_median_of_the_repeats_is_the_figure() -> None:
    (found,) = measured_speed([row(20, 21, 9)])
    assert (found.tg_tps, found.pp_tps, found.basis) == (20.0, 500.0, "measured")


def test_one_measurement_is_not_taken_for_certain() -> None:
    (found,) = measured_speed([row(20)])
    assert (found.tg_low, found.tg_tps, found.tg_high) == (19.41, 20.0, 20.59)


def test_what_one_measurement_may_be_off_by_is_that_of_published_ones() -> None:
    published = (json.loads(line) for line in (LOGS.parent / "perf.jsonl").read_text().splitlines())
    spreads = sorted(
        test["sd"] / test["t_s"] for one in published for test in one["bench"] if test.get("sd") is not None
    )
    assert len(spreads) == 102
    assert spreads[int(0.8 * 101)] == pytest.approx(UNKNOWN_SPREAD, abs=0.0005)


def test_repeats_that_agree_are_more_certain_and_those_that_do_not_less() -> None:
    def width(*tps: float) -> float:
        (found,) = measured_speed([row(*tps)])
        return found.tg_high - found.tg_low

    assert width(20, 20, 20) < width(20, 20) < width(20) < width(17, 20, 23)


def test_repeats_of_several_programs_are_those_of_one_depth() -> None:
    (found,) = measured_speed([row(20), row(22), row(24)])
    assert found.tg_tps == 22.0


def test_phases_of_llama_bench_meet_at_their_depth_and_one_alone_is_no_point() -> None:
    rows = [
        MeasuredRow(n_kv=0, n_prompt=512, pp_seconds=(1.0,)),
        MeasuredRow(n_kv=0, n_gen=32, tg_seconds=(2.0,)),
        MeasuredRow(n_kv=4096, n_gen=32, tg_seconds=(4.0,)),
    ]
    (found,) = measured_speed(rows)
    assert (found.n_kv, found.pp_tps, found.tg_tps) == (0, 512.0, 16.0)


def test_of_prompts_of_several_sizes_the_largest_counts() -> None:
    small = MeasuredRow(n_kv=0, n_prompt=32, pp_seconds=(1.0,))
    (found,) = measured_speed([small, row(20)])
    assert found.pp_tps == 500.0


def test_the_spread_is_the_largest_of_any_phase_and_depth_and_unknown_without_repeats() -> None:
    assert spread([row(20)]) is None
    assert spread([row(20, 20), row(10, 11, n_kv=4096)]) == pytest.approx(0.0673, abs=1e-4)


@pytest.mark.parametrize(
    ("rows", "enough"),
    [
        ([], False),
        ([row(20)], False),  # nothing is known of the spread
        ([row(20, 20.1)], True),
        ([row(20, 23)], False),
        ([row(20, 23, 20, 20, 20, 20, 20)], False),
        ([row(20, 20.1), row(10, n_kv=4096)], False),  # one depth was not repeated
    ],
)
def test_repeats_are_enough_when_all_of_them_agree(rows: list[MeasuredRow], enough: bool) -> None:
    assert agreed(rows) is enough


def test_between_two_depths_the_time_of_a_token_is_a_line() -> None:
    points = [point(0, 400, 20), point(8192, 200, 10)]
    found = speed_at(points, 4096)
    assert found is not None
    assert (found.n_kv, found.tg_tps) == (4096, 13.33)
    assert speed_at(points, 8192) == points[1]
    assert speed_at(points, 9000) is None
    assert speed_at([], 0) is None


@given(st.lists(st.floats(0.1, 1000), min_size=1, max_size=8))
def test_the_figure_lies_within_its_interval(speeds: list[float]) -> None:
    (found,) = measured_speed([row(*speeds)])
    assert 0 <= found.tg_low <= found.tg_tps <= found.tg_high


def test_memory_is_what_the_engine_said_itself() -> None:
    found = memory_of((LOGS / "ik-sweep-table.stderr").read_text())
    assert (found.buffers[0].kv_mib, found.graph_splits, found.offloaded) == (224.0, 1, (0, 29))
    assert memory_of("nothing of that kind").buffers == ()


CUDA0 = DeviceMemory(
    device="CUDA0", gpu="NVIDIA GeForce RTX 3090", weights_mib=319.96, kv_mib=224.0, compute_mib=300.75, output_mib=0.0,
    overhead_mib=500.0, total_mib=1344.71, total_low_mib=1300.0, total_high_mib=1400.0, capacity_mib=24_000.0,
    reserve_mib=512.0, free_mib=22_600.0, fits=True, basis="exact",
)  # fmt: skip
PRINTED = LogBuffers(device="CUDA0", weights_mib=319.96, kv_mib=448.0, compute_mib=300.75)


def test_what_was_predicted_stands_next_to_what_was_measured() -> None:
    rows = Reader().feed((LOGS / "ik-sweep-table.stderr").read_bytes())
    found = compare_predicted([CUDA0], [point(0, 280, 20), point(1024, 200, 8)], measured_speed(rows), [PRINTED])
    told = {(one.what, one.device, one.n_kv): (one.measured, one.verdict) for one in found}
    assert told["pp", None, 0] == (280.55, "within")
    assert told["tg", None, 0] == (8.27, "below")
    assert told["kv", "CUDA0", None] == (448.0, "above")
    assert told["weights", "CUDA0", None] == (319.96, "within")
    assert ("tg", None, 1536) not in told  # behind the last predicted depth


def test_a_program_with_another_context_is_compared_by_its_weights_only() -> None:
    found = compare_predicted([CUDA0], [], [], [PRINTED, LogBuffers(device="CPU", kv_mib=1.0)], same_context=False)
    assert [one.what for one in found] == ["weights"]


def test_what_is_compared_can_be_kept_as_json() -> None:
    found = compare_predicted([CUDA0], [], [], [PRINTED])
    assert msgspec.json.decode(msgspec.json.encode(found), type=list[type(found[0])]) == found  # type: ignore[misc]
