"""Kills agents, workers, the API and Valkey in the middle of runs, at random: nothing is lost, nothing counted twice.

    python -m bench.interruptions --interruptions 50 --seed 1

A service with its worker, Valkey and two machines, each a process; engines that behave as recorded ones do. What is hit
is killed as `kill -9` does. `advisor serve` starts its worker and Valkey again by itself; the API and the agents are
started again here, as a service manager would. Recovery is the time from a kill to the next run that ends well.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil  # type: ignore[import-untyped]
from sqlalchemy import Engine, func, select

from bench.stamp import stamp
from service.settings import Settings
from service.store.engines import make_engine
from service.store.tables import result, run
from tests.end_to_end.stack import FILE, Stack, running, start_machines, tiny_hub
from tests.engine_replay import install

VICTIMS = {"agent": 4, "API": 2, "worker": 2, "Valkey": 2}  # how often, of ten
LEASE_SECONDS = 4
_OPEN = 2  # validations at a time: both machines have something to do
_ROW_SECONDS = 0.15
_MIDDLE = 1.5  # seconds into a run at most
_PATIENCE = 120
_FINAL = ("succeeded", "failed", "cancelled")


class Campaign(msgspec.Struct):
    """What came of it: runs by state, recovery in seconds by who was killed, and what is wrong."""

    kills: Counter[str]
    runs: Counter[str]
    attempts: Counter[int]
    recovery: dict[str, list[float]]
    wrong: list[str]
    seconds: float


def campaign(folder: Path, n: int, seed: int, **environment: str) -> Campaign:
    """Interrupt `n` times and return what came of it. `environment`: settings of the service, such as DATABASE_URL."""
    engines, began = folder / "bin", time.monotonic()
    install(engines, "llama-sweep-bench", "ok", pp_tps=4000.0, tg_tps=400.0, delay=_ROW_SECONDS)
    install(engines, "llama-bench", "ok", pp_tps=8000.0, tg_tps=800.0, delay=_ROW_SECONDS)
    settings = {
        "ADVISOR_LEASE_SECONDS": str(LEASE_SECONDS), "ADVISOR_REQUESTS_PER_MINUTE": "100000", **environment
    }  # fmt: skip
    (folder / "models").mkdir()
    with tiny_hub(folder / "models" / FILE) as hub, running(folder, hub, **settings) as stack:
        start_machines(stack, engines, folder / "models", 2)
        doing = _Doing(stack, random.Random(seed))
        with closing(doing):
            while doing.kills.total() < n:
                doing.interrupt()
            doing.finish()
            wrong = list(doing.wrong())
            runs, attempts = doing.counted()
    wrong += [f"left running: {words}" for words in _left(engines)]
    return Campaign(
        kills=doing.kills, runs=runs, attempts=attempts, recovery=doing.recovery, wrong=wrong,
        seconds=time.monotonic() - began,
    )  # fmt: skip


class _Doing:
    def __init__(self, stack: Stack, chance: random.Random) -> None:
        self.stack, self.chance = stack, chance
        self.kills: Counter[str] = Counter()
        self.recovery: dict[str, list[float]] = {name: [] for name in VICTIMS}
        self.validations: list[str] = []
        self.advice = stack.advise()["id"]
        self.engine: Engine = make_engine(stack.environment.get("DATABASE_URL") or _sqlite(stack))
        self.pending: list[tuple[str, float, int]] = []
        self.begun = 0

    def close(self) -> None:
        """Close the database's connections."""
        self.engine.dispose()

    def interrupt(self) -> None:
        """Wait until a run was begun since the last kill, then kill one of the four, a moment later."""
        self._until(self._is_busy)
        time.sleep(self.chance.uniform(0, _MIDDLE))
        victim = self.chance.choices(list(VICTIMS), weights=list(VICTIMS.values()))[0]
        ended = self._n_succeeded()
        if not self._kill(victim):
            return
        self.begun = self._n_begun()
        self.kills[victim] += 1
        self.pending.append((victim, time.monotonic(), ended))

    def finish(self) -> None:
        """Let everything that was asked for come to its end."""
        self._until(self._is_done)

    def wrong(self) -> Iterator[str]:
        """Yield what was lost or counted twice."""
        with self.engine.connect() as connection:
            rows = connection.execute(select(run)).all()
            measured = connection.execute(select(result.c.id).where(result.c.origin == "agent"))
            kept = set(measured.scalars())  # beside them stand published results, there from the start
        for row in rows:
            if row.state not in _FINAL:
                yield f"run {row.id} is {row.state}"
            if row.state == "succeeded" and row.result_id not in kept:
                yield f"run {row.id} has no result"
            if row.state == "failed" and row.attempt < 3:
                yield f"run {row.id} failed after {row.attempt} attempts: {row.failure}"
        results = [row.result_id for row in rows if row.result_id]
        if len(results) != len(set(results)) or len(results) != len(kept):
            yield f"{len(kept)} results of {len(results)} runs ({len(set(results))} different)"
        depths = {(row.result_id): [(r["n_kv"], r.get("n_prompt", 0)) for r in _plain(row.rows)] for row in rows}
        yield from (f"result {key}: rows {found}" for key, found in depths.items() if len(set(found)) != len(found))
        found = {v["id"] for v in (self._validation(one) for one in self.validations) if v["state"] == "done"}
        yield from (f"validation {one} is not done" for one in self.validations if one not in found)

    def counted(self) -> tuple[Counter[str], Counter[int]]:
        """Return runs by state, and by how often they were begun."""
        with self.engine.connect() as connection:
            rows = connection.execute(select(run.c.state, run.c.fence)).all()
        return Counter(row.state for row in rows), Counter(row.fence for row in rows)

    def _until(self, condition: Any) -> None:
        """Wait, keep the machines busy, and start what was killed again."""
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.kills}: {self.stack.service.log[-2000:]}")
            time.sleep(0.05)

    def _is_busy(self) -> bool:
        self._note_recovery()
        if sum(state not in _FINAL for state in self._states()) < _OPEN:
            self._ask()
        return self._n_begun() > self.begun and any(state in ("leased", "running") for state in self._states())

    def _is_done(self) -> bool:
        self._note_recovery()
        return all(state in _FINAL for state in self._states()) and self.stack.answers()

    def _ask(self) -> None:
        try:
            made = self.stack.call("POST", f"/v1/advice/{self.advice}/validations", {"minutes": 1})
        except (httpx.TransportError, AssertionError):
            return  # the API has just been killed, or is not up yet
        self.validations.append(made["id"])

    def _validation(self, one: str) -> dict[str, Any]:
        found: dict[str, Any] = self.stack.call("GET", f"/v1/validations/{one}")
        return found

    def _kill(self, victim: str) -> bool:
        if victim == "agent":
            machine = self.chance.choice(self.stack.machines)
            machine.program.kill()
            machine.start()
        elif victim == "API":
            self.stack.service.kill()
            self.stack.service.start()
        else:
            return self._kill_child("valkey" if victim == "Valkey" else "workers")
        return True

    def _kill_child(self, word: str) -> bool:
        """`advisor serve` starts these again itself. False where it is doing so already."""
        for process in self.stack.service.family():
            try:
                if any(word in part for part in process.cmdline()):
                    process.kill()
                    return True
            except psutil.Error:
                continue
        return False

    def _note_recovery(self) -> None:
        ended = self._n_succeeded()
        for victim, at, before in self.pending:
            if ended > before:
                self.recovery[victim].append(time.monotonic() - at)
        self.pending = [one for one in self.pending if ended <= one[2]]

    def _states(self) -> list[str]:
        with self.engine.connect() as connection:
            return list(connection.execute(select(run.c.state)).scalars())

    def _n_begun(self) -> int:
        """Leases so far: each has the next fence of its run."""
        with self.engine.connect() as connection:
            return int(connection.execute(select(func.coalesce(func.sum(run.c.fence), 0))).scalar_one())

    def _n_succeeded(self) -> int:
        return self._states().count("succeeded")


def _plain(rows: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = msgspec.to_builtins(rows)
    return found


def _sqlite(stack: Stack) -> str:
    return Settings(state_dir=Path(stack.environment["ADVISOR_STATE_DIR"])).database


def _left(engines: Path) -> list[str]:
    """Return command lines of engines that outlive their agents."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(engines) in word for word in words):
            found.append(" ".join(words)[:200])
    return found


def lines(found: Campaign) -> Iterator[str]:
    """Yield a campaign as it is printed."""
    yield f"{found.kills.total()} interruptions in {found.seconds:,.0f} s: {dict(found.kills)}"
    yield f"runs: {dict(found.runs)}; begun: {dict(sorted(found.attempts.items()))} times"
    for victim, seconds in found.recovery.items():
        if seconds:
            middle, most = statistics.median(seconds), max(seconds)
            yield f"  {victim:<8} the next run ended well after {middle:5.1f} s (median), {most:5.1f} s (most)"
    yield from found.wrong
    yield "nothing lost, nothing counted twice" if not found.wrong else f"{len(found.wrong)} wrong"


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interruptions", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(stamp())
    with tempfile.TemporaryDirectory(prefix="interruptions-") as folder:
        found = campaign(Path(folder), arguments.interruptions, arguments.seed)
    print(f"seed {arguments.seed}, leases of {LEASE_SECONDS} s")
    for line in lines(found):
        print(line)
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
