"""Refits the calibration to this service's results, on command or on a schedule, and never silently worse.

The parameters in force are the prior, each with its own spread; believed results (agent-run or replicated) move them as
far as they outweigh it. A fifth of the owners, chosen by the hash of their ids, is kept out of every fit; the new
calibration is kept only if neither phase's median error on their results grows.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import NamedTuple

import msgspec

from service.engine.calibration import Calibration, Parameter, shipped
from service.engine.catalogue import cards_named, engine_devices, resolve
from service.engine.config import CPU, Device, Flags
from service.engine.errors import AdvisorError
from service.engine.hardware import Rig
from service.engine.measured.summary import measured_speed
from service.engine.model import Model
from service.engine.run.resolved import resolve_run
from service.engine.run_flags import to_flags
from service.engine.speed.fitting import Fit, Solution, Values
from service.engine.speed.generation import token_seconds
from service.engine.speed.machine import machine_of
from service.engine.speed.predict import prompt_seconds
from service.engine.speed.sums import work_of
from service.engine.speed.work import Work
from service.errors import CalibrationRefused
from service.flows.advice.reading import models_in_full
from service.flows.advice.repos import stored_listing
from service.flows.context import ReadsHeaders
from service.flows.results.trust import built_on
from service.store.results import calibrations as store
from service.store.results.accuracy import BelievedResult, accepted
from service.store.results.calibrations import Errors
from service.store.viewers import BELIEVED

LEAST_RESULTS, LEAST_OWNERS = 20, 3
"""The least that a fit needs; with less, one owner's habits would become everybody's calibration."""
MOST_RESULTS = 2_000
_DEPTHS = 5  # per result, since more would say the same
_STEPS = 5
_MODELS = 16  # kept while results are read, since many share a model
_PARTS, _KEPT_OUT = 5, 2


class FittedSpeed(msgspec.Struct, frozen=True):
    """One measured speed of a believed result: `n` tokens on top of `depth`, in tokens per second."""

    result: str
    owner: str
    work: Work
    rig: Rig
    devices: tuple[Device, ...]
    flags: Flags
    phase: str
    n: int
    depth: int
    observed: float
    weight: float

    @property
    def offset(self) -> str:
        """The group of rows that share an offset, for whatever is peculiar to one owner's rig."""
        return f"{self.owner} {self.rig.cpu_model} {self.phase} {'CPU' if self.work.host_layers else 'GPU'}"

    def error(self, p: Values) -> float:
        """Return the logarithm of predicted over measured speed."""
        machine = machine_of(self.rig, self.devices, self.flags, p)
        if self.phase == "tg":
            seconds = sum(token_seconds(self.work, machine, p, self.depth + self.n // 2).values())
        else:
            seconds = prompt_seconds(self.work, machine, p, self.depth, self.n)[0] / self.n
        return -math.log(seconds * self.observed)


class Refit(NamedTuple):
    """A refitted calibration, and its errors on the results kept out of the fit."""

    calibration: Calibration
    errors: Errors
    n_results: int


def calibrate(context: ReadsHeaders, *, keep: bool = True) -> Refit:
    """Fit the calibration in force to the believed results and, if `keep`, put the new one in force.

    Raises CalibrationRefused, with figures, if there are too few results or the errors on those kept out would grow.
    """
    read = lru_cache(maxsize=_MODELS)(partial(_model, context))
    rows = [row for result in accepted(context.engine, BELIEVED, MOST_RESULTS) for row in rows_of(result, read)]
    fitted = [row for row in rows if not _is_kept_out(row.owner)]
    kept_out = [row for row in rows if _is_kept_out(row.owner)]
    _require_enough(fitted, kept_out)
    old = store.in_force(context.engine) or shipped()
    at = _solved(fitted, old)
    errors = _errors(kept_out, {n: p.value for n, p in old.parameters.items()}, at.values)
    found = Refit(_named(old, at, fitted, context.clock()), errors, len({row.result for row in fitted}))
    if errors.tg_after > errors.tg_before or errors.pp_after > errors.pp_before:
        raise CalibrationRefused(
            f"it would be worse on the {errors.kept_out} results kept out of the fit: tokens {errors.tg_before:.1%} "
            f"before and {errors.tg_after:.1%} after, prompts {errors.pp_before:.1%} and {errors.pp_after:.1%}"
        )
    if keep and not store.add(context.engine, found.calibration, errors, found.n_results, context.clock()):
        raise CalibrationRefused("another process has just made one: see `GET /v1/accuracy`")
    return found


def rows_of(result: BelievedResult, read: Callable[[str, str, str], Model | None]) -> Iterator[FittedSpeed]:
    """Yield the speeds of a result at up to five depths; nothing if its header or hardware cannot be read now.

    `read` returns the model of a repo, revision and variant.
    """
    try:
        model, rig = read(result.model.repo, result.model.revision, result.model.variant), resolve(result.hardware)
        # The cards that it ran on: for each name in its prediction the first unused card.
        names = [device.gpu for device in result.prediction.devices if device.device != CPU]
        devices = engine_devices(rig, result.engine, [card for card in cards_named(rig, names) if card is not None])
    except AdvisorError:
        return
    if model is None:
        return
    points = measured_speed(result.rows)
    step = max(len(points) / _DEPTHS, 1.0)
    chosen = [points[int(i * step)] for i in range(min(len(points), _DEPTHS))]
    day = built_on(result.engine, result.build, result.measured_at).isoformat()
    n_gen = max((row.n_gen for row in result.rows), default=1)
    flags = to_flags(result.flags)
    for point in chosen:
        n_prompt = max(row.n_prompt for row in result.rows if row.n_kv == point.n_kv and row.pp_seconds)
        short = msgspec.structs.replace(flags, n_ubatch=max(min(flags.n_ubatch, n_prompt), 1))
        for phase, n, observed, own in (("pp", n_prompt, point.pp_tps, short), ("tg", n_gen, point.tg_tps, flags)):
            work = work_of(resolve_run(result.engine, model, own, rig, devices, day))
            yield FittedSpeed(
                result.id, result.account_id, work, rig, devices, own,
                phase, n, point.n_kv, observed, 1 / len(chosen),
            )  # fmt: skip


def _model(context: ReadsHeaders, repo: str, revision: str, variant: str) -> Model | None:
    listing = stored_listing(context, repo, revision)
    return models_in_full(context.hub, listing, (variant,)).get(variant) if listing else None


def _is_kept_out(owner: str) -> bool:
    return int(hashlib.sha256(owner.encode()).hexdigest(), 16) % _PARTS == _KEPT_OUT


def _require_enough(fitted: Sequence[FittedSpeed], kept_out: Sequence[FittedSpeed]) -> None:
    results, owners = len({row.result for row in fitted}), len({row.owner for row in fitted})
    if results < LEAST_RESULTS or owners < LEAST_OWNERS or not kept_out:
        raise CalibrationRefused(
            f"{results} results of {owners} owners can be fitted, and {len({r.result for r in kept_out})} are kept out "
            f"of the fit: {LEAST_RESULTS} results of {LEAST_OWNERS} owners and one that is kept out are needed"
        )


def _solved(rows: Sequence[FittedSpeed], old: Calibration) -> Solution:
    """Solve the fit with the values in force as the prior; parameters that were never fitted stay."""
    known = {
        name: msgspec.structs.replace(p, prior=p.value, prior_spread=p.spread if p.prior_spread else 0.0)
        for name, p in old.parameters.items()
    }
    fit = Fit(_weighted(rows), known)
    at = fit.start()
    for _ in range(_STEPS):
        at = fit.step(at, fit.slopes(at))
    slopes = fit.slopes(at)
    return Solution(at.values, at.offsets, fit.spreads(at, slopes))


def _weighted(rows: Sequence[FittedSpeed]) -> list[FittedSpeed]:
    """Weight owners by the square root of their number of results, as the shipped fit weights published groups."""
    count = Counter(owner for owner, _ in {(row.owner, row.result) for row in rows})
    return [msgspec.structs.replace(row, weight=row.weight / math.sqrt(count[row.owner])) for row in rows]


def _errors(rows: Sequence[FittedSpeed], before: Values, after: Values) -> Errors:
    return Errors(
        tg_before=_median(rows, "tg", before),
        tg_after=_median(rows, "tg", after),
        pp_before=_median(rows, "pp", before),
        pp_after=_median(rows, "pp", after),
        kept_out=len({row.result for row in rows}),
    )


def _median(rows: Sequence[FittedSpeed], phase: str, p: Values) -> float:
    """Return the median over results of the median error over their depths, as a share."""
    by_result: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.phase == phase:
            by_result[row.result].append(abs(row.error(p)))
    return round(math.expm1(statistics.median(statistics.median(errors) for errors in by_result.values())), 4)


def _named(old: Calibration, at: Solution, rows: Sequence[FittedSpeed], now: datetime) -> Calibration:
    n = len({row.result for row in rows})
    base = old.version.partition("+")[0]
    parameters = {name: _moved(p, at, name) for name, p in old.parameters.items()}
    return msgspec.structs.replace(
        old, version=f"{base}+{now:%Y%m%d.%H%M%S}", n_runs=old.n_runs + n, parameters=parameters
    )


def _moved(known: Parameter, at: Solution, name: str) -> Parameter:
    if not known.prior_spread:
        return known
    value = float(f"{at.values[name]:.4g}")
    return msgspec.structs.replace(known, value=value, spread=round(at.spreads.get(name, known.spread), 3))
