"""What is done to whom, and when: drawn from a seed, the same schedule for the same seed."""

from __future__ import annotations

import math
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil
import psycopg
from redis import Redis
from redis.exceptions import RedisError

from bench.chaos.parts import Part, Stack

APART = {
    ("API", "kill"): 10, ("API", "pause"): 6,
    ("worker", "kill"): 6, ("worker", "kill its horse"): 6, ("worker", "kill with its horse"): 6,
    ("worker", "pause"): 3, ("worker", "pause its horse"): 3, ("worker", "pause with its horse"): 3,
    ("Valkey", "kill"): 6, ("Valkey", "kill, data lost"): 4, ("Valkey", "flush"): 4, ("Valkey", "pause"): 4,
    ("PostgreSQL", "end connections"): 10, ("PostgreSQL", "stop at once"): 4, ("PostgreSQL", "pause a backend"): 5,
    ("agent", "kill"): 8, ("agent", "pause"): 4, ("engine", "kill"): 6,
    ("line to the database", "cut"): 3, ("line to the database", "stall"): 2,
    ("line to Redis", "cut"): 3, ("line to Redis", "stall"): 2,
    ("line to the API", "cut"): 3, ("line to the API", "stall"): 2,
}  # fmt: skip
_NOT_TOGETHER = ("PostgreSQL", "line to the database", "line to Redis")
TOGETHER = {
    kind: weight for kind, weight in APART.items() if kind[0] not in _NOT_TOGETHER and kind[1] != "kill, data lost"
}
_RELAYS = {"line to the database": "database", "line to Redis": "Redis", "line to the API": "front"}
_SHORTEST, _LONGEST = 0.1, 10.0
_PATIENCE = 4.0  # for a victim that is being started, or has no work yet
_CLIENTS_OF_DATABASE = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> %s"


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is done: `at` seconds after the beginning, `seconds` long where it is a pause; `which` (0 to 1)
    chooses among several."""

    at: float
    victim: str
    how: str
    seconds: float
    which: float


class Injected(msgspec.Struct, frozen=True, kw_only=True):
    """A fault as it was injected. `began`, `ended`: when, by the monotonic clock; `name`: the part that was hit."""

    fault: PlannedFault
    name: str
    began: float
    ended: float


def schedule(seed: int, n: int, seconds: float, *, together: bool) -> list[PlannedFault]:
    """Return `n` faults within so many seconds, in order."""
    chance, kinds = random.Random(seed), TOGETHER if together else APART
    found = []
    for i in range(n):
        victim, how = chance.choices(list(kinds), weights=list(kinds.values()))[0]
        pause = math.exp(chance.uniform(math.log(_SHORTEST), math.log(_LONGEST)))
        at = (i + chance.random()) * seconds / n
        found.append(PlannedFault(at=at, victim=victim, how=how, seconds=pause, which=chance.random()))
    return found


class FaultInjector:
    """Injects the faults of a schedule into a stack. `missed`: those that found no target."""

    def __init__(self, stack: Stack, engines: Path) -> None:
        self.stack, self.engines = stack, engines
        self.injected: list[Injected] = []
        self.missed: Counter[str] = Counter()
        self._pauses: list[threading.Thread] = []

    def inject(self, faults: Sequence[PlannedFault]) -> None:
        """Inject all faults at their times, and return when every pause is over."""
        began = time.monotonic()
        for fault in faults:
            time.sleep(max(began + fault.at - time.monotonic(), 0))
            self._inject_or_miss(fault)
        for pause in self._pauses:
            pause.join()

    def _inject_or_miss(self, fault: PlannedFault) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            with suppress(psutil.Error, OSError, RedisError, psycopg.Error):
                if self._inject(fault):
                    return
            if time.monotonic() > deadline:
                self.missed[f"{fault.victim}, {fault.how}"] += 1
                return
            time.sleep(0.05)

    def _inject(self, fault: PlannedFault) -> bool:
        if fault.victim in _RELAYS:
            return self._line(fault)
        if fault.victim == "PostgreSQL":
            return self._database(fault)
        if fault.how == "flush":
            return self._flush(fault)
        several = self._victims(fault)
        if not several:
            return False
        hit = several[int(fault.which * len(several))]
        if fault.how.startswith("pause"):
            self._pause(fault, hit)
        else:
            self._kill(fault, hit)
        return True

    def _victims(self, fault: PlannedFault) -> list[Sequence[psutil.Process]]:
        """Return the processes a fault may hit, grouped as they are hit together."""
        if fault.victim == "engine":
            return [[one] for one in _processes_of(self.engines)]
        workers = self._heads(fault.victim)
        if "horse" not in fault.how:
            return [[one] for one in workers]
        families = [(one, one.children()) for one in workers]
        alone = fault.how.endswith("its horse") and "with" not in fault.how
        return [horses if alone else [one, *horses] for one, horses in families if horses]

    def _heads(self, kind: str) -> list[psutil.Process]:
        """Return the processes of a kind; `advisor serve` has workers and a Valkey of its own."""
        own = [part.process for part in self.stack.of(kind) if part.process is not None]
        if own or self.stack.of(kind):
            return own
        word = "valkey-server" if kind == "Valkey" else "workers.run"
        children = [child for part in self.stack.of("API") if part.process for child in part.process.children()]
        return [child for child in children if any(word in text for text in child.cmdline())]

    def _kill(self, fault: PlannedFault, hit: Sequence[psutil.Process]) -> None:
        part = next((one for one in self.stack.of(fault.victim) if one.process in hit), None)
        loses = fault.how == "kill, data lost"
        began = time.monotonic()
        if part is not None:
            with part.lock:
                _send(hit, signal.SIGKILL)
                psutil.wait_procs(hit, timeout=10)
                if loses:
                    shutil.rmtree(self.stack.valkey_data)
                    self.stack.valkey_data.mkdir()
        else:
            _send(hit, signal.SIGKILL)
        self._note(fault, began, self._name(part, hit))

    def _name(self, part: Part | None, hit: Sequence[psutil.Process]) -> str:
        return part.name if part is not None else f"process {hit[0].pid}"

    def _pause(self, fault: PlannedFault, hit: Sequence[psutil.Process]) -> None:
        part = next((one for one in self.stack.of(fault.victim) if one.process in hit), None)
        name = self._name(part, hit)
        _send(hit, signal.SIGSTOP)
        self._later(fault, name, lambda: _send(hit, signal.SIGCONT))

    def _line(self, fault: PlannedFault) -> bool:
        relay = self.stack.relays[_RELAYS[fault.victim]]
        if fault.how == "cut":
            began = time.monotonic()
            relay.cut()
            self._note(fault, began, fault.victim)
            return True
        relay.stall()

        def end() -> None:
            relay.flow()
            if fault.which < 0.5:
                relay.cut()

        self._later(fault, fault.victim, end)
        return True

    def _database(self, fault: PlannedFault) -> bool:
        (part,) = self.stack.of("PostgreSQL")
        if part.process is None:
            return False
        began = time.monotonic()
        if fault.how == "stop at once":
            with part.lock:
                part.process.send_signal(signal.SIGQUIT)  # what `pg_ctl stop -m immediate` sends
                part.program.wait(20)
            self._note(fault, began, part.name)
            return True
        with psycopg.connect(self.stack.database, autocommit=True, connect_timeout=3) as connection:
            pids = [pid for (pid,) in connection.execute(_CLIENTS_OF_DATABASE, (connection.info.backend_pid,))]
            if not pids:
                return False
            if fault.how == "pause a backend":
                hit = [psutil.Process(pids[int(fault.which * len(pids))])]
                _send(hit, signal.SIGSTOP)
                self._later(fault, part.name, lambda: _send(hit, signal.SIGCONT))
                return True
            chosen = random.Random(fault.which).sample(pids, max(1, int(fault.which * len(pids))))
            for pid in chosen:
                connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        self._note(fault, began, part.name)
        return True

    def _flush(self, fault: PlannedFault) -> bool:
        began = time.monotonic()
        with Redis.from_url(self.stack.redis, socket_timeout=3) as redis:
            redis.flushall()
        self._note(fault, began, "Valkey")
        return True

    def _later(self, fault: PlannedFault, name: str, end: Callable[[], None]) -> None:
        began = time.monotonic()

        def wait() -> None:
            time.sleep(fault.seconds)
            end()
            self._note(fault, began, name)

        self._pauses.append(threading.Thread(target=wait))
        self._pauses[-1].start()

    def _note(self, fault: PlannedFault, began: float, name: str) -> None:
        self.injected.append(Injected(fault=fault, name=name, began=began, ended=time.monotonic()))


def _send(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _processes_of(engines: Path) -> list[psutil.Process]:
    """Return the running engines, not their guards or version checks."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if len(words) > 2 and str(engines) in words[2] and "-m" in words[3:]:
            found.append(process)
    return sorted(found, key=lambda process: process.pid)
