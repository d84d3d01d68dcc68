"""Several requests at once, held to published tables: `python -m bench.at_once`.

Each line of tests/data/many_at_once.jsonl is one table on one card. A micro-batch of a prompt is an evaluation of as
many tokens, but for attention: they share a cache. For those tables it is that of a prompt.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.stamp import stamp
from service.engine.builds import BuildAsked, resolve_build
from service.engine.catalogue import engine_devices, resolve
from service.engine.config import Flags
from service.engine.hardware_text import parse_hardware
from service.engine.run.resolved import ResolvedRun, resolve_run
from service.engine.speed.machine import machine_of
from service.engine.speed.predict import TOO_FAST, evaluation
from service.engine.speed.prompt import batch_seconds
from service.engine.speed.sums import work_of
from tests.models import build

TABLES = Path(__file__).parent.parent / "tests" / "data" / "many_at_once.jsonl"


def run_of(table: dict[str, Any]) -> ResolvedRun:
    """Return the run of a table. CPU and RAM are unknown and do not matter."""
    rig = resolve(parse_hardware(f"{table['gpu']}, Ryzen 9 5950X, 64GB DDR4-3200"))
    model = build(table["model"], table["mix"])
    devices = engine_devices(rig, "llama.cpp", (0,))
    flags = Flags(n_ctx=65536, n_batch=2048, n_ubatch=512, flash_attn="on")
    return resolve_run(
        "llama.cpp",
        model,
        flags,
        rig,
        devices,
        resolve_build("llama.cpp", BuildAsked(date=table["date"])),
    )


def ratios(table: dict[str, Any]) -> Iterator[tuple[int, float]]:
    """Yield each number of requests in a table, with predicted over measured tokens a second."""
    run, depth = run_of(table), table["depth"]
    p, work = run.rig.calibration.coefficients, work_of(run)
    machine = machine_of(run.rig, run.devices, run.flags, p)
    for n, measured in ((int(n), tps) for n, tps in table["tps"].items()):
        parts = evaluation(work, machine, p, n, depth)
        if table["kind"] == "micro-batch" and n > 1:
            parts["attention"] = batch_seconds(work, machine, p, n, depth)["attention"]
        yield n, n / sum(parts.values()) / (TOO_FAST if n > 1 else 1) / measured


def tables() -> list[dict[str, Any]]:
    """Return the published tables."""
    return [json.loads(line) for line in TABLES.read_text().splitlines()]


def main() -> None:
    """Print a line a table, and the errors of all."""
    print(stamp())
    errors = []
    for table in tables():
        found = list(ratios(table))
        errors += [abs(math.log(ratio)) for n, ratio in found if n > 1]
        row = ", ".join(f"{n}: {ratio:.2f}" for n, ratio in found)
        print(f"{table['model']} {table['mix']}, {table['gpu']}, depth {table['depth']:,}: {row}")
    errors.sort()
    middle, most = statistics.median(errors), errors[int(0.8 * len(errors))]
    print(
        f"{len(errors)} figures: median error {math.exp(middle) - 1:.0%}, 80 % within a factor of {math.exp(most):.2f}"
    )


if __name__ == "__main__":
    main()
