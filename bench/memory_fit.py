"""The fit decision against the lab's totals: what does not fit is refused, what fits with some room is not.

Each device of each run gets a capacity 1 MiB below its measured total (`fits` must be false), then one 4 % or 64 MiB
above it, whichever is more (`fits` must be true).
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from service.engine.config import Device, Engine
from service.engine.memory.figures import Memory
from service.engine.memory.report import report
from service.engine.units import MIB
from tests.memory_lab import LabRow

REFUSED, ACCEPTED = 0.99, 0.95


class Decision(NamedTuple):
    """Whether one device of one run was refused below its total and accepted above it."""

    row: LabRow
    device: str
    refused: bool
    accepted: bool


def decide(row: LabRow, memory: Memory) -> list[Decision]:
    """Return the decisions on every device of a run that holds anything; `memory`: what is predicted for it."""
    totals = {
        name: sum(v or 0.0 for v in parts.values()) for name, parts in row.measured.items() if any(parts.values())
    }
    below = fits(row, memory, {name: total - 1 for name, total in totals.items()})
    above = fits(row, memory, {name: total + max(64, 0.04 * total) for name, total in totals.items()})
    return [Decision(row, name, not below[name], above[name]) for name in totals]


def fits(row: LabRow, memory: Memory, capacities: dict[str, float]) -> dict[str, bool]:
    """Return what the report says about each device with these capacities in MiB."""
    room = {name: int(mib * MIB) for name, mib in capacities.items()}
    devices = [
        Device(f"CUDA{i}", i, room.get(f"CUDA{i}", 0), room.get(f"CUDA{i}", 0)) for i in range(len(row.free_mib))
    ]  # fmt: skip
    rows = report(memory, devices, [0] * len(row.free_mib), room.get("CPU"))
    return {r.device: r.fits for r in rows}


def show_decisions(engine: Engine, decisions: list[Decision]) -> bool:
    """Print the shares by family; return whether the engine's are high enough."""
    groups: dict[str, list[Decision]] = defaultdict(list)
    for d in decisions:
        for label in ("all", f"{d.row.family} | {'CPU' if d.device == 'CPU' else 'GPU'}"):
            groups[label].append(d)
    print(f"\n{engine + ', fits':<30}{'n':>6}{'1 MiB less':>12}{'4 % or 64 MiB more':>20}")
    for label in sorted(groups):
        refused, accepted = shares(groups[label])
        print(f"  {label:<28}{len(groups[label]):>6}{refused:>12.2%}{accepted:>20.2%}")
    refused, accepted = shares(decisions)
    return refused >= REFUSED and accepted >= ACCEPTED


def shares(decisions: list[Decision]) -> tuple[float, float]:
    """Return the shares of devices refused below their total, and accepted above it."""
    n = len(decisions)
    return sum(d.refused for d in decisions) / n, sum(d.accepted for d in decisions) / n
