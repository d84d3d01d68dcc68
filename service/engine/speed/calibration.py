"""The calibration: effective rates and overheads as data, with their spread."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import TypeAlias

import msgspec

from service.engine.speed.parts import Part

Coefficients: TypeAlias = Mapping[str, float]


class Parameter(msgspec.Struct, frozen=True):
    """One coefficient. `spread` is one standard deviation of its logarithm; `unit` ratio: a multiple of ideal time.

    `prior`, `prior_spread`: what was believed before any run (a spread of 0: not fitted). `least`: the physical limit
    that no fit may pass. `source`: published runs | one-device scoreboard | prior.
    """

    value: float
    spread: float
    unit: str
    meaning: str
    prior: float
    prior_spread: float
    source: str
    least: float = 0.0


class Comparison(msgspec.Struct, frozen=True):
    """What two configs of one rig do not share, as standard deviations of logarithms.

    `own`: the scatter of one run around its rig; `parts`: of the time of each part; `engines`: between two engines.
    """

    own: float
    parts: dict[Part, float]
    engines: float


class Calibration(msgspec.Struct, frozen=True):
    """The versioned file. `intervals`: factors that bound 80 % of the cases of a class; `comparisons`: by phase
    and place (interval.comparison_of)."""

    version: str
    n_runs: int
    source: str
    parameters: dict[str, Parameter]
    intervals: dict[str, float]
    comparisons: dict[str, Comparison]

    @property
    def basis(self) -> str:
        """What an estimate from these numbers is based on, in the words of Estimate.basis."""
        return f"calibrated on {self.n_runs} published runs"


class _InForce(msgspec.Struct):
    """What this process predicts by: None until something else is put in force."""

    calibration: Calibration | None = None


_in_force = _InForce()


def put_in_force(found: Calibration | None) -> None:
    """Predict by this calibration from now on, in this process; None: by the one that comes with the engine."""
    _in_force.calibration = found
    coefficients.cache_clear()


def calibration() -> Calibration:
    """Return the calibration in force: the one that comes with the engine, unless another was put in its place."""
    return _in_force.calibration or shipped()


def version_put_in_force() -> str | None:
    """Return the version of the calibration that was put in force; None: it is the one that comes with the engine."""
    return _in_force.calibration.version if _in_force.calibration else None


@cache
def shipped() -> Calibration:
    """Return the calibration that comes with the engine."""
    text = resources.files("service.engine.data").joinpath("calibration.json").read_bytes()
    return msgspec.json.decode(text, type=Calibration)


@cache
def coefficients() -> Coefficients:
    """Return the values of all parameters by name."""
    return {name: parameter.value for name, parameter in calibration().parameters.items()}
