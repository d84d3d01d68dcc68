"""The calibration: effective rates and overheads as data, with their spread."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Literal, TypeAlias

import msgspec

from service.engine.tables import table_of

Coefficients: TypeAlias = Mapping[str, float]
Part: TypeAlias = Literal[
    "weights on GPU", "experts in RAM", "other weights in RAM", "attention", "copies over PCIe", "launch overhead",
    "synchronisation",
]  # fmt: skip


class Parameter(msgspec.Struct, frozen=True):
    """One coefficient. `spread` is one standard deviation of its logarithm; `unit` ratio: a multiple of ideal time.

    `prior`, `prior_spread`: what was believed before any run (a spread of 0: not fitted). `least`: the physical limit
    that no fit may pass. `source`: published runs | one-device scoreboard | GPU day | prior.
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


class Calibration(msgspec.Struct, frozen=True, dict=True):
    """The versioned file. `intervals`: factors that bound 80 % of the cases of a class; `comparisons`: by phase
    and place (interval.comparison_of). `measured_once`: generations of cards, such as `cuda.hopper`, of which only
    this project or one or two owners have runs: how the next rig differs is not known."""

    version: str
    n_runs: int
    source: str
    parameters: dict[str, Parameter]
    intervals: dict[str, float]
    comparisons: dict[str, Comparison]
    measured_once: tuple[str, ...] = ()

    @cached_property
    def coefficients(self) -> Coefficients:
        """The values of all parameters by name; those that a fit of an older release lacks are the shipped ones."""
        return {name: parameter.value for name, parameter in (shipped().parameters | self.parameters).items()}

    @property
    def basis(self) -> str:
        """What an estimate from these numbers is based on, in the words of Estimate.basis."""
        return f"calibrated on {self.n_runs} published runs"


@cache
def shipped() -> Calibration:
    """Return the calibration that comes with the engine."""
    return table_of("calibration.json", Calibration)
