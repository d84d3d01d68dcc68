"""Results as they are shown: what was measured beside what was predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.engine.advice import DeviceMemory, SpeedPoint
from service.engine.check.report import Compared
from service.engine.logs import LogBuffers
from service.engine.measured import Prediction, measured_speed, speed_at, spread
from service.store.results import StoredResult
from service.wire.runs import RunOutcome

_BUFFERS = ("weights", "kv", "compute", "output")
_TOLERANCE_MIB = 0.02  # logs have hundredths of a MiB


def outcome_of(result: StoredResult) -> RunOutcome:
    """Return what a run measured, with each figure beside the predicted one."""
    seen, speed = result.seen, measured_speed(result.rows)
    return RunOutcome(
        speed=speed,
        spread=spread(result.rows),
        compared=compared(result.prediction, speed, seen.buffers) if result.prediction else [],
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


def compared(prediction: Prediction, speed: Sequence[SpeedPoint], buffers: Sequence[LogBuffers]) -> list[Compared]:
    """Return each measured figure beside the predicted one: speed by depth, buffers by device."""
    devices = {row.device: row for row in prediction.devices}
    return [
        *(one for point in speed for one in _speeds(prediction.speed, point)),
        *(one for log in buffers if log.device in devices for one in _memory(devices[log.device], log)),
    ]


def _speeds(predicted: Sequence[SpeedPoint], point: SpeedPoint) -> Iterator[Compared]:
    there = speed_at(predicted, point.n_kv)
    if there is None:
        return
    figures = (
        ("pp", point.pp_tps, there.pp_tps, there.pp_low, there.pp_high),
        ("tg", point.tg_tps, there.tg_tps, there.tg_low, there.tg_high),
    )
    for what, measured, expected, low, high in figures:
        text = f"measured {measured:,.1f} t/s (predicted {expected:,.1f}, {low:,.1f} to {high:,.1f})"
        yield _compared(
            what, measured, (low, expected, high), f"{what.upper()} at {point.n_kv:,} tokens: {text}", point
        )


def _memory(row: DeviceMemory, log: LogBuffers) -> Iterator[Compared]:
    for part in _BUFFERS:
        measured: float | None = getattr(log, f"{part}_mib")
        if measured is None:
            continue
        expected: float = getattr(row, f"{part}_mib")
        around = (round(max(expected - _TOLERANCE_MIB, 0.0), 2), expected, round(expected + _TOLERANCE_MIB, 2))
        text = f"{part} of {row.device}: measured {measured:,.2f} MiB (predicted {expected:,.2f})"
        yield _compared(part, measured, around, text, device=row.device)


def _compared(
    what: str, measured: float, predicted: tuple[float, float, float], text: str, point: SpeedPoint | None = None,
    device: str | None = None,
) -> Compared:  # fmt: skip
    low, expected, high = predicted
    return Compared(
        what=what,
        device=device,
        n_kv=point.n_kv if point else None,
        measured=measured,
        expected=expected,
        low=low,
        high=high,
        verdict="below" if measured < low else "above" if measured > high else "within",
        text=text,
    )
