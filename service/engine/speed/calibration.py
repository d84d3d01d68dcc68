"""The calibration: effective rates and overheads as data, with their spread."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import TypeAlias

import msgspec

Coefficients: TypeAlias = Mapping[str, float]


class Parameter(msgspec.Struct, frozen=True):
    """One coefficient. `spread` is one standard deviation of its logarithm; `unit` ratio: a multiple of ideal time."""

    value: float
    spread: float
    unit: str
    meaning: str


class Calibration(msgspec.Struct, frozen=True):
    """The versioned file. `intervals`: factors that bound 80 % of the cases of a class; `part_spreads`: one standard
    deviation of the logarithm of a part's time; `own_spread`, `engine_spread`: what two configs of one rig, and two
    engines, do not share."""

    version: str
    n_runs: int
    source: str
    parameters: dict[str, Parameter]
    intervals: dict[str, float]
    part_spreads: dict[str, float]
    own_spread: float
    engine_spread: float

    @property
    def basis(self) -> str:
        """What an estimate from these numbers is based on, in the words of Estimate.basis."""
        return f"calibrated on {self.n_runs} published runs"


@cache
def calibration() -> Calibration:
    """Return the calibration that comes with the engine."""
    text = resources.files("service.engine.data").joinpath("calibration.json").read_bytes()
    return msgspec.json.decode(text, type=Calibration)


@cache
def coefficients() -> Coefficients:
    """Return the values of all parameters by name."""
    return {name: parameter.value for name, parameter in calibration().parameters.items()}
