"""Results as they are shown: what was measured next to what was predicted."""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.advice import SpeedPoint
from service.engine.check import Compared, compare_predicted
from service.engine.measured import Prediction, measured_speed, spread
from service.store.results.results import StoredResult
from service.wire.measuring.runs import RunOutcome


def outcome_of(result: StoredResult) -> RunOutcome:
    """Return what a run measured, with each figure next to the predicted one."""
    seen, speed = result.seen, measured_speed(result.rows)
    return RunOutcome(
        speed=speed,
        spread=spread(result.rows),
        compared=_compared(result, result.prediction, speed) if result.prediction else [],
        buffers=list(seen.buffers),
        graph_splits=seen.graph_splits,
        devices=list(seen.devices),
        load_seconds=seen.load_seconds,
        page_cache=seen.page_cache,
        build=result.build or "",
        measured_at=result.measured_at.isoformat(timespec="seconds"),
        confirmed=result.confirmed,
        tier=result.tier,
    )


def _compared(result: StoredResult, prediction: Prediction, speed: Sequence[SpeedPoint]) -> list[Compared]:
    """llama-bench makes a context for each test, of its size: not the config's, whose cache was predicted."""
    same_context = result.engine == "ik_llama.cpp"
    return compare_predicted(
        prediction.devices, prediction.speed, speed, result.seen.buffers, same_context=same_context
    )
