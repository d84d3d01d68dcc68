"""`advisor serve`: one command, everything real; it leaves nothing running, however it ends."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import httpx
import psutil
import pytest

from service import serve
from service.cli import main
from service.flows.context import utc_now
from service.flows.operations.schedule import schedule
from service.settings import Settings
from service.store.engines import make_engine
from service.store.operations import jobs
from tests.local_hub import LocalHub
from tests.waiting import wait_for

QWEN = "Qwen/Qwen3-0.6B-GGUF:Q8_0"
HARDWARE = "RTX 3090, Ryzen 9 7950X, {}GB DDR5-5600"


class Service:
    """A running `advisor serve`."""

    def __init__(self, folder: Path, endpoint: str, **environment: str) -> None:
        kept = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "REDIS_URL", "HF_TOKEN")}
        stated = {"HF_ENDPOINT": endpoint, "ADVISOR_STATE_DIR": str(folder / "state"), "ADVISOR_PORT": "0"}
        self._log = folder / "serve.log"
        with self._log.open("w") as log:
            command = [sys.executable, "-m", "service.cli", "serve"]
            self.process = psutil.Popen(command, env=kept | stated | environment, stdout=log, stderr=subprocess.STDOUT)

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def url(self) -> str:
        wait_for(lambda: "Listening on" in self.log or self.process.poll() is not None, "the service does not start")
        found = re.search(r"Listening on (http://\S+)", self.log)
        assert found, self.log
        return found[1]

    def family(self) -> list[psutil.Process]:
        return list(self.process.children(recursive=True))

    def ask(self, ram_gb: int = 128, wait: int = 30) -> dict[str, object]:
        body = {"repo": QWEN, "hardware": HARDWARE.format(ram_gb)}
        reply = httpx.post(f"{self.url}/v1/advice", params={"wait": wait}, json=body, timeout=60)
        return dict(reply.json())


@contextmanager
def served(folder: Path, endpoint: str, **environment: str) -> Iterator[Service]:
    service = Service(folder, endpoint, **environment)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            family = service.family()
            service.process.kill()
            psutil.wait_procs([service.process, *family], timeout=20)


@pytest.fixture(scope="module")
def local_hub() -> Iterator[LocalHub]:
    with LocalHub() as hub:
        yield hub


def gone(processes: list[psutil.Process]) -> bool:
    return all(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in processes)


@pytest.mark.full
def test_one_command_goes_on_where_it_was_killed_and_leaves_nothing_running_however_it_ends(
    tmp_path: Path, local_hub: LocalHub
) -> None:
    with served(tmp_path, local_hub.endpoint, ADVISOR_WORKERS="0") as service:
        advice = service.ask(wait=0)
        assert advice["state"] == "queued"
        family = service.family()
        service.process.kill()
        service.process.wait()
        wait_for(lambda: gone(family), "something outlives the service")
    with served(tmp_path, local_hub.endpoint) as service:
        address = f"{service.url}/v1/advice/{advice['id']}"
        wait_for(lambda: httpx.get(address).json()["state"] == "ready", "the advice is lost")
        assert service.ask(ram_gb=64)["state"] == "ready"
        ready = httpx.get(f"{service.url}/ready").json()
        assert {part["name"] for part in ready["parts"]} == {"database", "redis", "workers", "disk", "hub"}
        told = httpx.get(f"{service.url}/metrics").text
        wait_for(lambda: 'advisor_advices_total{outcome="ready"} 2.0' in httpx.get(f"{service.url}/metrics").text, told)
        family = service.family()
        assert {p.name() for p in family} >= {"valkey-server"}
        service.process.terminate()
        assert service.process.wait(20) == 0
        assert gone(family)
    assert "Traceback" not in service.log


@pytest.mark.full
def test_each_scheduled_job_runs_in_a_started_service(tmp_path: Path, local_hub: LocalHub) -> None:
    settings = Settings(state_dir=tmp_path / "state", calibrate_days=30)
    listed = schedule(settings)
    names = {job.name for job in listed}
    environment = {"ADVISOR_WORKERS": "0", "ADVISOR_SWEEP_SECONDS": "0.2", "ADVISOR_CALIBRATE_DAYS": "30"}
    with served(tmp_path, local_hub.endpoint, **environment) as service:
        assert httpx.get(f"{service.url}/health").status_code == 200
        engine = make_engine(settings.database)

        def waiting() -> set[str]:
            return names - {name for name, state in jobs.states(engine).items() if state.succeeded_at}

        later = {
            job.name
            for job in listed
            if job.at_hour or (job.every > timedelta(seconds=settings.sweep_seconds) and not job.at_start)
        }
        wait_for(lambda: waiting() == later, lambda: service.log)
        for name in waiting():
            assert jobs.hasten(engine, name, utc_now())
        wait_for(lambda: not waiting(), lambda: service.log)
        assert len(httpx.get(f"{service.url}/v1/dumps").json()["dumps"]) == 2
        engine.dispose()


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment with a state folder and a free port, and no database or Redis."""
    for name in ("DATABASE_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("ADVISOR_PORT", "0")
    return monkeypatch


def test_two_services_do_not_share_a_state_folder(
    tmp_path: Path, unset: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve.sole_user(tmp_path / "state"):
        assert main(["serve"]) == 1
    assert "another `advisor serve` uses" in capsys.readouterr().err


def test_a_taken_port_is_said_before_anything_starts(
    tmp_path: Path, unset: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        unset.setenv("ADVISOR_PORT", port)
        assert main(["serve"]) == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


@pytest.mark.full
def test_what_dies_in_the_service_is_started_again(tmp_path: Path, local_hub: LocalHub) -> None:
    with served(tmp_path, local_hub.endpoint, ADVISOR_WORKERS="1") as service:
        assert service.ask()["state"] == "ready"
        before = service.family()
        for process in before:
            process.send_signal(signal.SIGKILL)
        wait_for(lambda: gone(before), "a killed process lives")
        wait_for(lambda: httpx.get(f"{service.url}/ready").status_code == 200, "no worker comes back")
        assert service.ask(ram_gb=64)["state"] == "ready"


def test_bots_are_answered_by_a_process_of_their_own_where_there_are_any() -> None:
    assert serve._modules(Settings(workers=2)) == ["workers.run", "workers.run"]
    assert serve._modules(Settings(workers=1, slack_signing_secret="s")) == ["workers.run", "workers.bots"]
    assert serve._modules(Settings(workers=0, slack_signing_secret="s")) == []


def test_a_worker_that_the_system_refuses_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = asyncio.Semaphore(0)

    async def refuse(settings: Settings, module: str) -> NoReturn:
        refused.release()
        raise BlockingIOError("no more processes")

    async def until_refused_twice() -> None:
        keeper = asyncio.create_task(serve._keep_worker(Settings(), "workers.run"))
        async with asyncio.timeout(10):
            await refused.acquire()
            await refused.acquire()
        keeper.cancel()

    monkeypatch.setattr(serve, "_start_worker", refuse)
    monkeypatch.setattr(serve, "_FIRST_DELAY", 0.0)
    asyncio.run(until_refused_twice())


def accepted(service: Service, ram_gb: int) -> str:
    """Ask as a client does that is told to come again, and return the advice's id."""
    replies: list[dict[str, object]] = []

    def ask() -> bool:
        replies.append(service.ask(ram_gb=ram_gb, wait=0))
        return "id" in replies[-1]

    wait_for(ask, "no request is accepted")
    return str(replies[-1]["id"])


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [20261121])
def test_twenty_random_kills_lose_nothing(tmp_path: Path, local_hub: LocalHub, seed: int) -> None:
    dice = random.Random(seed)
    limits = {"ADVISOR_REQUESTS_PER_MINUTE": "100000", "ADVISOR_NEW_REPOS_PER_HOUR": "100000"}
    with served(tmp_path, local_hub.endpoint, **limits) as service:
        asked: list[str] = []
        for kill in range(20):
            wait_for(lambda: len(service.family()) > 0, "nothing is left to kill")
            asked.append(accepted(service, ram_gb=32 + 2 * kill))
            time.sleep(dice.uniform(0.0, 2.0))
            victims = sorted(service.family(), key=lambda process: process.pid)
            if victims:
                dice.choice(victims).kill()
        deadline = time.monotonic() + 600
        states = dict.fromkeys(asked, "queued")
        while set(states.values()) != {"ready"} and time.monotonic() < deadline:
            states = {a: httpx.get(f"{service.url}/v1/advice/{a}").json()["state"] for a in asked}
            time.sleep(0.5)
        assert set(states.values()) == {"ready"}, states
