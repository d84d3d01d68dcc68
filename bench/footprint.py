"""Measures each process's own memory (USS) while the service is under load for a while, and whether it grows.

Shared pages are left out: a process's share of them (PSS) grows when other processes end.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Sequence

from bench.load import Spec, generated
from bench.stage import Stage

RATE = 30  # requests a second, of all kinds in turn
SAMPLE_SECONDS = 30.0
WARM_UP = 1 / 3  # of the time, in which caches fill and the allocator takes what it needs
MOST_GROWTH = 0.02  # share of the memory by which it may grow over the whole time and still count as flat


def watched(stage: Stage, minutes: float) -> list[str]:
    """Ask everything in turn for `minutes`; print each process's memory and its slope, and return what grows.

    Growth counts only if the lower end of the 95 % interval of the slope after the warm-up is above zero, and the
    growth over the whole time is at least MOST_GROWTH of the memory.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in stage.processes if name != "hello"}
    over = threading.Event()
    asker = threading.Thread(target=_ask, args=(stage, 60 * minutes))
    asker.start()
    began = time.monotonic()
    while asker.is_alive() and not over.wait(SAMPLE_SECONDS):
        at = time.monotonic() - began
        for name, samples in found.items():
            samples.append((at / 60, stage.processes[name].memory_full_info().uss / (1 << 20)))
        print(f"{at / 60:6.1f} min  " + "  ".join(f"{name} {samples[-1][1]:.1f}" for name, samples in found.items()))
    asker.join()
    return [line for name, samples in found.items() if (line := _grows(name, samples, minutes))]


def _ask(stage: Stage, seconds: float) -> None:
    asks = list(stage.asks().values())
    found = generated(Spec(host=stage.host, port=stage.port, asks=asks, seconds=seconds, rate=RATE))
    bad = {status: n for status, n in found.statuses.items() if status != 200}
    figures = f"p99 {found.quantile(0.99):.1f} ms, {found.failed} without an answer, not 200: {bad}"
    print(f"{len(found.milliseconds)} requests, {found.rate:.1f} a second, median {found.quantile(0.5):.1f}, {figures}")


def _grows(name: str, samples: Sequence[tuple[float, float]], minutes: float) -> str | None:
    kept = [one for one in samples if one[0] >= WARM_UP * minutes]
    slope, error = slope_of(kept)
    middle = statistics.fmean(mib for _, mib in kept)
    growth = slope * minutes
    flat = slope - error <= 0 or growth < MOST_GROWTH * middle
    line = f"{slope:+.3f} ± {error:.3f} MiB a minute over the last {kept[-1][0] - kept[0][0]:.0f} minutes"
    print(f"{name}: {middle:.1f} MiB, {line}: {'flat' if flat else 'it grows'}")
    return None if flat else f"{name} grows by {growth:.1f} MiB in {minutes:.0f} minutes"


def slope_of(samples: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the slope of the least-squares line, and half its 95 % interval (Student's t)."""
    xs, ys = [x for x, _ in samples], [y for _, y in samples]
    from scipy.special import stdtrit  # takes a second to import

    slope, offset = statistics.linear_regression(xs, ys)
    spread = math.sqrt(sum((y - offset - slope * x) ** 2 for x, y in samples) / (len(samples) - 2))
    width = math.sqrt(sum((x - statistics.fmean(xs)) ** 2 for x in xs))
    return slope, float(stdtrit(len(samples) - 2, 0.975)) * spread / width
