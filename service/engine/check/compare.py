"""What was measured, next to what is computed; and what a difference says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from service.engine.advice import DeviceMemory, SpeedPoint
from service.engine.check.report import Compared
from service.engine.commands.companions import draft_of
from service.engine.estimate import Estimate
from service.engine.finding import Finding, Severity
from service.engine.logs.read import LogBuffers, LogReading
from service.engine.logs.requests import MeasuredSpeed
from service.engine.measured.summary import speed_at
from service.engine.memory.figures import COMPUTE_SPREAD
from service.engine.rules.case import Case
from service.engine.run.settings import speculation_types

_PARTS = ("weights", "kv", "compute", "output")
_UNKNOWN_DRAFTS = "the command drafts, and the log does not say what was accepted"
_UNITS = {"pp": "t/s", "tg": "t/s"}
# ik_llama.cpp prints hundredths of a MiB, llama.cpp too.
_TOLERANCE_MIB = 0.02


def compare_speeds(case: Case, measured: Sequence[MeasuredSpeed]) -> Iterator[Compared]:
    """Yield every measured speed next to the expected one.

    A prompt shorter than the micro-batch runs as a micro-batch of its own length, and is compared with that; a longer
    one is compared with its middle micro-batch.
    """
    for row in measured:
        size = min(case.flags.n_ubatch, row.n_prompt or case.flags.n_ubatch)
        flags = msgspec.structs.replace(case.flags, n_ubatch=max(size, 1))
        speed = case.speed(row.n_kv, flags=flags)
        middle = max((row.n_prompt or 0) - size, 0) // 2
        prompt = case.speed(row.n_kv + middle, flags=flags) if middle else speed
        for what, value, estimate in (("pp", row.pp_tps, prompt.pp), ("tg", row.tg_tps, speed.tg)):
            if value is not None:
                yield _speed(what, row.n_kv, value, estimate)


def compare_predicted(
    devices: Sequence[DeviceMemory], speed: Sequence[SpeedPoint], measured: Sequence[SpeedPoint],
    buffers: Sequence[LogBuffers], *, same_context: bool = True,
) -> list[Compared]:  # fmt: skip
    """Return what was measured of a config next to what was predicted of it: the errors of memory and speed.

    `devices`, `speed`: as predicted, and `measured`, `buffers` of the same devices' names. Depths outside the predicted
    ones are left out. `same_context`: the program had the context that the prediction is for; llama-bench makes one for
    each test, of its size only, and then weights alone can be compared.
    """
    found = [
        _speed(what, point.n_kv, getattr(point, f"{what}_tps"), _estimate(there, what))
        for point in measured
        if (there := speed_at(speed, point.n_kv)) is not None
        for what in _UNITS
    ]
    rows = {row.device: row for row in devices}
    parts = _PARTS if same_context else ("weights",)
    return found + [one for log in buffers if log.device in rows for one in _buffers(rows[log.device], log, parts)]


def _estimate(point: SpeedPoint, what: str) -> Estimate:
    low, expected, high = (getattr(point, f"{what}_{name}") for name in ("low", "tps", "high"))
    return Estimate(low, expected, high, point.basis)


def _speed(what: str, n_kv: int, measured: float, expected: Estimate) -> Compared:
    low, middle, high = (round(speed, 2) for speed in (expected.low, expected.expected, expected.high))
    text = f"{tps_text(measured)} t/s measured, {tps_text(low)} to {tps_text(high)} expected"
    return _compared(what, measured, (low, middle, high), f"{what.upper()} at {n_kv:,} tokens: {text}", n_kv=n_kv)


def tps_text(speed: float) -> str:
    """Return a speed in as many digits as say something: `17.9`, `1,234`."""
    return f"{speed:.1f}" if speed < 100 else f"{speed:,.0f}"


def compare_buffers(case: Case, log: LogReading) -> Iterator[Compared]:
    """Yield every buffer of the log next to the computed one; graph splits and offloaded layers too."""
    rows = {row.device: row for row in case.table}
    for buffers in log.buffers:
        if buffers.device in rows:
            yield from _buffers(rows[buffers.device], buffers, _PARTS)
    if log.graph_splits is not None and case.memory.graph_splits:
        yield _count("graph_splits", log.graph_splits, case.memory.graph_splits)
    if log.offloaded is not None:
        yield _count("offloaded", log.offloaded[0], _offloaded(case))


def _buffers(row: DeviceMemory, log: LogBuffers, parts: Sequence[str]) -> Iterator[Compared]:
    for part in parts:
        measured = getattr(log, f"{part}_mib")
        if measured is not None:
            expected: float = getattr(row, f"{part}_mib")
            slack = _TOLERANCE_MIB + (COMPUTE_SPREAD[row.basis] * expected if part == "compute" else 0.0)
            interval = round(max(expected - slack, 0.0), 2), expected, round(expected + slack, 2)
            text = f"{part} of {row.device}: {measured:,.2f} MiB in the log, {expected:,.2f} computed"
            yield _compared(part, measured, interval, text, device=row.device)


def _count(what: str, measured: int, expected: int) -> Compared:
    text = f"{what.replace('_', ' ')}: {measured} in the log, {expected} computed"
    return _compared(what, measured, (expected, expected, expected), text)


def _compared(
    what: str, measured: float, interval: tuple[float, float, float], text: str, *,
    device: str | None = None, n_kv: int | None = None,
) -> Compared:  # fmt: skip
    low, expected, high = interval
    return Compared(
        what=what,
        device=device,
        n_kv=n_kv,
        measured=round(measured, 2),
        expected=expected,
        low=low,
        high=high,
        verdict="below" if measured < low else "above" if measured > high else "within",
        text=text,
    )


def _offloaded(case: Case) -> int:
    """ik_llama.cpp and llama.cpp print min(-ngl, n_layer + 1); nothing is offloaded without a GPU."""
    return min(max(case.flags.n_gpu_layers, 0), case.model.n_layer + 1) if case.devices else 0


def slow_phase(compared: Sequence[Compared]) -> Literal["pp", "tg"] | None:
    """Return the phase that was measured furthest below what is expected, if one was."""
    below = [c for c in compared if c.what in _UNITS and c.verdict == "below"]
    worst = min(below, key=lambda c: c.measured / c.low, default=None)
    return None if worst is None else "pp" if worst.what == "pp" else "tg"


def measured_findings(compared: Sequence[Compared]) -> Iterator[Finding]:
    """Yield what the differences say: one finding for each phase, one for the buffers."""
    for what in _UNITS:
        yield from _about_speed([c for c in compared if c.what == what])
    other = [c for c in compared if c.what not in _UNITS and c.verdict != "within"]
    if other:
        more = f", and {len(other) - 1} more figures" if len(other) > 1 else ""
        yield Finding(
            rule="log-differs",
            severity="warning",
            message=f"{other[0].text}{more}: the log is of another command, model, device order or build",
            fix=None,
            source="the log given, against the memory model (docs/check.md)",
        )


def comparable_speeds(case: Case, log: LogReading) -> tuple[MeasuredSpeed, ...]:
    """Return the speeds of a log; of requests only where nothing was drafted, for expected speeds are without that."""
    return () if log.of_requests and _drafts(case) else log.speeds


def _drafts(case: Case) -> bool:
    return draft_of(case.parsed) is not None or not {"none"}.issuperset(speculation_types(case.flags))


def log_findings(case: Case, log: LogReading) -> Iterator[Finding]:
    """Yield what is wrong with a log itself: of another model (then nothing of it is compared), or without buffers."""
    if log.architecture is not None and log.architecture != case.model.architecture:
        yield Finding(
            rule="log-of-another-model",
            severity="warning",
            message=f"the log is of a {log.architecture} model, not of this {case.model.architecture}: not compared",
            fix="the log of this command",
            source="general.architecture in the log and in the header",
        )
        return
    drafted = log.of_requests and bool(log.speeds) and _drafts(case)
    unused = Counter((*log.unused, *([_UNKNOWN_DRAFTS] if drafted else ())))
    for why, n in unused.items():
        requests = "requests are" if drafted else f"{n} request{'s are' if n > 1 else ' is'}"
        yield Finding(
            rule="log-request-unused",
            severity="info",
            message=f"{requests} not compared: {why}",
            fix=None,
            source="the log given (docs/measuring.md)",
        )
    if case.parsed.program == "llama-server" and case.spec.logs.sizes_at and not log.buffers:
        yield Finding(
            rule="log-without-buffers",
            severity="info",
            message=f"the log has no sizes of buffers: {case.engine} prints them at {case.spec.logs.sizes_at} only",
            fix=case.spec.logs.sizes_at,
            source="llama.cpp common/log.cpp:529-547",
        )


_OFF: tuple[tuple[str, str, Severity, int], ...] = (
    ("below", "slower-than-expected", "warning", 1),
    ("above", "faster-than-expected", "info", -1),
)


def _about_speed(rows: list[Compared]) -> Iterator[Finding]:
    for verdict, rule, severity, sign in _OFF:
        off = [c for c in rows if c.verdict == verdict]
        if off and len(off) * 2 > len(rows):
            worst = min(off, key=lambda c: sign * c.measured / c.expected)
            yield Finding(
                rule=rule,
                severity=severity,
                message=f"{worst.text} ({len(off)} of {len(rows)} rows {verdict})",
                fix=None,
                source="the figures given, against the speed model's 80 % interval",
            )
