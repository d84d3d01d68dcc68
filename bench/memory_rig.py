"""Memory of each engine against a real context on stand-in cards, in bytes (part of `bench.memory`)."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import Executor
from typing import NamedTuple

from service.engine.config import Engine
from tests.memory_rig import PARTS, RigFigure, RigRow, compare_bytes, rig_rows


class Outcome(NamedTuple):
    """One run: the compared figures, and whether splits and nodes of the graph agree."""

    row: RigRow
    figures: list[RigFigure]
    graphs: bool


def replay(row: RigRow) -> Outcome:
    memory = row.predict()
    graphs = (memory.graph_splits, memory.graph_nodes) == (row.graph_splits, row.graph_nodes)
    return Outcome(row, compare_bytes(row, memory), graphs)


def show_rig(engine: Engine, pool: Executor, show: int) -> bool:
    """Print a line for each kind of run; return whether every figure is exact to the byte."""
    outcomes = list(pool.map(replay, rig_rows(engine), chunksize=4))
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.row.kind].append(outcome)
    print(f"\n{engine}, a real context on stand-in cards: figures exact to the byte of all, by part; graphs equal")
    print(f"  {'runs with':<20}{'runs':>5}" + "".join(f"{part:>12}" for part in PARTS) + f"{'graphs':>10}")
    for kind in sorted(groups):
        print(_line(kind, groups[kind]))
    print(_line("all", outcomes))
    wrong = [f for o in outcomes for f in o.figures if f.predicted != f.measured]
    for f in wrong[:show]:
        print(f"  {f.row.id} {f.row.model} {f.device} {f.part}: {f.predicted}, measured {f.measured}")
    return not wrong and all(o.graphs for o in outcomes)


def _line(kind: str, outcomes: list[Outcome]) -> str:
    cells = []
    for part in PARTS:
        figures = [f for o in outcomes for f in o.figures if f.part == part]
        cells.append(f"{sum(f.predicted == f.measured for f in figures)}/{len(figures)}")
    equal = f"{sum(o.graphs for o in outcomes)}/{len(outcomes)}"
    return f"  {kind:<20}{len(outcomes):>5}" + "".join(f"{cell:>12}" for cell in cells) + f"{equal:>10}"
