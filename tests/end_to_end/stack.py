"""All of a validation as processes: `advisor serve`, machines that measure, and a Hub with a tiny model."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil

from tests.local_hub import LocalHub, Repo, WholeFile
from tests.tiny_model import write_tiny_model
from tests.waiting import wait_for

REPO, FILE = "local/tiny-GGUF", "tiny-F32.gguf"
GOAL = {"context": 8192, "depth": 4096, "prompt": 512, "output": 64}
_OWN = ("DATABASE_URL", "REDIS_URL", "HF_TOKEN", "ADVISOR_TOKEN")
_CLI = (sys.executable, "-m", "service.cli")


@contextmanager
def tiny_hub(model: Path) -> Iterator[LocalHub]:
    """Run a Hub with one repo, whose one file is a model that engines load."""
    data = write_tiny_model(model).read_bytes()
    with LocalHub({REPO: Repo(lambda: {FILE: WholeFile(data, len(data))})}) as hub:
        yield hub


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


class Program:
    """A process that can be killed and started again; its output is kept."""

    def __init__(self, words: tuple[str, ...], environment: dict[str, str], log: Path, cwd: Path | None = None) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in _OWN}
        self._words, self.environment, self._log, self._cwd = words, kept | environment, log, cwd
        self.process: psutil.Popen | None = None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        with self._log.open("a") as log:
            self.process = psutil.Popen(
                self._words, env=self.environment, cwd=self._cwd, stdout=log, stderr=subprocess.STDOUT
            )

    def family(self) -> list[psutil.Process]:
        return list(self.process.children(recursive=True)) if self.process and self.is_running else []

    def kill(self) -> None:
        """End it as `kill -9` does, and wait until nothing of it is left."""
        if self.process is None:
            return
        family = self.family()
        if self.is_running:
            self.process.kill()
        self.process.wait(20)
        psutil.wait_procs(family, timeout=20)

    def wait(self, seconds: float) -> None:
        """Wait until it has ended. Raises psutil.TimeoutExpired."""
        if self.process is not None:
            self.process.wait(seconds)

    def stop(self) -> None:
        """Ask it to end; kill what does not."""
        if self.process is not None and self.is_running:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except psutil.TimeoutExpired:
                self.kill()


class Stack:
    """A service on its own database and Valkey, its machines, and an account that may do everything but operate."""

    def __init__(self, folder: Path, hub: LocalHub, **environment: str) -> None:
        self.folder, self.url = folder, f"http://127.0.0.1:{free_port()}"
        self.environment = {
            "HF_ENDPOINT": hub.endpoint, "ADVISOR_STATE_DIR": str(folder / "state"), "ADVISOR_WORKERS": "1",
            "ADVISOR_PORT": self.url.rpartition(":")[2], **environment,
        }  # fmt: skip
        self.service = Program((*_CLI, "serve"), self.environment, folder / "serve.log")
        self.machines: list[Machine] = []
        self.token = ""

    def start(self) -> None:
        """Start the service, and make the account when it is there."""
        self.service.start()
        wait_for(self.answers, f"the service does not start: {self.service.log}")
        self.token = self.token or self.account("alice", "validate,host")

    def account(self, name: str, scopes: str) -> str:
        """Return a token of a new account."""
        words, environment = (*_CLI, "token", "create", name, "--scope", scopes), {**os.environ, **self.environment}
        made = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
        return made.stdout.strip()

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5).is_success
        except httpx.TransportError:
            return False

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Return what the service answers to the account."""
        headers = {"Authorization": f"Bearer {self.token}"}
        reply = httpx.request(method, self.url + path, json=body, headers=headers, timeout=60)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json() if reply.content else None

    def enrol(self, engines: Path, models: Path) -> Machine:
        """Return a machine that is enrolled, approved, and not started."""
        printed = shlex.split(self.call("POST", "/v1/hosts/enrolments", {})["command"])
        machine = Machine(self, len(self.machines), engines, models)
        words = (*_CLI, *printed[1:], "--yes", "--state-dir", str(machine.folder))
        subprocess.run(words, check=True, capture_output=True, env={**os.environ, **machine.environment})
        host = msgspec.json.decode((machine.folder / "host.json").read_bytes())["host"]
        self.call("PATCH", f"/v1/hosts/{host}", {"state": "active"})
        machine.host = host
        (machine.folder / "policy.toml").write_text(
            f'allow_root = true\n[engines]\nfolders = ["{engines}"]\n[models]\nfolders = ["{models}"]\n'
        )
        self.machines.append(machine)
        return machine

    def advise(self) -> dict[str, Any]:
        """Return an advice for the first machine, as it described itself."""
        hosts = {host["id"]: host for host in self.call("GET", "/v1/hosts")}
        hardware = hosts[self.machines[0].host]["hardware"]
        body = {"repo": REPO, "hardware": hardware, "goal": GOAL}
        advice: dict[str, Any] = self.call("POST", "/v1/advice?wait=30", body)
        assert advice["state"] == "ready", advice
        return advice

    def validate(self, advice: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `advisor validate` as a person does."""
        asked = (*_CLI, "validate", f"{self.url}/v1/advice/{advice}", *words)
        environment = {**os.environ, "ADVISOR_TOKEN": self.token}
        return subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=110, check=False)

    def stop(self) -> None:
        for machine in self.machines:
            machine.program.stop()
        self.service.stop()
        self.service.kill()


class Machine:
    """One enrolled machine: a state folder, and the agent as a process."""

    def __init__(self, stack: Stack, number: int, engines: Path, models: Path) -> None:
        self.folder, self.host = stack.folder / f"host{number}", ""
        self.environment = {"PYTHONUNBUFFERED": "1"}
        words = (*_CLI, "host", "run", "--state-dir", str(self.folder))
        self.program = Program(words, self.environment, stack.folder / f"host{number}.log")

    def start(self) -> None:
        self.program.start()


@contextmanager
def running(folder: Path, hub: LocalHub, **environment: str) -> Iterator[Stack]:
    """Start a service for the block; nothing is left of it behind, nor of its machines."""
    stack = Stack(folder, hub, **environment)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


def start_machines(stack: Stack, engines: Path, models: Path, n: int) -> None:
    """Enrol and start machines, and wait until the service knows what each of them has."""
    for _ in range(n):
        stack.enrol(engines, models).start()
    wait_for(
        lambda: sum(bool(host["models"]) for host in stack.call("GET", "/v1/hosts")) == n,
        f"no machine says what it has: {[machine.program.log for machine in stack.machines]}",
    )
