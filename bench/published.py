"""Writes the predictions for the published runs that the service ships: `python -m bench.published`.

Each is predicted by parameters that saw neither its author nor its machine (bench.speed), so that `/accuracy` of a new
service shows errors as strangers meet them. `service/data/predictions.jsonl` has a line for each; it is written again
with every calibration, and read by `service.flows.results.imports`.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench.speed import Point, cross_validated, shipped
from service.engine.advice import SpeedPoint
from service.engine.builds import today
from service.engine.calibration import shipped as shipped_calibration
from service.engine.measured.roofline import Prediction
from service.engine.measured.summary import measured_speed
from service.engine.memory.predict import predict_memory
from service.engine.memory.report import report
from service.flows.results.imports import PredictedResult, published_results

WRITTEN = Path(__file__).parent.parent / "service" / "data" / "predictions.jsonl"


def predictions() -> Iterator[PredictedResult]:
    """Yield the prediction of each published run of which a depth was predicted in both phases, in the file's order."""
    by_case: dict[str, list[Point]] = defaultdict(list)
    for one in [*cross_validated()[0], *shipped(held_out=True)[0]]:
        by_case[one.case].append(one)
    for result in published_results():
        points = by_case.get(result.id, [])
        measured = measured_speed(result.rows)
        speed = [found for at in measured if (found := _predicted(at, points)) is not None]
        if speed:
            yield PredictedResult(id=result.id, prediction=_prediction(points[0], speed))


def _predicted(at: SpeedPoint, points: Sequence[Point]) -> SpeedPoint | None:
    """Return the prediction at a depth: the measured speed times the median error of either phase there."""
    phases = [[p for p in points if (p.phase, p.depth) == (phase, at.n_kv)] for phase in ("PP", "TG")]
    if not all(phases):
        return None
    figures = []
    for here, value in zip(phases, (at.pp_tps, at.tg_tps), strict=True):
        expected = value * math.exp(statistics.median(p.error for p in here))
        factor = statistics.median(p.factor for p in here)
        figures += [round(n, 2) for n in (expected, expected / factor, expected * factor)]
    names = [f"{phase}_{part}" for phase in ("pp", "tg") for part in ("tps", "low", "high")]
    return SpeedPoint(
        n_kv=at.n_kv, basis="calibrated without its author and machine", **dict(zip(names, figures, strict=True))
    )


def _prediction(one: Point, speed: list[SpeedPoint]) -> Prediction:
    test, setup = one.guess.row.test, one.guess.row.test.setup
    memory = predict_memory(msgspec.structs.replace(test.run, build=today(setup.engine), tool="bench"))
    devices = report(memory, setup.devices, [0] * len(setup.devices), setup.rig.ram_bytes)
    version = shipped_calibration().version
    return Prediction(devices=devices, speed=speed, most_tg=0.0, most_pp=0.0, calibration=version)


def main() -> None:
    """Write the file."""
    lines = [msgspec.json.encode(one) + b"\n" for one in predictions()]
    WRITTEN.write_bytes(b"".join(lines))
    print(f"{len(lines)} predictions written")


if __name__ == "__main__":
    main()
