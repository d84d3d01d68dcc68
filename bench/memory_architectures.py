"""Memory of architectures beyond the lab's, each against some measured configurations.

python -m bench.memory_architectures [--show N]
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import NamedTuple

from service.engine.config import ENGINES, Engine
from tests.memory_lab import Compared, LabRow, architecture_rows, compare
from tests.models import build

PARTS = ("weights", "kv", "compute")


class Outcome(NamedTuple):
    """One run: its architecture, the compared figures, and whether splits and nodes agree (None: not measured)."""

    architecture: str
    compared: list[Compared]
    splits: bool | None


def replay(row: LabRow) -> Outcome:
    memory = row.predict()
    known = row.graph_splits is not None or row.graph_nodes is not None
    splits = row.graph_splits in (None, memory.graph_splits) and row.graph_nodes in (None, memory.graph_nodes)
    return Outcome(build(row.model, row.mix).architecture, compare(row, memory), splits if known else None)


def show_architectures(engine: Engine, pool: Executor, show: int) -> bool:
    """Print a line for each architecture of an engine; return whether every figure is exact."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in pool.map(replay, architecture_rows(engine), chunksize=4):
        groups[outcome.architecture].append(outcome)
    print(f"\n{engine}, further architectures: exact figures of all, by part; graphs whose splits and nodes are equal")
    print(f"  {'architecture':<20}{'runs':>5}" + "".join(f"{part:>12}" for part in PARTS) + f"{'graphs':>10}")
    for architecture in sorted(groups):
        print(_line(architecture, groups[architecture]))
    wrong = [c for outcomes in groups.values() for o in outcomes for c in o.compared if not c.exact]
    for c in wrong[:show]:
        print(f"  {c.row.id} {c.row.model} {c.device} {c.part}: {c.predicted:.2f}, measured {c.measured}")
    return not wrong


def _line(architecture: str, outcomes: list[Outcome]) -> str:
    cells = []
    for part in PARTS:
        figures = [c for o in outcomes for c in o.compared if c.part == part]
        cells.append(f"{sum(c.exact for c in figures)}/{len(figures)}")
    graphs = [o.splits for o in outcomes if o.splits is not None]
    equal = f"{sum(graphs)}/{len(graphs)}" if graphs else "-"
    return f"  {architecture:<20}{len(outcomes):>5}" + "".join(f"{cell:>12}" for cell in cells) + f"{equal:>10}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=int, default=10, help="figures that differ, the first N")
    options = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        good = [show_architectures(engine, pool, options.show) for engine in ENGINES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
