"""The shapes of `/v1/accuracy`: how far predictions were from what was measured afterwards."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from service.engine.check.learning import Part, Place
from service.engine.config import Engine

Figure: TypeAlias = Literal["tg", "pp", "memory"]
Division: TypeAlias = Literal["all", "engine", "backend", "cards", "family", "model", "placement", "depth", "month"]


class AccuracyLine(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of one figure in one class; a result counts once in a class, with the median of its depths or devices.

    `of`: by what the results are divided, `name`: which part of it; cards and families of fewer than three results are
    `others`. Errors are shares of what was measured: 0.12 is
    12 %. `bias`: the median of signed errors, above 0 where predictions are too high. `within`: the share of results
    inside the 80 % interval that was stated; None for memory, which has none.
    """

    figure: Figure
    of: Division
    name: str
    n_results: int
    median_error: float
    p80_error: float
    bias: float
    within: float | None


class WorstCase(msgspec.Struct, frozen=True, kw_only=True):
    """A result that was predicted worst. `n_kv`: depth of a speed, None of memory; in t/s, or MiB of one device."""

    result: str
    figure: Figure
    model: str
    variant: str
    gpus: str
    engine: Engine
    n_kv: int | None
    predicted: float
    measured: float
    measured_at: str


class CalibrationUsed(msgspec.Struct, frozen=True, kw_only=True):
    """A calibration of the speed model fitted to results of this database, and its errors before and after on results
    kept out of the fit (medians, as shares)."""

    version: str
    n_results: int
    made_at: str
    tg_before: float
    tg_after: float
    pp_before: float
    pp_after: float


class MemoryDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Buffers that logs print otherwise than is computed, not settled yet. `name`: by which an operator settles it.

    `builds`: since when their rules hold, a `+`: newer than those known here. `part` of `place` (a card; CPU: RAM) is
    the first that differs. `rigs`: on how many it does, each of another owner known for two weeks; `agreeing`: on
    how many it is as computed. `low`, `high`: measured less computed, in MiB, of splits their number. `state`:
    `unconfirmed` without any such rig, else `open`; `warned`: answers say so. `results`: the newest that show it.
    """

    name: str
    engine: Engine
    builds: str
    architecture: str
    backend: str
    place: Place
    part: Part
    rigs: int
    agreeing: int
    low: float
    high: float
    state: Literal["unconfirmed", "open", "warned"]
    since: str
    results: list[str]


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How good predictions are: each result next to what was predicted of it before it was measured.

    `n_results`: how many were looked at, the newest, `n_published` of them published elsewhere and predicted by
    parameters that saw neither their author nor their machine; `since`: when the oldest of them was measured. `worst`:
    by figure, the largest errors first. `differences`: of buffers, those of most rigs first.
    """

    n_results: int
    n_published: int = 0
    since: str | None
    lines: list[AccuracyLine]
    worst: list[WorstCase]
    calibration: str
    calibrations: list[CalibrationUsed] = []
    differences: list[MemoryDifference] = []
