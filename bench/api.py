"""What the API bears on this machine, while others ask it: `python -m bench.api [--postgres] [--results N]`.

`advisor serve` runs as users run it, limits and access log on, with a Valkey, and a bare Litestar app behind the same
server settings. Each kind of request is asked as fast as it is answered (closed loop), then at a fixed rate (open loop,
bench/load.py), then again while listeners and agents hold connections open. `--minutes 30` is another run: everything
at once at a low rate, and what memory each process has meanwhile (bench/footprint.py). A target that is missed is said
so, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from bench import held
from bench.footprint import watched
from bench.held import Saw, holding
from bench.load import Ask, Found, Spec, generated
from bench.stage import Stage, staged
from bench.stamp import stamp
from service.queue.progress import publish
from service.store.advice import advices
from service.wire.advice.advice import AdviceEvent

LISTENERS, AGENTS = 500, 200
RATES = {"leaderboard": (50, 150.0)}  # requests a second, and milliseconds that the 99th percentile must stay under
USUAL = (200, 50.0)
PUBLISHED_A_SECOND = 2


class Line(NamedTuple):
    """One line of the table: what was asked and how, the outcome, and the service's CPU milliseconds per request."""

    name: str
    how: str
    found: Found
    cpu_ms: float

    def text(self) -> str:
        """Return the line as it is printed."""
        found = self.found
        bad = found.failed + sum(n for status, n in found.statuses.items() if status != 200)
        figures = (
            f"{found.rate:>9.0f}{found.quantile(0.5):>9.1f}{found.quantile(0.99):>9.1f}{found.milliseconds[-1]:>9.1f}"
        )
        size = found.n_bytes / max(len(found.milliseconds), 1) / 1000
        return f"{self.name:<22}{self.how:<10}{figures}{self.cpu_ms:>9.2f}{size:>9.1f}{bad:>9}"


HEAD = f"{'':<22}{'':<10}{'a second':>9}{'median':>9}{'p99':>9}{'max':>9}{'CPU':>9}{'KB':>9}{'not 200':>9}"


def asked(stage: Stage, name: str, ask: Ask, seconds: float, rate: float | None) -> Line:
    """Ask one thing for a while."""
    bare = name == "bare hello"
    process = stage.processes["hello" if bare else "service"]
    before = sum(process.cpu_times()[:2])
    port = stage.hello_port if bare else stage.port
    found = generated(Spec(host=stage.host, port=port, asks=[ask], seconds=seconds, rate=rate))
    spent = sum(process.cpu_times()[:2]) - before
    how = "at most" if rate is None else f"at {rate:.0f}"
    line = Line(name, how, found, 1000 * spent / max(len(found.milliseconds), 1))
    print(line.text(), flush=True)
    return line


@contextmanager
def held_open(stage: Stage, listeners: int, agents: int) -> Iterator[list[Saw]]:
    """Hold event streams and long polls open for the block while publishing progress; then the list has what they
    saw."""
    streams = [f"/v1/advice/{stage.waiting[i % len(stage.waiting)]}/events" for i in range(listeners)]
    spec = held.Spec(host=stage.host, port=stage.port, streams=streams, machines=stage.machines[:agents])
    saw: list[Saw] = []
    over = threading.Event()
    with holding(spec) as they:
        publisher = threading.Thread(target=_publish, args=(stage, over))
        publisher.start()
        try:
            yield saw
        finally:
            over.set()
            publisher.join()
        saw.append(they.release())


def _publish(stage: Stage, over: threading.Event) -> None:
    """Advance waiting advices now and then, as a worker does."""
    rng = random.Random(1)
    while not over.wait(rng.expovariate(PUBLISHED_A_SECOND)):
        advice, step = rng.choice(stage.waiting), f"at {time.time():.4f}"
        advices.note_progress(stage.context.engine, advice, step, stage.context.clock())
        publish(stage.context.redis, AdviceEvent(advice, "queued", step))


def run(stage: Stage, seconds: float) -> list[str]:
    """Print every line; return the missed targets."""
    kinds = {"bare hello": Ask("GET", "/"), **stage.asks()}
    print(HEAD)
    most = {name: asked(stage, name, ask, seconds / 3, None) for name, ask in kinds.items()}
    alone = {name: asked(stage, name, ask, seconds, _target(name)[0]) for name, ask in kinds.items()}
    resting = _memory(stage)
    with held_open(stage, LISTENERS, AGENTS) as saw:
        holding_now = _memory(stage)
        files = stage.processes["service"].num_fds()
        print(f"\n{LISTENERS} listeners and {AGENTS} agents hold connections open: {files} file descriptors")
        loaded = {name: asked(stage, name, ask, seconds, _target(name)[0]) for name, ask in kinds.items()}
    per_one = 1024 * (holding_now - resting) / (LISTENERS + AGENTS)
    print(f"{holding_now - resting:.0f} MiB more in the service, {per_one:.0f} KiB for each\n")
    print(f"{'share of the bare rate:':<32}" + ", ".join(_share(most, name) for name in kinds if name != "bare hello"))
    return [*_missed_alone(alone), *_missed_under_load(alone, loaded), *_missed_held(saw[0])]


def _target(name: str) -> tuple[int, float]:
    return RATES.get(name, USUAL)


def _memory(stage: Stage) -> float:
    return float(stage.processes["service"].memory_full_info().uss) / (1 << 20)


def _share(most: dict[str, Line], name: str) -> str:
    return f"{name} {100 * most[name].found.rate / most['bare hello'].found.rate:.0f} %"


def _missed_alone(alone: dict[str, Line]) -> Iterator[str]:
    for name, line in alone.items():
        rate, most = _target(name)
        statuses = set(line.found.statuses) - {200}
        if line.found.failed or statuses:
            yield f"{name}: {line.found.failed} without an answer, statuses {sorted(line.found.statuses)}"
        if line.found.rate < 0.95 * rate or line.found.quantile(0.99) >= most:
            p99 = line.found.quantile(0.99)
            yield f"{name}: {line.found.rate:.0f} a second, p99 {p99:.1f} ms; {rate} and {most:.0f} are the target"


def _missed_under_load(alone: dict[str, Line], loaded: dict[str, Line]) -> Iterator[str]:
    for name, line in loaded.items():
        before, now = alone[name].found.quantile(0.99), line.found.quantile(0.99)
        print(f"{name:<22} p99 {now / before:>6.2f} times that without listeners and agents")
        if name != "bare hello" and (now >= 2 * before or line.found.failed):
            yield f"{name}: p99 {now:.1f} ms alongside listeners and agents, {before:.1f} without; twice is the limit"


def _missed_held(saw: Saw) -> Iterator[str]:
    delays = sorted(saw.delays_ms) or [float("nan")]
    p99 = delays[min(int(len(delays) * 0.99), len(delays) - 1)]
    print(
        f"{len(saw.delays_ms)} events came, half within {delays[len(delays) // 2]:.1f} ms, 99 % within {p99:.1f} ms;",
        end=" ",
    )
    print(f"{saw.comments} comments; {saw.polls} polls ended and started again; {saw.ended} streams ended")
    if saw.ended or saw.failures or not saw.delays_ms:
        yield f"held connections: {saw.ended} streams ended, {saw.failures}"


def watch(stage: Stage, minutes: float) -> list[str]:
    """Print the memory used with a fifth of the listeners and agents; return what grows."""
    with held_open(stage, LISTENERS // 5, AGENTS // 5) as saw:
        grows = watched(stage, minutes)
    return [*grows, *_missed_held(saw[0])]


def main() -> int:
    """Print the table; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", action="store_true", help="the database is PostgreSQL")
    parser.add_argument("--results", type=int, default=0, help="on the board; 0: those that come with the service")
    parser.add_argument("--seconds", type=float, default=15, help="of each line")
    parser.add_argument("--minutes", type=float, help="watch memory for so long instead")
    args = parser.parse_args()
    print(stamp())
    with (
        tempfile.TemporaryDirectory(prefix="advisor-api-") as folder,
        staged(Path(folder), args.results, args.postgres, AGENTS) as stage,
    ):
        results = f"{args.results:,}" if args.results else "the published"
        load = psutil.getloadavg()[0]
        print(f"{stage.context.engine.dialect.name}, {results} results; load of the machine before it {load:.1f}")
        missed = run(stage, args.seconds) if args.minutes is None else watch(stage, args.minutes)
    print("\n".join(f"MISSED {one}" for one in missed) or "every target is reached")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
