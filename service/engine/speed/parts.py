"""Where time goes: seconds by part, which add up to the whole."""

from __future__ import annotations

from typing import TypeAlias, get_args

from service.engine.calibration import Part

PARTS: tuple[Part, ...] = get_args(Part)
Seconds: TypeAlias = dict[Part, float]


def no_time() -> Seconds:
    """Return zero seconds for every part."""
    return dict.fromkeys(PARTS, 0.0)


def overlap(reading: float, computing: float, power: float = 3.0) -> float:
    """Return the time of work that reads and computes at once: near the longer one, the less so the lower `power` is.

    Forms that fit: 3 for the tokens of a CPU, 1.5 for its batches.
    """
    longer = max(reading, computing)
    if longer <= 0:
        return 0.0
    shorter = min(reading, computing) / longer
    return float(longer * (1 + shorter**power) ** (1 / power))


def milliseconds(spent: Seconds) -> dict[str, float]:
    """Return the parts that take any time in milliseconds, rounded to a thousandth."""
    return {part: round(1000 * seconds, 3) for part, seconds in spent.items() if seconds >= 5e-7}
