"""The types of `/v1/accuracy`: errors of predictions."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from service.engine.check.learning import Part, Place
from service.engine.config import Engine

Figure: TypeAlias = Literal["tg", "pp", "memory"]
Division: TypeAlias = Literal["all", "engine", "backend", "cards", "family", "model", "placement", "depth", "month"]


class AccuracyLine(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of one figure in one class; a result counts once per class, with the median over its depths or devices.

    `of`: the division of results, `name`: the class in it; cards and families with fewer than three results are
    `others`. Errors are relative to the measured value: 0.12 is 12 %. `bias`: the median signed error, above 0 if
    predictions are too high. `within`: the share of results inside the stated 80 % interval; None for memory, which has
    no interval.
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
    """One of the worst predictions. `n_kv`: depth of a speed, None for memory. Values in t/s, or MiB of one device."""

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
    """A calibration fitted to this database's results, with median relative errors before and after it, on results kept
    out of the fit."""

    version: str
    n_results: int
    made_at: str
    tg_before: float
    tg_after: float
    pp_before: float
    pp_after: float


class MemoryDifference(msgspec.Struct, frozen=True, kw_only=True):
    """An unsettled difference between printed and computed buffers. `name`: by which an operator settles it.

    `builds`: the first build with the engine's current rules; `+`: builds newer than those known here. `part` of
    `place` (a card, or CPU for RAM) is the first that differs. `rigs`: how many show it, each of another owner known
    for two weeks; `agreeing`: how many are as computed. `low`, `high`: measured minus computed, in MiB, or a number of
    splits. `state`: `unconfirmed` without such a rig, else `open`; `warned`: answers mention it. `results`: the newest
    that show it.
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
    """The accuracy of predictions: each result compared with the prediction made before it was measured.

    `n_results`: how many of the newest were looked at, `n_published` of them published elsewhere and predicted by
    parameters fitted without their author and machine; `since`: when the oldest was measured. `worst`: by figure,
    largest errors first. `differences`: between printed and computed buffers, those of most rigs first.
    """

    n_results: int
    n_published: int = 0
    since: str | None
    lines: list[AccuracyLine]
    worst: list[WorstCase]
    calibration: str
    calibrations: list[CalibrationUsed] = []
    differences: list[MemoryDifference] = []
