"""What one of each costs the service, in CPU and on disk: `python -m bench.costs [--postgres]`.

The service runs as users run it, its workers apart. CPU is what the processes took (user and system), of which there is
as much on another day with other work alongside; time is not told. docs/scaling.md multiplies these.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
from nacl.signing import SigningKey

from bench.stage import HARDWARE, Stage, staged
from bench.stamp import stamp
from service.flows.accounts import create_token
from service.flows.context import Context, utc_now
from service.settings import as_environment
from service.store.advice import advices
from service.store.operations import health
from tests.demo import R1
from tests.flows.measuring.asking import advised, measured_like, probe_of
from tests.hosts import Signer, a_host, bearer

READS, ADVICES, RUNS, PROGRESS = 200, 8, 20, 10
_addresses = itertools.count()


class Cost(NamedTuple):
    """CPU milliseconds of each part, and bytes in the database, for one of something."""

    what: str
    ms: dict[str, float]
    n_bytes: float

    def text(self) -> str:
        """Return the line as it is printed."""
        parts = "".join(f"{self.ms.get(name, 0):>10.2f}" for name in PARTS)
        return f"{self.what:<44}{parts}{self.n_bytes / 1000:>10.1f}"


PARTS = ("API", "worker", "Valkey", "database")


class Meter:
    """Measures what each action costs."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.processes = {"API": stage.processes["service"], "Valkey": stage.processes["valkey"]}
        for child in psutil.Process().children():
            if child.name() == "postgres":
                self.processes["database"] = child

    def of(self, what: str, n: int, do: Callable[[int], object]) -> Cost:
        """Do something `n` times, and return the cost of doing it once."""
        do(n)  # first-time costs do not count
        size, before = self._n_bytes(), self._seconds()
        for i in range(n):
            do(i)
        spent = {name: 1000 * (after - before[name]) / n for name, after in self._seconds().items()}
        return Cost(what, spent, (self._n_bytes() - size) / n)

    def _seconds(self) -> dict[str, float]:
        return {name: _cpu(process) for name, process in self.processes.items()}

    def _n_bytes(self) -> int:
        engine = self._stage.context.engine
        if engine.dialect.name == "sqlite":
            with engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)")
        return health.n_bytes(engine)


def _cpu(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and all its children, past ones too."""
    times = [process.cpu_times(), *(child.cpu_times() for child in process.children(recursive=True))]
    seconds: float = sum(t.user + t.system + t.children_user + t.children_system for t in times)
    return seconds


def measured(stage: Stage, client: httpx.Client) -> Iterator[Cost]:
    """Yield what each thing costs, where nothing waits."""
    for waiting in stage.waiting:
        advices.remove(stage.context.engine, waiting)
    meter, advice = Meter(stage), f"/v1/advice/{stage.advice}"
    asked = {"repo": R1, "hardware": HARDWARE}
    unchanged = {"If-None-Match": _ok(client, "GET", advice).headers["etag"]}
    reads: dict[str, Callable[[int], object]] = {
        "an advice asked for again": lambda _: _ok(client, "POST", "/v1/advice", json=asked),
        "an advice read, JSON": lambda _: _ok(client, "GET", advice),
        "an advice read, text": lambda _: _ok(client, "GET", advice, headers={"Accept": "text/plain"}),
        "an advice not changed (304)": lambda _: _ok(client, "GET", advice, headers=unchanged),
        "a page: an advice": lambda _: _ok(client, "GET", f"/advice/{stage.advice}"),
        "a page: the start": lambda _: _ok(client, "GET", "/"),
        "a page: the leaderboard": lambda _: _ok(client, "GET", "/leaderboard"),
        "the leaderboard, JSON": lambda _: _ok(client, "GET", "/v1/leaderboard"),
        "/ready": lambda _: client.get("/ready"),
    }
    for what, do in reads.items():
        yield meter.of(what, READS, do)
    yield from _runs(stage.context, meter, client)
    yield from _computing(stage, meter, client)


RIGS = {
    "1 card": "RTX 3090, Ryzen 9 7950X, {}GB DDR5-5600",
    "4 cards": "2x5090 + 2x4090, Xeon 8480+, {}GB DDR5-4800 x8",
}


def _computing(stage: Stage, meter: Meter, client: httpx.Client) -> Iterator[Cost]:
    """A large repo whose headers are known, other hardware each time."""
    rams = itertools.count(1200, 8)

    def ask(rig: str) -> None:
        asked = {"repo": R1, "hardware": rig.format(next(rams))}
        _until_ready(client, _ok(client, "POST", "/v1/advice", json=asked).json()["id"])

    worker = subprocess.Popen(
        [sys.executable, "-m", "workers.run"], env=os.environ | as_environment(stage.context.settings)
    )
    try:
        meter.processes["worker"] = psutil.Process(worker.pid)
        for name, rig in RIGS.items():
            yield meter.of(f"an advice computed, 7 variants, {name}", ADVICES, lambda _, rig=rig: ask(rig))  # type: ignore[misc]
        print("memory, MiB:", ", ".join(f"{name} {_mib(process):.0f}" for name, process in meter.processes.items()))
    finally:
        worker.terminate()
        worker.wait(60)


def _mib(process: psutil.Process) -> float:
    """Return the memory of a process and its children, with their shares of shared pages."""
    n_bytes: int = sum(one.memory_full_info().pss for one in (process, *process.children(recursive=True)))
    return n_bytes / (1 << 20)


def _until_ready(client: httpx.Client, advice: str) -> None:
    while _ok(client, "GET", f"/v1/advice/{advice}?wait=30").json()["state"] != "ready":
        pass


def _runs(context: Context, meter: Meter, client: httpx.Client) -> Iterator[Cost]:
    key, engine = SigningKey.generate(), context.engine
    owner = bearer(create_token(engine, "alice", ["validate", "host"], utc_now()).token)
    signer = Signer(client, a_host(context, "alice", key=key, probe=probe_of(context)).id, key)
    assert signer.open_session().status_code == 201
    advice = advised(context)
    config = advice.configs[0].id
    rows = measured_like(advice, config)

    def run(_: int) -> None:
        """Do what an agent does: get a lease, report progress three times per lease, send a report."""
        _ok(client, "POST", f"/v1/advice/{advice.id}/validations", json={"configs": [config]}, headers=owner)
        leased = signer.call("/v1/agent/leases", {"wait": 0}).json()
        path, fence = f"/v1/agent/runs/{leased['run']}", leased["fence"]
        for _ in range(PROGRESS):
            said = {"fence": fence, "step": "measuring", "rows": rows[:1]}
            assert signer.call(path + "/progress", said).is_success
        assert signer.call(path + "/report", {"fence": fence, "rows": rows}).is_success

    yield meter.of("a poll of an agent, nothing there", READS, lambda _: signer.call("/v1/agent/leases", {"wait": 0}))
    yield meter.of(f"a run: asked, leased, {PROGRESS} times renewed, kept", RUNS, run)


def _ok(client: httpx.Client, method: str, path: str, **words: Any) -> httpx.Response:
    reply = client.request(method, path, **words)
    assert reply.status_code < 400, reply.text
    return reply


def _from_elsewhere(request: httpx.Request) -> None:
    """Give each request an address of its own, since limits are on."""
    n = next(_addresses)
    request.headers["X-Forwarded-For"] = f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", action="store_true", help="PostgreSQL instead of SQLite")
    on_postgres = parser.parse_args().postgres
    print(stamp())
    print(f"CPU milliseconds and KB of one, {'PostgreSQL' if on_postgres else 'SQLite, within the API'}")
    print(f"{'':<44}{''.join(f'{name:>10}' for name in PARTS)}{'KB':>10}")
    with tempfile.TemporaryDirectory() as folder, staged(Path(folder), 0, on_postgres, 0) as stage:
        url, hooks = f"http://{stage.host}:{stage.port}", {"request": [_from_elsewhere]}
        with httpx.Client(base_url=url, trust_env=False, timeout=120, event_hooks=hooks) as client:
            for cost in measured(stage, client):
                print(cost.text(), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
