"""`advise()` for tests of what is done with an advice: the same question is computed once in a session."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from service.engine.advice import AdviceBody
from service.engine.advise import VariantModel, advise
from service.engine.calibration import Calibration
from service.engine.goal import Constraints, GoalRequest
from service.engine.hardware import Hardware
from service.engine.planner.search.all_variants import Report, no_report

_computed: dict[bytes, AdviceBody] = {}


def advise_once(
    variants: Sequence[VariantModel], hardware: Hardware, goal: GoalRequest, constraints: Constraints,
    what_if: Sequence[str] = (), calibration: Calibration | None = None, report: Report = no_report,
) -> AdviceBody:  # fmt: skip
    """Return what `advise()` returns for these arguments."""
    files = [(v.name, v.files, v.model.architecture, v.model.tensors) for v in variants]
    key = msgspec.json.encode((files, hardware, goal, constraints, what_if, calibration))
    if key not in _computed:
        _computed[key] = advise(variants, hardware, goal, constraints, what_if, calibration)
    return _computed[key]
