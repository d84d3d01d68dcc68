"""Errors are counted by result and class as defined, with the worst by name."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from service.engine.logs.read import LogBuffers
from service.engine.measured.roofline import Prediction
from service.flows.context import Context
from service.flows.results.accuracy import KeptAccuracy, accuracy
from service.wire.results.accuracy import Accuracy, AccuracyLine
from service.wire.results.results import Seen
from tests.flows.conftest import Clock
from tests.hosts import a_host
from tests.speeds import device, point
from tests.stored_results import a_result, keep, row

proven = partial(a_result, tier="agent-run")
DEVICES = [device("CUDA0", 8_000.0), device("CPU", 4_000.0)]
BUFFERS = (LogBuffers(device="CUDA0", weights_mib=10_000.0),)


def predicted(pp: float, tg: float) -> Prediction:
    speed = [point(0, pp, tg), point(16_384, pp * 0.8, tg * 0.8)]
    return Prediction(devices=DEVICES, speed=speed, most_tg=1e4, most_pp=1e6)


def line(found: Accuracy, figure: str, of: str, name: str) -> AccuracyLine:
    return next(one for one in found.lines if (one.figure, one.of, one.name) == (figure, of, name))


@pytest.fixture
def counted(context: Context) -> Accuracy:
    october = datetime(2026, 10, 3, tzinfo=UTC)
    keep(
        context.engine,
        proven([row(0, 20.0, 500.0), row(16_384, 16.0, 400.0)], prediction=predicted(500, 22.0)),
        proven([row(0, 20.0, 500.0)], prediction=predicted(250, 20.0), engine="llama.cpp", measured_at=october),
        proven([row(0, 20.0, 500.0)], prediction=predicted(500, 10.0), state="quarantined"),
        proven([row(0, 20.0, 500.0)]),
        a_result([row(0, 1.0, 1.0)], prediction=predicted(500, 22.0)),  # a stranger's word: it counts for nothing
        proven([row(0, 40.0, 500.0)], prediction=predicted(500, 10.0), seen=Seen(buffers=BUFFERS)),
    )
    return accuracy(context)


def test_what_is_shown_and_was_predicted_counts_once_each(counted: Accuracy) -> None:
    assert (counted.n_results, counted.since) == (3, "2026-10-03")
    tg = line(counted, "tg", "all", "all")
    assert (tg.n_results, tg.median_error, tg.p80_error, tg.bias) == (3, 0.1, 0.75, 0.0)
    assert tg.within == pytest.approx(2 / 3, abs=1e-3)
    assert line(counted, "pp", "all", "all").bias == 0.0


def test_classes_are_engine_model_placement_depth_and_month(counted: Accuracy) -> None:
    assert line(counted, "pp", "engine", "llama.cpp").median_error == 0.5
    assert line(counted, "tg", "model", "mixture of experts").n_results == 3
    assert line(counted, "tg", "placement", "one GPU + CPU").n_results == 3
    assert line(counted, "tg", "depth", "8,192 tokens and more").n_results == 1
    assert [one.name for one in counted.lines if (one.figure, one.of) == ("tg", "month")] == ["2026-10", "2026-11"]
    depths = [one.name for one in counted.lines if (one.figure, one.of) == ("tg", "depth")]
    assert depths == ["below 1,024 tokens", "8,192 tokens and more"]


def test_planted_names_are_cleaned_among_the_worst(context: Context) -> None:
    planted = {"model_name": "a\x1b[31m\u202eb", "variant": "v\x1b", "gpus": "g\u202e"}
    keep(context.engine, proven([row(0, 20.0, 500.0)], prediction=predicted(500, 10.0), **planted))
    worst = accuracy(context).worst[0]
    assert (worst.model, worst.variant, worst.gpus) == ("a[31mb", "v", "g")


def test_memory_is_what_each_device_printed_together(counted: Accuracy) -> None:
    memory = line(counted, "memory", "all", "all")
    assert (memory.n_results, memory.bias, memory.within) == (1, -0.2, None)


def test_the_worst_are_named_and_a_half_is_as_bad_as_twice(counted: Accuracy) -> None:
    tg = [case for case in counted.worst if case.figure == "tg"]
    assert (tg[0].predicted, tg[0].measured, tg[0].gpus) == (10.0, 40.0, "2x RTX 3090")
    assert next(case.predicted for case in counted.worst if case.figure == "pp") == 250.0


def test_without_results_there_is_nothing_to_say_and_it_is_counted_every_ten_minutes(
    context: Context, clock: Clock
) -> None:
    kept = KeptAccuracy()
    assert (kept.read(context).n_results, kept.read(context).lines) == (0, [])
    keep(context.engine, proven(prediction=predicted(500, 20.0)))
    clock.pass_minutes(9)
    assert kept.read(context).n_results == 0
    clock.pass_minutes(1)
    assert kept.read(context).n_results == 1


def test_what_a_private_host_measured_is_not_told_to_everybody(context: Context) -> None:
    private, public = a_host(context, "alice"), a_host(context, "bob", visibility="public")
    for host in (private, public):
        owned: dict[str, Any] = {"origin": "agent", "account_id": host.account_id, "host_id": host.id}
        keep(context.engine, proven(prediction=predicted(500, 20.0), **owned))
    assert accuracy(context).n_results == 1
