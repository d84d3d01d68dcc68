"""The speed model against published runs, all rooms together, by parameters that never saw a run's rig or author."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator

import pytest

from bench import runs
from bench.calibrate import training_rows, with_own_runs
from bench.fit import Row, rows_of_tests
from bench.runs import DATA, OURS, command_of, groups_of, in_words, is_held_out, setups, stated_order
from bench.speed import Judged, Point, cross_validated, folds, right, shipped
from service.engine.builds import resolve_build
from service.engine.calibration import shipped as shipped_calibration
from service.engine.config import Flags
from service.engine.engines import engine_spec
from service.engine.goal import GoalRequest, resolve_goal
from service.engine.run.environment import one_socket
from service.engine.speed.predict import goal_seconds, predict_speed
from tests.engine.speed.machines import DUAL_SKYLAKE

pytestmark = pytest.mark.full  # half a minute: every published run is built, placed and predicted


@pytest.fixture(scope="module")
def found() -> tuple[list[Point], list[Judged]]:
    return cross_validated()


def errors(points: list[Point], phase: str) -> list[float]:
    by_case: dict[str, list[float]] = defaultdict(list)
    for point in points:
        if point.phase == phase:
            by_case[point.case].append(point.error)
    return sorted(abs(statistics.median(of_case)) for of_case in by_case.values())


@pytest.mark.parametrize(("phase", "median", "p80"), [("TG", 1.15, 1.36), ("PP", 1.27, 1.58)])
def test_runs_not_fitted_come_out_within_the_errors_that_the_docs_state(
    found: tuple[list[Point], list[Judged]], phase: str, median: float, p80: float
) -> None:
    of_phase = errors(found[0], phase)
    assert len(of_phase) > 150
    assert math.exp(statistics.median(of_phase)) <= median
    assert math.exp(of_phase[int(0.8 * len(of_phase))]) < p80


@pytest.mark.parametrize("phase", ["TG", "PP"])
def test_intervals_hold_four_of_five_speeds_that_were_not_fitted(
    found: tuple[list[Point], list[Judged]], phase: str
) -> None:
    by_case: dict[str, list[bool]] = defaultdict(list)
    for point in found[0]:
        if point.phase == phase:
            by_case[point.case].append(point.inside)
    assert 0.7 < statistics.mean(statistics.mean(of_case) for of_case in by_case.values()) < 0.9


def test_what_is_said_of_two_configs_of_a_prompt_is_right_four_times_of_five(
    found: tuple[list[Point], list[Judged]],
) -> None:
    chosen = [j for j in found[1] if j.pair.phase == "PP" and abs(j.pair.measured) > math.log(1.05)]
    assert statistics.fmean((float(right(j)) for j in chosen), [j.pair.weight for j in chosen]) >= 0.8


def test_the_folds_are_of_the_shipped_calibration_and_leave_out_a_group_each() -> None:
    known = folds()
    fitted = [s for s in setups()[0] if not is_held_out(s.group) and s.group != OURS]
    assert set(known.values) == {s.group for s in fitted}
    assert shipped_calibration().n_runs == len(fitted)


def test_own_runs_move_only_the_parameters_of_the_generation_that_they_alone_measured() -> None:
    found = with_own_runs(shipped_calibration())
    moved = {name for name, p in found.parameters.items() if p.value != shipped_calibration().parameters[name].value}
    assert found.measured_once == ("cuda.hopper",)
    assert all(name.endswith(".hopper") for name in moved)
    points, _ = shipped(held_out=False, own=True)
    errors = [abs(statistics.median(p.error for p in points if p.phase == phase)) for phase in ("TG", "PP")]
    assert max(errors) < math.log(1.1)
    assert {p.guess.factor(shipped_calibration().intervals) >= 2 for p in points} == {True}


def test_tokens_of_a_published_hopper_card_that_no_fit_has_seen_come_out_within_a_fifth() -> None:
    """Prompts are no test: the build of May 2024 multiplied batches with other kernels (docs/speed.md)."""
    found, _ = setups((DATA[0].with_name("perf_h100_pcie.jsonl"),))
    tests = [test for setup in found for test in runs.tests_of(setup, every=True)]
    values = {name: p.value for name, p in shipped_calibration().parameters.items()}
    errors = [math.log(r.test.observed) + r.log_seconds(values) for r in rows_of_tests(tests) if r.test.phase == "TG"]
    assert len(errors) == 12
    assert max(abs(error) for error in errors) < math.log(1.2)


def test_tokens_with_weights_in_ram_measured_after_the_last_fit_come_out_within_a_seventh() -> None:
    """Prompts are no test of the copies: random weights use fewer experts than a trained router (docs/gpu-day.md)."""
    found = {(row.test.setup.engine, row.test.phase, ident): error for row, ident, error in _in_ram()}
    mapped = found.pop(("llama.cpp", "TG", "llama-qwen8-ngl-99-nkvo-1-ub2048-deep"))
    tokens = [abs(error) for (_, phase, _), error in found.items() if phase == "TG"]
    assert len(tokens) == 36
    assert statistics.median(tokens) < math.log(7 / 6)
    assert max(tokens) < math.log(1.6)
    assert mapped < math.log(1 / 5)  # its cache is not page-locked, and that machine is virtual


def test_attention_over_a_cache_in_ram_runs_on_the_card() -> None:
    found = {(row.test.phase, ident): error for row, ident, error in _in_ram() if "nkvo" in ident}
    assert abs(found["TG", "ik-qwen8-ngl-99-nkvo-1-ub2048-deep"]) < math.log(1.1)
    assert abs(found["PP", "llama-qwen8-ngl-99-nkvo-1-ub2048-deep"]) < math.log(4)  # on the CPU it would be 50 times


def _in_ram() -> Iterator[tuple[Row, str, float]]:
    """The runs of an H200 with weights or cache in RAM, each with its name and the log of measured over predicted."""
    values = {name: p.value for name, p in shipped_calibration().parameters.items()}
    for setup in setups((DATA[0].with_name("perf_h200_ram.jsonl"),))[0]:
        for row in rows_of_tests(runs.tests_of(setup, every=True)):
            ident = setup.case["id"].removeprefix("gpuday-h200-ram-")
            yield row, ident, math.log(row.test.observed) + row.log_seconds(values)


def test_delta_nets_on_the_cpu_come_out_as_published_in_every_build() -> None:
    values = {name: p.value for name, p in shipped_calibration().parameters.items()}
    found, left_out = setups((DATA[0].with_name("perf_delta_net_cpu.jsonl"),))
    rows = rows_of_tests([test for setup in found for test in runs.tests_of(setup, every=True)])
    assert not left_out
    assert len(rows) == 18
    assert all(abs(row.error(values)) < math.log(1.3) for row in rows)


def test_tokens_of_deepseek_v4_come_out_as_published_before_and_after_hyper_connections_were_fused() -> None:
    values = {name: p.value for name, p in shipped_calibration().parameters.items()}
    found, left_out = setups((DATA[0].with_name("perf_hyper_connections.jsonl"),))
    rows = rows_of_tests([test for setup in found for test in runs.tests_of(setup, every=True)])
    errors = [row.error(values) for row in rows if row.test.phase == "TG"]
    assert not left_out
    assert len(errors) == 23
    assert all(abs(error) < math.log(1.3) for error in errors)


def test_no_run_that_is_held_out_is_fitted() -> None:
    held_out = {s.case["id"] for s in setups()[0] if is_held_out(s.group)}
    assert len(held_out) >= 18
    assert not held_out & {row.test.setup.case["id"] for row in training_rows()}


def test_authors_who_share_a_machine_are_one_group() -> None:
    cases = [
        {"id": f"disc1-{author}-1", "hardware": {"cpu": {"model": cpu}, "gpus": [{"name": gpu}]}}
        for author, cpu, gpu in (("a", "X", "g"), ("b", "X", "g"), ("b", "Y", "g"), ("c", "Y", "g"), ("d", "Y", "h"))
    ]
    assert groups_of(cases) == {"a": "a+b+c", "b": "a+b+c", "c": "a+b+c", "d": "d"}


def test_the_fit_computes_what_the_engine_predicts() -> None:
    """The rows of the fit and the public functions are the same model, build date and all."""
    for row in training_rows()[::97]:
        test, s = row.test, row.test.setup
        if (s.build_date or "") < "2025-01-01" or test.run.binding != "unset":  # a binding counts after the fit
            continue
        expected = math.exp(-row.log_seconds(dict(shipped_calibration().coefficients)))
        if test.phase == "TG":
            speed = predict_speed(test.run, test.depth + test.n // 2)
            assert speed.tg.expected == pytest.approx(expected)
        else:
            goal = resolve_goal(GoalRequest(prompt=test.n, output=1, depth=test.depth, context=163_840), 163_840)
            seconds = goal_seconds(test.run, goal)
            token = 1 / predict_speed(test.run, test.depth + test.n).tg.expected  # the one that a goal must have
            assert test.n / (seconds.expected - token) == pytest.approx(expected, rel=0.05)


def test_shipped_parameters_hold_in_sample() -> None:
    points, _ = shipped(held_out=False)
    assert math.exp(statistics.median(errors(points, "TG"))) < 1.15
    assert math.exp(statistics.median(errors(points, "PP"))) < 1.25


def test_a_flag_left_out_means_what_it_meant_at_the_date() -> None:
    old = next(s for s in setups()[0] if s.case["id"] == "pr235-ikawrakow-4")
    assert old.flags.flash_attn == "off"
    assert (
        engine_spec(old.engine).memory.latent_mode(
            old.model, old.flags, resolve_build(old.engine, old.build_date).rules.memory
        )
        == 0
    )


def test_words_in_commands_are_read() -> None:
    assert in_words(Flags(), "x (offload only active experts)", "2025-09-05").other == ("-ooae",)
    case = {"id": "x", "command": "llama-server -ub 2048", "tool": "llama-server", "engine": "ik_llama.cpp"}
    assert command_of(case, "2025-09-05") == "llama-server -ub 2048 -ngl 999"
    assert not in_words(Flags(other=("-op 26,0,27,0,29,0",)), "x", "2025-06-03").op_offload


def test_a_stated_order_of_devices_is_kept() -> None:
    cards = [{"name": f"RTX {name}", "count": n} for name, n in (("5090", 1), ("4090", 2), ("3090", 1))]
    assert stated_order(cards, "CUDA order 4090,5090,4090,3090 as printed") == [[1], [0, 2], [3]]
    assert stated_order(cards, "") == []


def test_numactl_leaves_one_socket() -> None:
    one = one_socket(DUAL_SKYLAKE)
    assert (one.sockets, one.physical_cores, one.cpu_bandwidth_gbs) == (1, 20, 102.5)
