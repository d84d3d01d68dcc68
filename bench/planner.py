"""How far placements are from the best possible: `python -m bench.planner [--problems 100] [--seed 1] [--jobs 2]`.

Published models on 1 to 8 cards, against a lower bound that HiGHS finds (`bench/placing/bound.py`). Seconds and memory
are those that `check` computes. Every problem more than 1 % above its bound is named, with what a better placement does
differently. Times are CPU milliseconds of one placement whose graphs are cached, as in a search.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from msgspec.structs import replace

from bench.placing.bound import bounded
from bench.placing.linear import Linear
from bench.placing.problems import Asked, published_problem
from bench.placing.written import written
from bench.stamp import stamp
from service.engine.config import CPU, Override, Placement
from service.engine.planner.pricing.blocks import blocks_of
from service.engine.planner.pricing.fit import Fitted, Placed
from service.engine.planner.search.placement import best_placement
from service.engine.units import MIB

WITHIN = 0.01
_SOMETHING_IN_RAM = (Override("exps", CPU),)


class Judged(NamedTuple):
    """One problem: how far above the best known the placement's seconds are, how far at most; why; and CPU ms.

    Infinite: refused although something fits. Not a number: refused, and nothing is known to fit.
    """

    name: str
    gap: float
    most: float
    cause: str
    ms: float

    @property
    def refused(self) -> bool:
        """Return whether nothing was found and nothing is known to fit."""
        return math.isnan(self.gap)


class Found(NamedTuple):
    """The planner's answer to a problem: its placement, seconds, CPU ms; and the sums with their tangent there."""

    fitted: Fitted | None
    seconds: float
    ms: float
    linear: Linear


def found(asked: Asked) -> Found:
    """Return the planner's answer to a problem."""
    problem, flags = asked.problem, asked.flags
    best_placement(problem, flags)
    started = time.process_time()
    placed = best_placement(problem, flags)
    ms = (time.process_time() - started) * 1000
    fitted = placed.fitted if isinstance(placed, Placed) else None
    at = fitted.placement if fitted else None
    if at is None or not _in_ram(asked, at):
        at = _everything_in_ram(asked)
    linear = Linear(problem, replace(flags, overrides=_SOMETHING_IN_RAM), at)
    return Found(fitted, linear.priced(fitted) if fitted else math.inf, ms, linear)


def _in_ram(asked: Asked, placement: Placement) -> bool:
    blocks = blocks_of(asked.problem.model, asked.problem.engine)
    host = placement.n_devices
    return any(placement.tensors[piece.names[0]] == host for block in blocks for piece in block.pieces)


def _everything_in_ram(asked: Asked) -> Placement:
    """All on the first card, all pieces in RAM: there the CPU's time has a derivative."""
    problem = asked.problem
    n_cards, blocks = len(problem.devices), blocks_of(problem.model, problem.engine)
    starts = (0, *[problem.model.n_layer + 1] * n_cards)
    flags = written(problem, asked.flags, starts, [(n_cards,) * len(block.pieces) for block in blocks])
    assert flags is not None
    return problem.run(flags).placement


def judged(seed: int) -> Judged:
    """Return how far the placement of a published model is from the bound, and from the bound's own placement."""
    asked = published_problem(seed)
    ours = found(asked)
    if ours.fitted is None:
        return Judged(asked.name, math.nan, math.nan, "", ours.ms)
    best = bounded(ours.linear, ours.seconds, ours.linear.read(ours.fitted.placement)[0])
    fitted = best.fitted if best.fitted is not None and best.seconds < ours.seconds else ours.fitted
    gap, most = max(ours.seconds / best.seconds - 1, 0.0), ours.seconds / best.least - 1
    return Judged(asked.name, gap, most, _cause(ours, fitted, gap, most), ours.ms)


def _cause(ours: Found, best: Fitted, gap: float, most: float) -> str:
    """Return how the better placement differs."""
    if ours.fitted is None:
        return "refused, but something fits"
    if gap <= WITHIN:
        return "no better placement is known, the bound is not tight" if most > WITHIN else ""
    linear = ours.linear
    (our_starts, our_wheres), (starts, wheres) = (linear.read(f.placement) for f in (ours.fitted, best))
    our_largest, largest = linear.largest_in_ram(our_wheres), linear.largest_in_ram(wheres)
    if largest < our_largest:
        kept = f"none above {largest // MIB}" if largest else "none"
        return (
            f"a piece of {our_largest // MIB} MiB in RAM, whose copy takes room on the first card; the best has {kept}"
        )
    if our_starts != starts:
        return f"other runs: {our_starts}, best {starts}"
    return "other pieces on the same runs"


def report(rows: Sequence[Judged]) -> list[str]:
    """Return the lines of the output."""
    placed = [row for row in rows if not row.refused]
    lines = [f"published models, bound by HiGHS: {len(rows)} problems, {len(rows) - len(placed)} that fit nowhere"]
    for name, gaps in (
        ("to the best placement known", [row.gap for row in placed]),
        ("to the bound", [row.most for row in placed]),
    ):
        within = sum(gap <= WITHIN for gap in gaps) / max(len(gaps), 1)
        tenths = [_quantile(gaps, q) for q in (0.5, 0.8, 0.9, 0.95, 0.99, 1.0)]
        shown = ", ".join(
            f"{q} {gap:.2%}" for q, gap in zip(("median", "p80", "p90", "p95", "p99", "max"), tenths, strict=True)
        )
        lines.append(f"  gap {name}: {within:.0%} within {WITHIN:.0%}; {shown}")
    times = [row.ms for row in placed]
    lines.append(f"  one placement: median {_quantile(times, 0.5):.0f} ms, p95 {_quantile(times, 0.95):.0f} ms")
    for row in placed:
        if row.most > WITHIN:
            lines.append(f"  {row.name}: {row.gap:.2%}, at most {row.most:.2%}: {row.cause}")
    return lines


def _quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(math.ceil(share * len(ordered)), len(ordered)) - 1] if ordered else math.nan


def _quiet() -> None:
    """Silence HiGHS, which writes to the process's standard output, past Python."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    print(stamp(), flush=True)
    with ProcessPoolExecutor(options.jobs, initializer=_quiet) as pool:
        rows = list(pool.map(judged, range(options.seed, options.seed + options.problems)))
    print("\n".join(report(rows)), flush=True)


if __name__ == "__main__":
    main()
