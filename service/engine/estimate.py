"""An estimate is three numbers and where they come from, never a bare float."""

from __future__ import annotations

import msgspec


class Estimate(msgspec.Struct, frozen=True):
    """An 80 % interval around an expected value. `basis`: `formula`, `calibrated on N results`, or `measured`."""

    low: float
    expected: float
    high: float
    basis: str = "formula"
