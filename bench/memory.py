"""Memory against the lab data: the share of exact figures, the errors of the others, and whether a device fits.

    python -m bench.memory [--every N] [--engine ik_llama.cpp|llama.cpp] [--show N]
    python -m bench.memory_published [--show N]        only the logs that people posted, every figure outside the target

Exact means equal to what the engine printed: 0.01 MiB for ik_llama.cpp, the whole MiB for llama.cpp. Ends with a
non-zero status if less than 99.5 % of the weights, KV or compute figures of an engine are exact, or if more than 1 % of
the devices that are too full are said to fit, or 5 % of those with room are not. Further architectures and logs that
people posted follow.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor

from bench.memory_architectures import show_architectures, show_features
from bench.memory_fit import Decision, decide, show_decisions
from bench.memory_published import show_published
from bench.memory_rig import show_rig
from bench.memory_split import show_split
from bench.stamp import stamp
from service.engine.config import ENGINES, Engine
from tests.memory_lab import Compared, LabRow, compare, lab_rows

WANTED = 0.995
Result = tuple[list[Compared], bool | None, bool | None, float, list[Decision]]


def replay(row: LabRow) -> Result:
    """Return the compared figures, whether splits and nodes agree (None: not measured), the seconds, and what fits."""
    start = time.perf_counter()
    memory = row.predict()
    taken = time.perf_counter() - start
    splits = None if row.graph_splits is None else memory.graph_splits == row.graph_splits
    nodes = None if row.graph_nodes is None else memory.graph_nodes == row.graph_nodes
    return compare(row, memory), splits, nodes, taken, decide(row, memory)


def share(compared: list[Compared]) -> float:
    return sum(c.exact for c in compared) / len(compared)


def line(label: str, compared: list[Compared]) -> str:
    errors = sorted(abs(c.predicted - c.measured) / max(c.measured, 1) for c in compared)
    p95 = errors[int(0.95 * (len(errors) - 1))]
    median = statistics.median(errors)
    return f"  {label:<44}{len(compared):>6}{share(compared):>9.2%}{median:>10.3%}{p95:>9.3%}{errors[-1]:>9.3%}"


def agree(outcomes: list[bool]) -> str:
    return f"{sum(outcomes)} of {len(outcomes)}" if outcomes else "not measured"


def show_engine(engine: Engine, results: list[Result], show: int) -> bool:
    """Print an engine's tables; return whether enough figures are exact."""
    compared = [c for figures, *_ in results for c in figures]
    times = sorted(r[3] for r in results)
    median, most = times[len(times) // 2] * 1e3, times[-1] * 1e3
    print(f"\n{engine}: {len(results)} runs, {median:.0f} ms a run at the median, {most:.0f} ms at most")
    print(f"  {'part, family, device':<44}{'n':>6}{'exact':>9}{'median':>10}{'p95':>9}{'max':>9}")
    groups: dict[str, list[Compared]] = defaultdict(list)
    for c in compared:
        groups[f"{c.part} | all"].append(c)
        if c.part in ("weights", "kv", "compute"):
            kind = "CPU" if c.device == "CPU" else "GPU"
            groups[f"{c.part} | {c.row.family} | {kind}"].append(c)
    for label in sorted(groups):
        print(line(label, groups[label]))
    print(f"  graph splits equal: {agree([r[1] for r in results if r[1] is not None])}; "
          f"nodes: {agree([r[2] for r in results if r[2] is not None])}")  # fmt: skip
    wrong = sorted((c for c in compared if not c.exact), key=lambda c: -abs(c.predicted - c.measured))
    for c in wrong[:show]:
        print(f"  {c.row.id} {c.row.model} {c.device} {c.part}: {c.predicted:.2f}, measured {c.measured}")
    fits = show_decisions(engine, [d for r in results for d in r[4]])
    return fits and all(share(groups[f"{part} | all"]) >= WANTED for part in ("weights", "kv", "compute"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="only every Nth run")
    parser.add_argument("--engine", choices=ENGINES, help="only this engine")
    parser.add_argument("--show", type=int, default=10, help="figures that differ, the worst N")
    options = parser.parse_args()
    print(stamp())
    good = True
    with ProcessPoolExecutor() as pool:
        for engine in [options.engine] if options.engine else ENGINES:
            rows = list(lab_rows(engine))[:: options.every]
            good &= show_engine(engine, list(pool.map(replay, rows, chunksize=4)), options.show)
            good &= show_architectures(engine, pool, options.show)
            good &= show_rig(engine, pool, options.show)
            if engine == "ik_llama.cpp":
                good &= show_features(pool, options.show)
                good &= show_split(pool, options.show)
    if not options.engine:
        good &= show_published(0)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
