"""Memory of ik_llama.cpp's `-sm graph` against its CUDA build on stand-in cards (part of `bench.memory`)."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import Executor
from typing import NamedTuple

from service.engine.units import MIB
from tests.memory_split import SplitRow, equal_graph, exact_buffers, split_rows


class Outcome(NamedTuple):
    """One run: whether its stored sizes, buffers and graph are equal, and the basis of the prediction."""

    row: SplitRow
    stored: list[bool]
    buffers: list[bool]
    graph: bool
    basis: str


def replay(row: SplitRow) -> Outcome:
    memory = row.predict()
    cards = memory.devices[:-1]
    sums = (sum(c.weights for c in cards) / MIB - row.weights_mib, sum(c.kv for c in cards) / MIB - row.kv_mib)
    stored = [abs(difference) <= 0.02 for difference in sums]
    return Outcome(row, stored, exact_buffers(row, memory), equal_graph(row, memory), memory.basis)


def show_split(pool: Executor, show: int) -> bool:
    """Print a line for each model; return whether every figure of what counts as measured is exact."""
    outcomes = list(pool.map(replay, split_rows(), chunksize=4))
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.row.model].append(outcome)
    print("\nik_llama.cpp -sm graph, its CUDA build on stand-in cards: exact figures of all; graphs equal")
    print(f"  {'model':<20}{'runs':>5}{'stored':>12}{'compute':>12}{'graphs':>10}  basis")
    for model in sorted(groups):
        print(_line(model, groups[model]))
    print(_line("all", outcomes))
    measured = [o for o in outcomes if o.basis == "measured"]
    wrong = [o for o in measured if not (all(o.stored) and all(o.buffers) and o.graph)]
    for o in wrong[:show]:
        print(f"  {o.row.id} {o.row.model} {' '.join(o.row.args)}: stored {o.stored}, compute {o.buffers}")
    return not wrong


def _line(model: str, outcomes: list[Outcome]) -> str:
    stored, buffers = ([equal for o in outcomes for equal in getattr(o, part)] for part in ("stored", "buffers"))
    cells = [f"{sum(equal)}/{len(equal)}" for equal in (stored, buffers, [o.graph for o in outcomes])]
    bases = ", ".join(sorted({o.basis for o in outcomes}))
    return f"  {model:<20}{len(outcomes):>5}{cells[0]:>12}{cells[1]:>12}{cells[2]:>10}  {bases}"
