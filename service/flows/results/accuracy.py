"""How accurate predictions are: each result compared with the prediction made before it was measured."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from threading import Lock
from typing import NamedTuple, get_args

from service.engine.advice import DeviceMemory
from service.engine.calibration import shipped
from service.engine.catalogue import resolve
from service.engine.check.compare import compare_predicted
from service.engine.check.report import Compared
from service.engine.config import CPU
from service.engine.errors import AdvisorError
from service.engine.measured.summary import measured_speed
from service.flows.context import Records
from service.flows.results.differences import Entry, open_differences
from service.flows.results.read_results import safe
from service.store.results import accuracy as store
from service.store.results import calibrations
from service.store.results.accuracy import Predicted
from service.structs import made_from
from service.wire.results.accuracy import (
    Accuracy,
    AccuracyLine,
    CalibrationUsed,
    Division,
    Figure,
    MemoryDifference,
    WorstCase,
)

MOST_RESULTS = 2_000
_WORST = 5
_MOST_DIFFERENCES = 50
_KEPT = timedelta(minutes=10)
_SHALLOW, _DEEP = 1_024, 8_192
_IN_RAM = 0.2  # share of the weights in RAM up to which it is the token embedding, which both engines keep there
_FIGURES: tuple[Figure, ...] = ("tg", "pp", "memory")
_DIVISIONS: tuple[Division, ...] = get_args(Division)
_MANY_NAMES: tuple[Division, ...] = ("cards", "family")
_LEAST = 3  # results that a name of these divisions needs, else it counts among "others"


class Error(NamedTuple):
    """One figure of a result next to its prediction. `within`: the measured value is inside the stated interval."""

    result: Predicted
    figure: Figure
    n_kv: int | None
    predicted: float
    measured: float
    within: bool | None

    @property
    def off(self) -> float:
        """Return the error as a share of what was measured."""
        return self.predicted / self.measured - 1


def accuracy(context: Records) -> Accuracy:
    """Return the errors of predictions for the newest 2,000 results, by class and month, with the worst cases."""
    found = store.predicted(context.engine, MOST_RESULTS)
    names = {result.id: _names(result) for result in found}
    errors = [error for result in found for error in errors_of(result)]
    return Accuracy(
        n_results=len(found),
        n_published=sum(one.origin == "published" for one in found),
        since=found[-1].measured_at.date().isoformat() if found else None,
        lines=[line for f in _FIGURES for line in _lines(f, [e for e in errors if e.figure == f], names)],
        worst=[case for f in _FIGURES for case in _worst([e for e in errors if e.figure == f])],
        calibration=calibrations.version_in_force(context.engine) or shipped().version,
        calibrations=[_used(one) for one in calibrations.newest(context.engine)],
        differences=[_difference(one) for one in open_differences(context)[:_MOST_DIFFERENCES]],
    )


class KeptAccuracy:
    """Caches the answer for ten minutes: counting 2,000 results takes two seconds."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: tuple[datetime, Accuracy] | None = None

    def read(self, context: Records) -> Accuracy:
        """Return `accuracy`, recomputed when the cached answer is ten minutes old."""
        with self._lock:
            now = context.clock()
            if self._kept is None or now - self._kept[0] >= _KEPT:
                self._kept = (now, accuracy(context))
            return self._kept[1]


def errors_of(result: Predicted) -> Iterator[Error]:
    """Yield each speed by depth, and the total of each device's buffers, next to their predictions."""
    prediction = result.prediction
    same_context = result.engine == "ik_llama.cpp"  # llama-bench sizes the context for each test
    speed = prediction.speed if prediction.own_rig else []
    compared = compare_predicted(
        prediction.devices, speed, measured_speed(result.rows), result.seen.buffers, same_context=same_context
    )
    buffers: dict[str, list[Compared]] = defaultdict(list)
    for one in compared:
        if one.device is not None:
            buffers[one.device].append(one)
        elif one.measured > 0 and one.expected > 0:
            figure: Figure = "tg" if one.what == "tg" else "pp"
            yield Error(result, figure, one.n_kv, one.expected, one.measured, one.verdict == "within")
    for parts in buffers.values():
        measured, expected = sum(part.measured for part in parts), sum(part.expected for part in parts)
        if measured > 0:
            yield Error(result, "memory", None, expected, measured, None)


def _lines(
    figure: Figure, errors: Sequence[Error], names: Mapping[str, Mapping[Division, str]]
) -> Iterator[AccuracyLine]:
    by_depth = sorted(errors, key=lambda e: e.n_kv or 0)
    for of in _DIVISIONS if figure != "memory" else [d for d in _DIVISIONS if d != "depth"]:
        by_name: dict[str, list[Error]] = defaultdict(list)
        for error in by_depth:
            name = _depth(error.n_kv or 0) if of == "depth" else names[error.result.id][of]
            by_name[name].append(error)
        if of in _MANY_NAMES:
            by_name = _with_others(by_name)
        for name in by_name if of == "depth" else sorted(by_name):
            yield _line(figure, of, name, by_name[name])


def _with_others(by_name: dict[str, list[Error]]) -> dict[str, list[Error]]:
    found: dict[str, list[Error]] = defaultdict(list)
    for name, errors in by_name.items():
        found[name if len({e.result.id for e in errors}) >= _LEAST else "others"] += errors
    return found


def _line(figure: Figure, of: Division, name: str, errors: Iterable[Error]) -> AccuracyLine:
    them = sorted(errors, key=lambda e: e.result.id)
    results = [list(own) for _, own in groupby(them, key=lambda e: e.result.id)]
    off = [statistics.median(e.off for e in own) for own in results]
    sizes = sorted(abs(one) for one in off)
    within = (
        None if figure == "memory" else statistics.fmean(statistics.fmean(bool(e.within) for e in r) for r in results)
    )
    return AccuracyLine(
        figure=figure,
        of=of,
        name=name,
        n_results=len(results),
        median_error=round(statistics.median(sizes), 4),
        p80_error=round(sizes[min(int(0.8 * len(sizes)), len(sizes) - 1)], 4),
        bias=round(statistics.median(off), 4),
        within=None if within is None else round(within, 4),
    )


def _names(result: Predicted) -> dict[Division, str]:
    """Return a result's name in each division except `depth`, which depends on the figure."""
    return {
        "all": "all",
        "engine": result.engine,
        "backend": _backend(result),
        "cards": safe(result.gpus) or "none",
        "family": safe(result.arch or "not known"),
        "model": _kind(result),
        "placement": _placement(result.prediction.devices),
        "month": result.measured_at.strftime("%Y-%m"),
    }


def _backend(result: Predicted) -> str:
    try:
        cards = resolve(result.hardware).cards
    except AdvisorError:
        return "not known"
    return cards[0].backend.upper() if cards else "CPU"


def _kind(result: Predicted) -> str:
    if not result.n_params or not result.n_active:
        return "not known"
    return "mixture of experts" if result.n_active < result.n_params else "dense"


def _depth(n_kv: int) -> str:
    if n_kv < _SHALLOW:
        return f"below {_SHALLOW:,} tokens"
    return f"{_SHALLOW:,} to {_DEEP - 1:,} tokens" if n_kv < _DEEP else f"{_DEEP:,} tokens and more"


def _placement(devices: Sequence[DeviceMemory]) -> str:
    """Return which devices hold the weights, in the words of docs/speed.md."""
    weights = {row.device: row.weights_mib for row in devices}
    cards, whole = sum(n > 0 for name, n in weights.items() if name != CPU), sum(weights.values())
    if not whole:
        return "not known"
    if not cards:
        return "CPU only"
    on_cpu = weights.get(CPU, 0.0) > _IN_RAM * whole
    return ("one GPU" if cards == 1 else "several GPUs") + (" + CPU" if on_cpu else "")


def _worst(errors: Iterable[Error]) -> list[WorstCase]:
    """Return the largest errors, one per result, where half and twice the measured value count the same."""
    found: dict[str, Error] = {}
    for error in sorted(errors, key=lambda e: -max(e.predicted / e.measured, e.measured / max(e.predicted, 1e-9))):
        found.setdefault(error.result.id, error)
    return [_case(error) for error in list(found.values())[:_WORST]]


def _case(error: Error) -> WorstCase:
    result = error.result
    return WorstCase(
        result=result.id,
        figure=error.figure,
        model=safe(result.model_name),
        variant=safe(result.variant),
        gpus=safe(result.gpus),
        engine=result.engine,
        n_kv=error.n_kv,
        predicted=round(error.predicted, 2),
        measured=round(error.measured, 2),
        measured_at=result.measured_at.date().isoformat(),
    )


def _difference(one: Entry) -> MemoryDifference:
    said = one.reported
    return made_from(
        MemoryDifference,
        said,
        engine=said.subject.engine,
        builds=said.subject.era,
        architecture=safe(said.subject.architecture),
        backend=said.subject.backend,
        low=round(said.low, 2),
        high=round(said.high, 2),
        state=one.state,
        since=one.since.date().isoformat(),
        results=list(one.results),
    )


def _used(one: calibrations.Stored) -> CalibrationUsed:
    errors = one.errors
    return made_from(
        CalibrationUsed, errors, version=one.version, n_results=one.n_results, made_at=one.made_at.date().isoformat()
    )
