"""What a prediction of memory costs: with a new graph, with a kept one for a new placement, and its parts without one.

    python -m bench.replay [--rounds 15] [--every 1]

Milliseconds of CPU time, medians: four cards, experts in RAM but for some layers, other ones in every round. Then the
bound of the compute buffer against what engines printed: how many it is above of (none, or the exit code is 1), and
what share of the buffer it is.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from random import Random

from msgspec.structs import replace

from bench.stamp import stamp
from service.engine.config import ENGINES, Engine, Flags, Override
from service.engine.memory.least import least_memory
from service.engine.model import Model
from service.engine.run.placement import place
from service.engine.units import MIB
from tests.bare_runs import memory_on, run_on
from tests.memory_lab import LabRow, architecture_rows, lab_rows, rig_rows
from tests.models import build

MODELS = (("Qwen3-235B-A22B", "q4_K_M"), ("DeepSeek-R1-0528", "q4_K_M"), ("Llama-3.3-70B", "q4_K_M"))
FLAGS = Flags(n_ctx=32768, n_ubatch=2048)
CARDS = [24 << 30] * 4
Share = tuple[Engine, str, float, float]


def milliseconds(step: Callable[[int], object], rounds: int) -> float:
    """Return the median CPU time of `step(0)`, `step(1)` …"""
    taken = []
    for i in range(rounds):
        start = time.process_time()
        step(i)
        taken.append(time.process_time() - start)
    return statistics.median(taken) * 1e3


def some_in_ram(model: Model, seed: int) -> tuple[Override, ...]:
    """Return rules that put the feed-forward of about four in five layers, chosen by `seed`, into RAM."""
    random = Random(seed)
    away = "|".join(str(i) for i in range(model.n_layer) if random.random() < 0.8)
    return (Override(rf"blk\.({away})\.ffn_(up|down|gate){'_exps' if model.moe_layers else ''}\.", "CPU"),)


def show_model(engine: Engine, name: str, mix: str, rounds: int) -> None:
    """Print one line: new graph, kept graph with placements not met before, the same again, placing, the bound."""
    model = build(name, mix)
    memory_on(engine, model, FLAGS, CARDS)  # what is worked out once a model

    def new_graph(i: int) -> None:
        memory_on(
            engine, model, replace(FLAGS, n_ctx=FLAGS.n_ctx + 256 + 256 * i, overrides=some_in_ram(model, 0)), CARDS
        )

    def kept_graph(i: int) -> None:
        memory_on(engine, model, replace(FLAGS, overrides=some_in_ram(model, i)), CARDS)

    runs = [run_on(engine, model, replace(FLAGS, overrides=some_in_ram(model, i)), CARDS) for i in range(rounds)]
    figures = [
        milliseconds(new_graph, rounds),
        milliseconds(kept_graph, rounds),
        milliseconds(kept_graph, rounds),
        milliseconds(lambda i: place(engine, model, replace(FLAGS, overrides=some_in_ram(model, i)), CARDS), rounds),
        milliseconds(lambda i: least_memory(runs[i]), rounds),
    ]
    print(f"  {engine:<14}{name:<20}{model.n_layer:>7}" + "".join(f"{figure:>12.1f}" for figure in figures), flush=True)


def shares(row: LabRow) -> list[Share]:
    """The bound of each device's compute buffer and the buffer, in bytes, as the engine printed it."""
    if not row.flags.n_gpu_layers:
        return []
    printed = [row.measured.get(f"CUDA{i}", {}).get("compute") for i in range(len(row.free_mib))]
    found: list[Share] = []
    for device, (least, mib) in enumerate(
        zip(row.least().devices, [*printed, row.measured["CPU"].get("compute")], strict=True)
    ):
        kind = "CPU" if device == len(printed) else "GPU"
        found.append((row.engine, kind, least.compute / MIB, mib or 0.0))
    return found


def show_bound(every: int) -> bool:
    """Print how tight the bound is; return whether it is above no buffer, a MiB of rounding aside."""
    rows = [*rig_rows(), *(row for e in ENGINES for kept in (lab_rows(e), architecture_rows(e)) for row in kept)]
    with ProcessPoolExecutor() as pool:
        found = [share for row in pool.map(shares, rows[::every], chunksize=8) for share in row]
    above = sum(bound >= printed + 1 for _, _, bound, printed in found)
    print(
        f"\nbound of the compute buffer: {len(found)} devices of {len(rows[::every])} runs, above the buffer on {above}"
    )
    print(f"  {'share of the buffer':<34}{'devices':>8}{'p25':>8}{'median':>8}{'p75':>8}")
    for engine in ENGINES:
        for kind in ("GPU", "CPU"):
            part = sorted(b / p for e, k, b, p in found if (e, k) == (engine, kind) and p)
            quartiles = statistics.quantiles(part, n=4)
            print(f"  {engine:<14}{kind:<20}{len(part):>8}" + "".join(f"{q:>8.2f}" for q in quartiles))
    return above == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--every", type=int, default=1, help="only every Nth run for the bound")
    options = parser.parse_args()
    print(stamp())
    heads = ("new graph", "kept graph", "met before", "place", "least")
    print(f"ms of CPU  {'engine':<5}{'model':>10}{'':<13}{'layers':>6}" + "".join(f"{head:>12}" for head in heads))
    for engine in ENGINES:
        for name, mix in MODELS:
            show_model(engine, name, mix, options.rounds)
    return 0 if show_bound(options.every) else 1


if __name__ == "__main__":
    sys.exit(main())
