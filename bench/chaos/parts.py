"""The parts of a service as processes, each started again when it ends, as a service manager does."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from bench.chaos.relay import Relay
from service.queue.embedded import find_server
from tests.databases import initialise, postgres_command
from tests.end_to_end.stack import Machine, Program, free_port
from tests.end_to_end.stack import Stack as OneService
from tests.local_hub import LocalHub
from tests.waiting import wait_for

LEASE_SECONDS, SWEEP_SECONDS, HEARTBEAT_SECONDS = 4, 1, 1
RESTART_SECONDS = 0.5  # between the end of a part and its next start
SHORTENED = {
    "ADVISOR_LEASE_SECONDS": str(LEASE_SECONDS),
    "ADVISOR_SWEEP_SECONDS": str(SWEEP_SECONDS),
    "ADVISOR_HEARTBEAT_SECONDS": str(HEARTBEAT_SECONDS),
}
OPEN_DOORS = {  # one machine stands for many clients
    "ADVISOR_REQUESTS_PER_MINUTE": "1000000",
    "ADVISOR_OPEN_ADVICES": "1000",
    "ADVISOR_NEW_REPOS_PER_HOUR": "1000000",
    "ADVISOR_STREAMS_PER_CLIENT": "1000",
    "ADVISOR_TRUSTED_PROXIES": "127.0.0.0/8",
}
_PYTHON = (sys.executable, "-m")
_LOOK_SECONDS = 0.1


class Part:
    """One process of the stack; it is counted under `kind`."""

    def __init__(self, kind: str, name: str, program: Program) -> None:
        self.kind, self.name, self.program = kind, name, program
        self.lock = threading.RLock()  # held by the code that does not want it started again yet
        self._ended: float | None = None

    @property
    def process(self) -> psutil.Process | None:
        """The process while it runs."""
        return self.program.process if self.program.is_running else None

    def keep(self) -> None:
        """Restart it if it ended at least RESTART_SECONDS ago."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            if self.program.is_running:
                self._ended = None
            elif self._ended is None:
                self._ended = time.monotonic()
            elif time.monotonic() - self._ended > RESTART_SECONDS:
                self.program.start()
        finally:
            self.lock.release()


class Stack(OneService):
    """All parts and the relays between them; restarts whatever ends."""

    def __init__(self, folder: Path, hub: LocalHub, *, together: bool, **extra: str) -> None:
        self.folder, self.token = folder, ""
        self.parts: list[Part] = []
        self.relays: dict[str, Relay] = {}
        self.machines: list[Machine] = []
        self.database_folder: Path | None = None
        self.valkey_socket: Path | None = None
        self.ports = [free_port()] if together else [free_port(), free_port()]
        (folder / "tmp").mkdir()
        self.environment = {
            "HF_ENDPOINT": hub.endpoint, "ADVISOR_STATE_DIR": str(folder / "state"), "TMPDIR": str(folder / "tmp"),
            "ADVISOR_WORKERS": "2", "ADVISOR_PORT": str(self.ports[0]), **SHORTENED, **OPEN_DOORS, **extra,
        }  # fmt: skip
        if together:
            self._add("API", "api0", ("service.cli", "serve"), self.environment)
        else:
            self._apart()
        self.relays["front"] = Relay(self.ports)
        self.url = f"http://127.0.0.1:{self.relays['front'].port}"
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="keeper")

    @property
    def database(self) -> str:
        """The URL of the database, past the relays."""
        if self.database_folder is None:
            return f"sqlite:///{self.folder}/state/advisor.db"
        return f"postgresql://postgres@/postgres?host={self.database_folder}"

    @property
    def redis(self) -> str:
        """The URL of Redis, past the relays."""
        if self.valkey_socket is not None:
            return f"unix://{self.valkey_socket}"
        (found,) = (self.folder / "tmp").glob("advisor-*/valkey.sock")
        return f"unix://{found}"

    def _apart(self) -> None:
        """PostgreSQL, Valkey, two APIs and two workers, with a relay before each of the first two."""
        self.database_folder = Path(tempfile.mkdtemp(prefix="chaos-pg-"))
        initialise(self.database_folder)
        self._part("PostgreSQL", "postgresql", postgres_command(self.database_folder), {}, cwd=self.database_folder)
        self.valkey_data, self.valkey_socket = self.folder / "valkey", self.folder / "valkey.sock"
        self.valkey_data.mkdir()
        options = {
            "port": "0", "unixsocket": str(self.valkey_socket), "dir": str(self.valkey_data), "appendonly": "yes",
            "save": "", "maxmemory-policy": "noeviction",
        }  # fmt: skip
        words = (str(find_server()), *(part for name, value in options.items() for part in (f"--{name}", value)))
        self._part("Valkey", "valkey", words, {})
        self.relays["database"] = Relay([self.database_folder / ".s.PGSQL.5432"])
        self.relays["Redis"] = Relay([self.valkey_socket])
        self.environment |= {
            "DATABASE_URL": f"postgresql://postgres@127.0.0.1:{self.relays['database'].port}/postgres",
            "REDIS_URL": f"redis://127.0.0.1:{self.relays['Redis'].port}/0", "ADVISOR_WORKERS": "0",
        }  # fmt: skip
        for i, port in enumerate(self.ports):
            self._add("API", f"api{i}", ("service.cli", "serve"), self.environment | {"ADVISOR_PORT": str(port)})
        for i in range(2):
            self._add("worker", f"worker{i}", ("workers.run",), self.environment)

    def _add(self, kind: str, name: str, module: tuple[str, ...], environment: dict[str, str]) -> None:
        self._part(kind, name, (*_PYTHON, *module), environment)

    def _part(
        self, kind: str, name: str, words: tuple[str, ...], environment: dict[str, str], cwd: Path | None = None
    ) -> None:
        self.parts.append(Part(kind, name, Program(words, environment, self.folder / f"{name}.log", cwd=cwd)))

    def of(self, kind: str) -> list[Part]:
        """Return the parts of a kind."""
        return [part for part in self.parts if part.kind == kind]

    def start(self) -> None:
        """Start every part, go on starting what ends, and make an account when the service answers."""
        for part in self.parts:
            part.program.start()
        self._keeper.start()
        wait_for(self.answers, "the service does not start")
        self.token = self.account("alice", "validate,host")

    def enrol(self, engines: Path, models: Path) -> Machine:
        """Return a machine that is enrolled, approved, and started soon."""
        machine = super().enrol(engines, models)
        machine.program.environment["TMPDIR"] = str(self.folder / "tmp")
        self.parts.append(Part("agent", f"agent{len(self.machines) - 1}", machine.program))
        return machine

    def _keep(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            for part in self.parts:
                part.keep()

    def stop(self) -> None:
        """Stop everything in order, whatever its state; kill what does not end in time."""
        self._over.set()
        if self._keeper.is_alive():
            self._keeper.join()
        for part in self.parts:
            for process in (part.process, *part.program.family()):
                if process is not None:
                    with suppress(psutil.Error):
                        process.send_signal(signal.SIGCONT)
        for part in reversed(self.parts):
            if part.kind == "PostgreSQL" and part.process is not None:
                part.process.send_signal(signal.SIGINT)
            part.program.stop()
        for relay in self.relays.values():
            relay.close()

    def clean(self) -> None:
        """Remove what lies outside the folder."""
        if self.database_folder is not None:
            shutil.rmtree(self.database_folder, ignore_errors=True)

    def log(self) -> str:
        """Return the end of every part's log."""
        return "\n".join(f"--- {part.name}\n{part.program.log[-1500:]}" for part in self.parts)

    def left(self) -> list[str]:
        """Return the command lines of our processes that still run: parts, engines, and what they started."""
        mark, found = str(self.folder), []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words = " ".join(process.cmdline())
                if process.pid != os.getpid() and (mark in words or mark in process.environ().get("TMPDIR", "")):
                    found.append(words[:200])
        return found


@contextmanager
def running(stack: Stack) -> Iterator[Stack]:
    """Run the stack for the block; nothing of it is left behind."""
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()
