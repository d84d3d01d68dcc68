"""The parts of compose.yaml as processes of this machine, behind the real proxy with its real configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.stack import Program, free_port
from tests.waiting import wait_for

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"
NAMES = ("api-1", "api-2", "gateway")
DRAIN_SECONDS = 3
START_SECONDS = 180.0  # several start at once, on few cores


class Replica:
    """One `advisor serve` of several on the same database and Valkey."""

    def __init__(self, folder: Path, name: str, environment: dict[str, str]) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.name, self.address = name, self.url.removeprefix("http://")
        own = {"ADVISOR_PORT": self.url.rpartition(":")[2], "ADVISOR_WORKERS": "0"}
        words = (sys.executable, "-m", "service.cli", "serve")
        self.program = Program(words, environment | own, folder / f"{name}.log")

    def start(self) -> None:
        """Start it, and return when it is ready for all."""
        self.program.start()
        self.wait()

    def wait(self) -> None:
        """Return when it is ready for all."""
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            assert self.program.is_running, self.program.log
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def said(self) -> str:
        """Return what it says of its parts, and its log."""
        return httpx.get(f"{self.url}/ready", timeout=5).text + self.program.log

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/ready", timeout=5).is_success
        except httpx.TransportError:
            return False

    def restart(self) -> None:
        """Stop it as a container engine does, and start it again."""
        process = self.program.process
        assert process is not None
        process.terminate()
        assert process.wait(60) == 0, self.program.log
        self.start()


class Replicas:
    """Two replicas for people, one for agents, a worker, who answers chat, and the proxy before them."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.proxy_url = f"http://127.0.0.1:{free_port()}"
        environment = environment | {
            "ADVISOR_STATE_DIR": str(folder / "state"), "ADVISOR_PUBLIC_URL": self.proxy_url,
            "ADVISOR_TRUSTED_PROXIES": "127.0.0.0/8", "ADVISOR_DRAIN_SECONDS": str(DRAIN_SECONDS),
        }  # fmt: skip
        self._environment = environment
        self.replicas = [Replica(folder, name, environment) for name in NAMES]
        self.workers = [
            Program((sys.executable, "-m", module), environment, folder / f"{module}.log")
            for module in ("workers.run", "workers.bots")
        ]
        written = folder / "haproxy.cfg"
        written.write_text(proxy_configuration(self.proxy_url, {each.name: each.address for each in self.replicas}))
        self.proxy = Program((haproxy(), "-f", str(written)), {}, folder / "proxy.log")

    @contextmanager
    def running(self) -> Iterator[Replicas]:
        """Run all of it for a block, the tables first, then everything at once as a container engine does."""
        programs = [*self.workers, *(each.program for each in self.replicas), self.proxy]
        subprocess.run(
            [sys.executable, "-m", "service.cli", "admin", "migrate"], env=os.environ | self._environment, check=True
        )
        with ExitStack() as stack:
            for program in programs:
                program.start()
                stack.callback(program.kill)
            for each in self.replicas:
                each.wait()
            wait_for(self._answers, "the proxy does not answer")
            yield self

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.proxy_url}/health", timeout=5).is_success
        except httpx.TransportError:
            return False


def haproxy() -> str:
    """Return the proxy's program."""
    found = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        pytest.fail("no HAProxy: install `haproxy`")
    return found


def proxy_configuration(proxy_url: str, addresses: dict[str, str]) -> str:
    """Return deploy/haproxy.cfg with the addresses of this machine in place of those of compose.yaml, and no more."""
    text, n = re.subn(r"bind :8080\n", f"bind {proxy_url.removeprefix('http://')}\n", CONFIGURATION.read_text())
    assert n == 1
    for name, address in addresses.items():
        text, n = re.subn(rf"server {name} {name}:8000\b", f"server {name} {address}", text)
        assert n >= 1, name
    return text


def checked(configuration: Path) -> subprocess.CompletedProcess[str]:
    """Return what the proxy itself says of a configuration."""
    return subprocess.run([haproxy(), "-c", "-f", str(configuration)], capture_output=True, text=True, check=False)
