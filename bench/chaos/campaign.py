"""One campaign: a stack, clients, faults, and what is true at the end."""

from __future__ import annotations

import math
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
from sqlalchemy import Engine, func, select

from bench.chaos import truth
from bench.chaos.clients import N_NEW, Asker, Client, Measurer, Operator, Prober, Submitter, new_repo
from bench.chaos.faults import FaultInjector, Injected, PlannedFault, schedule
from bench.chaos.ledger import Ledger
from bench.chaos.parts import HEARTBEAT_SECONDS, LEASE_SECONDS, SWEEP_SECONDS, Stack, running
from service.engine.errors import AdvisorError
from service.store.engines import make_engine
from service.store.tables import run
from tests.end_to_end.stack import FILE, REPO, start_machines
from tests.engine_replay import install
from tests.local_hub import Fault, LocalHub, Repo, WholeFile
from tests.tiny_model import write_tiny_model

QUIET_SECONDS = 180.0  # for everything to come to its end, after the last fault
_ROW_SECONDS, _SPREAD = 0.15, 0.01  # no two runs measure the same
_FAULTS_OF_HUB = (
    Fault("status", "api", status=429, headers={"Retry-After": "1"}), Fault("status", "api", status=500),
    Fault("status", "resolve", status=503), Fault("status", "cdn", status=500),
    Fault("cut", "cdn"), Fault("cut", "api"), Fault("delay", "cdn", seconds=3.0),
    Fault("delay", "api", seconds=2.0),
)  # fmt: skip
_TELLS = {"worker": "advice", "agent": "run", "engine": "run"}  # by what one sees that it works again; else: ready
_GAPS = {
    "read": "a finished advice was read", "ready": "all parts answered", "write": "an advice or a result was accepted",
    "advice": "an advice was ready", "run": "a run was measured",
}  # fmt: skip


class Campaign(msgspec.Struct, kw_only=True):
    """What came of it; seconds."""

    seed: int
    together: bool
    seconds: float
    injected: list[Injected]
    missed: Counter[str]
    answers: Counter[str]
    rows: dict[str, Counter[str]]
    slowest: list[tuple[float, str]]
    recovery: dict[str, list[float]]
    gaps: dict[str, float]
    quiet: float
    wrong: list[str]


def campaign(folder: Path, n: int, seconds: float, seed: int, *, together: bool, **extra: str) -> Campaign:
    """Inject `n` faults in so many seconds and return what came of it. `extra`: settings of the service."""
    engines, models = folder / "bin", folder / "models"
    models.mkdir()
    install(engines, "llama-sweep-bench", "ok", pp_tps=4000.0, tg_tps=400.0, spread=_SPREAD, delay=_ROW_SECONDS)
    install(engines, "llama-bench", "ok", pp_tps=8000.0, tg_tps=800.0, spread=_SPREAD, delay=_ROW_SECONDS)
    data = write_tiny_model(models / FILE).read_bytes()
    faults = schedule(seed, n, seconds, together=together)
    with LocalHub(_repos(data)) as hub:
        stack = Stack(folder, hub, together=together, **extra)
        try:
            with running(stack):
                start_machines(stack, engines, models, 2)
                found = _Doing(stack, hub, engines, seed).inject(faults)
            found.wrong += truth.left_behind(stack)
        finally:
            stack.clean()
    return found


def _repos(data: bytes) -> dict[str, Repo]:
    def files(number: int) -> dict[str, WholeFile]:
        own = data + number.to_bytes(8, "little")  # its own content: nobody has read it under another name
        return {FILE: WholeFile(own, len(own))}

    new = {new_repo(i): Repo(partial(files, i + 1)) for i in range(N_NEW)}
    return {REPO: Repo(lambda: {FILE: WholeFile(data, len(data))}), **new}


class _Doing:
    """A campaign under way."""

    def __init__(self, stack: Stack, hub: LocalHub, engines: Path, seed: int) -> None:
        self.stack, self.hub, self.engines, self.seed = stack, hub, engines, seed
        self.ledger, self.over = Ledger(), threading.Event()
        self.engine: Engine = make_engine(stack.database)
        self.threads: list[threading.Thread] = []

    def inject(self, faults: Sequence[PlannedFault]) -> Campaign:
        """Return what came of a schedule."""
        injector = FaultInjector(self.stack, self.engines)
        with self._clients():
            began = time.monotonic()
            injector.inject(faults)
            ended = time.monotonic()
            self.hub.reset()
            time.sleep(5)  # so that what was injected last is seen to work again
        quiet = self._until_quiet()
        found = Campaign(
            seed=self.seed, together=len(self.stack.ports) == 1, seconds=ended - began, injected=injector.injected,
            missed=injector.missed, answers=self.ledger.answers, rows=truth.counted(self.engine),
            slowest=truth.slowest(self.engine), recovery=_recovery(self.ledger, injector.injected),
            gaps={what: self.ledger.longest_gap(what, began, ended) for what in _GAPS}, quiet=quiet,
            wrong=list(truth.wrong(self.stack, self.ledger, self.engine)),
        )  # fmt: skip
        self.engine.dispose()
        return found

    @contextmanager
    def _clients(self) -> Iterator[None]:
        advice = self.stack.advise()["id"]
        operator = self.stack.account("operator", "operator,submit")
        self._start(self._fail_the_hub, "hub")
        self._start(self._count_runs, "runs")
        for i in range(3):
            self._add(Asker, f"asker {i}", 0.3, 1.2)
        self._add(Submitter, "submitter", 0.3, 1.5)
        self._add(Operator, "operator", 0.5, 2.0, operator)
        self._add(Measurer, "measurer", 0.5, 1.0, self.stack.token, advice=advice)
        self._add(Prober, "ready", 0.3, 0.4, what="ready", path="/ready")
        self._add(Prober, "read", 0.3, 0.4, what="read", path=f"/v1/advice/{advice}")
        for i, port in enumerate(self.stack.ports):
            self._add(Prober, f"api{i}", 0.3, 0.4, url=f"http://127.0.0.1:{port}", what=f"api{i}", path="/health")
        try:
            yield
        finally:
            self.over.set()
            for thread in self.threads:
                thread.join()

    def _add(
        self, kind: type[Client], name: str, least: float, most: float, token: str = "", *, url: str = "",
        **attributes: str,
    ) -> None:  # fmt: skip
        client = kind(url or self.stack.url, self.ledger, f"{self.seed} {name}", self.over, token)
        for attribute, value in attributes.items():
            setattr(client, attribute, value)
        self._start(lambda: client.run(least, most), name)

    def _start(self, act: Callable[[], None], name: str) -> None:
        self.threads.append(threading.Thread(target=act, name=name))
        self.threads[-1].start()

    def _fail_the_hub(self) -> None:
        chance = random.Random(f"{self.seed} hub")
        while not self.over.wait(chance.uniform(2, 8)):
            if any(fault.times for fault in self.hub.state.faults):
                continue  # nobody has met the last one yet: they would pile up
            self.hub.fail(replace(chance.choice(_FAULTS_OF_HUB), times=chance.randint(1, 3)))

    def _count_runs(self) -> None:
        """Note each run that ends well."""
        known = -1
        while not self.over.wait(0.3):
            began = time.monotonic()
            with suppress(AdvisorError), self.engine.connect() as connection:
                found = connection.scalar(select(func.count()).where(run.c.state == "succeeded")) or 0
                if found > known >= 0:
                    self.ledger.well("run", began)
                known = found

    def _until_quiet(self) -> float:
        """Return the seconds until everything was final, QUIET_SECONDS where something never was."""
        began = time.monotonic()
        while time.monotonic() < began + QUIET_SECONDS:
            with suppress(AdvisorError):
                if not truth.unfinished(self.engine) and self.stack.answers():
                    break
            time.sleep(0.25)
        return time.monotonic() - began


def _recovery(ledger: Ledger, injected: Sequence[Injected]) -> dict[str, list[float]]:
    """Return seconds from each fault, or the end of a pause, until what the part does was seen to work, by part."""
    found: dict[str, list[float]] = {}
    for one in sorted(injected, key=lambda s: s.began):
        victim = one.fault.victim
        what = one.name if victim == "API" else _TELLS.get(victim, "ready")
        seconds = ledger.recovered(what, one.ended)
        if seconds is not None:
            found.setdefault(victim, []).append(seconds)
    return found


def lines(found: Campaign) -> Iterator[str]:
    """Yield a campaign as it is printed."""
    parts = "one `advisor serve` with two workers, its Valkey and SQLite" if found.together else (
        "PostgreSQL, Valkey, two APIs, two workers"
    )  # fmt: skip
    yield f"{parts}, two agents; seed {found.seed}"
    yield f"leases {LEASE_SECONDS} s, sweeps each {SWEEP_SECONDS} s, heartbeats each {HEARTBEAT_SECONDS} s"
    hits = Counter(f"{one.fault.victim}, {one.fault.how}" for one in found.injected)
    yield f"{hits.total()} faults in {found.seconds:,.0f} s, {found.missed.total()} that found no target"
    yield from (f"  {n:4} {what}" for what, n in sorted(hits.items()))
    yield f"answers: {_said(found.answers)}"
    yield from (f"{kind}: {_said(counts)}" for kind, counts in found.rows.items())
    yield "recovery in seconds, from the fault or the end of a pause"
    yield f"  {'':<22}{'n':>5}{'median':>8}{'p95':>8}{'most':>8}"
    for victim, seconds in sorted(found.recovery.items()):
        high = sorted(seconds)[math.ceil(len(seconds) * 0.95) - 1]
        yield f"  {victim:<22}{len(seconds):>5}{statistics.median(seconds):>8.1f}{high:>8.1f}{max(seconds):>8.1f}"
    yield "the longest time in which no"
    yield from (f"  {seconds:6.1f} s: {_GAPS[what]}" for what, seconds in found.gaps.items())
    yield "the slowest advices"
    yield from (f"  {seconds:6.1f} s: {what}" for seconds, what in found.slowest)
    yield f"everything was final {found.quiet:.1f} s after the last client had gone"
    yield from found.wrong
    yield "nothing lost, nothing doubled, nothing stuck" if not found.wrong else f"{len(found.wrong)} wrong"


def _said(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
