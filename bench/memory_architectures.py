"""Memory of architectures and of ik_llama.cpp's features beyond the lab's, each against some measured configurations.

python -m bench.memory_architectures [--show N]
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import NamedTuple

from service.engine.config import ENGINES, Engine
from tests.memory_lab import Compared, LabRow, architecture_rows, compare, rig_rows
from tests.models import build

PARTS = ("weights", "kv", "compute")


class Outcome(NamedTuple):
    """One run: the compared figures, and whether splits and nodes agree (None: not measured)."""

    row: LabRow
    compared: list[Compared]
    splits: bool | None


def replay(row: LabRow) -> Outcome:
    memory = row.predict()
    known = row.graph_splits is not None or row.graph_nodes is not None
    splits = row.graph_splits in (None, memory.graph_splits) and row.graph_nodes in (None, memory.graph_nodes)
    return Outcome(row, compare(row, memory), splits if known else None)


def show_architectures(engine: Engine, pool: Executor, show: int) -> bool:
    """Print a line for each architecture of an engine; return whether every figure is exact."""
    outcomes = pool.map(replay, architecture_rows(engine), chunksize=4)
    groups = _grouped((build(o.row.model, o.row.mix).architecture, o) for o in outcomes)
    return _show(f"{engine}, further architectures", "architecture", groups, show)


def show_features(pool: Executor, show: int) -> bool:
    """Print a line for each feature of ik_llama.cpp on CUDA; return whether every figure is exact."""
    outcomes = pool.map(replay, rig_rows(), chunksize=4)
    groups = _grouped((o.row.id.rpartition("-")[0], o) for o in outcomes)
    return _show("ik_llama.cpp, built with CUDA, runs by feature", "feature", groups, show)


def _grouped(outcomes: Iterable[tuple[str, Outcome]]) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for key, outcome in outcomes:
        groups[key].append(outcome)
    return groups


def _show(title: str, kind: str, groups: dict[str, list[Outcome]], show: int) -> bool:
    print(f"\n{title}: exact figures of all, by part; graphs whose splits and nodes are equal")
    print(f"  {kind:<20}{'runs':>5}" + "".join(f"{part:>12}" for part in PARTS) + f"{'graphs':>10}")
    for key in sorted(groups):
        print(_line(key, groups[key]))
    wrong = [c for outcomes in groups.values() for o in outcomes for c in o.compared if not c.exact]
    for c in wrong[:show]:
        print(f"  {c.row.id} {c.row.model} {c.device} {c.part}: {c.predicted:.2f}, measured {c.measured}")
    return not wrong


def _line(label: str, outcomes: list[Outcome]) -> str:
    cells = []
    for part in PARTS:
        figures = [c for o in outcomes for c in o.compared if c.part == part]
        cells.append(f"{sum(c.exact for c in figures)}/{len(figures)}")
    graphs = [o.splits for o in outcomes if o.splits is not None]
    equal = f"{sum(graphs)}/{len(graphs)}" if graphs else "-"
    return f"  {label:<20}{len(outcomes):>5}" + "".join(f"{cell:>12}" for cell in cells) + f"{equal:>10}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=int, default=10, help="figures that differ, the first N")
    options = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        good = [show_architectures(engine, pool, options.show) for engine in ENGINES]
        good.append(show_features(pool, options.show))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
