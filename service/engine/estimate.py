"""An estimate is three numbers and where they come from, never a bare float."""

from __future__ import annotations

import msgspec

Z80 = 1.2816  # standard deviations on either side that hold 80 % of a normal distribution


class Estimate(msgspec.Struct, frozen=True):
    """An 80 % interval around an expected value. `basis`: `formula`, `calibrated on N results`, or `measured`."""

    low: float
    expected: float
    high: float
    basis: str = "formula"
