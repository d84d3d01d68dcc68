"""The service as users run it, with what `bench.api` asks for: a large advice, a board, requests that wait, hosts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import psutil
import psycopg
from nacl.signing import SigningKey

from bench.board import fill
from bench.held import Machine
from bench.load import Ask, address
from service.flows.context import Context, open_context
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings, as_environment
from service.store.engines import make_engine
from service.store.migrations import migrate
from tests.databases import postgres_server
from tests.demo import R1
from tests.hosts import a_host
from tests.local_hub import LocalHub

HARDWARE = "2x5090 + 2x4090, Xeon 8480+, 512GB DDR5-4800 x8"
N_WAITING = 50  # advices that nobody computes, for listeners to follow
_HOSTS_OF_ONE = 20
_SECONDS = 120


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """What runs: addresses, processes by name, the advice's id, those that wait, and machines that may poll."""

    host: str
    port: int
    processes: dict[str, psutil.Process]
    context: Context
    hello_port: int
    advice: str
    revision: str
    waiting: list[str]
    machines: list[Machine]

    def asks(self) -> dict[str, Ask]:
        """Return each kind of request by its name."""
        text, path = {"Accept": "text/plain"}, f"/v1/advice/{self.advice}"
        # With its commit: that of a branch is asked of the Hub again every ten minutes, by a worker.
        asked = msgspec.json.encode({"repo": R1, "revision": self.revision, "hardware": HARDWARE})
        return {
            "advice, JSON": Ask("GET", path),
            "advice, JSON, gzip": Ask("GET", path, {"Accept-Encoding": "gzip"}),
            "advice, text": Ask("GET", path, text),
            "asked again, JSON": Ask("POST", "/v1/advice", {"Content-Type": "application/json"}, asked),
            "leaderboard": Ask("GET", "/v1/leaderboard"),
        }


@contextmanager
def staged(folder: Path, n_results: int, on_postgres: bool, n_machines: int) -> Iterator[Stage]:
    """Run Valkey, the service and a bare app, and fill what is asked for. `n_results` 0: those that come with it."""
    with ExitStack() as stack:
        valkey = EmbeddedValkey(folder / "valkey")
        valkey.start()
        stack.callback(valkey.close)
        url = stack.enter_context(postgres_url()) if on_postgres else f"sqlite:///{folder}/advisor.db"
        if n_results:
            _fill_board(url, n_results)
        hub = stack.enter_context(LocalHub())
        settings = Settings(
            state_dir=folder, database_url=url, redis_url=valkey.url, hf_endpoint=hub.endpoint, port=0, workers=0,
            trusted_proxies=("127.0.0.1/32",),
        )  # fmt: skip
        service = stack.enter_context(listening(settings, "service.cli", "serve"))
        hello = stack.enter_context(listening(settings, "bench.hello"))
        context = stack.enter_context(open_context(settings))
        processes = {"service": service[1], "valkey": psutil.Process(valkey.pid), "hello": hello[1]}
        with httpx.Client(base_url=f"http://127.0.0.1:{service[0]}", trust_env=False, timeout=60) as client:
            advice, revision = _advice(client, settings)
            waiting = [_asked(client, 64 + 8 * i)["id"] for i in range(N_WAITING)]
        yield Stage(
            host="127.0.0.1",
            port=service[0],
            processes=processes,
            context=context,
            hello_port=hello[0],
            advice=advice,
            revision=revision,
            waiting=waiting,
            machines=list(_machines(context, n_machines)),
        )


@contextmanager
def postgres_url() -> Iterator[str]:
    with postgres_server() as socket:
        name = f"bench_{uuid4().hex}"
        with psycopg.connect(host=socket, user="postgres", dbname="postgres", autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        yield f"postgresql://postgres@/{name}?host={socket}"


def _fill_board(url: str, n_results: int) -> None:
    engine = make_engine(url)
    migrate(engine)
    engine.dispose()
    fill(engine, n_results, 0, 7)
    engine.dispose()


@contextmanager
def listening(settings: Settings, *module: str) -> Iterator[tuple[int, psutil.Process]]:
    """Run a module that prints `Listening on URL`; the value is its port and process."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("ADVISOR_")} | as_environment(settings)
    with tempfile.TemporaryDirectory(prefix="advisor-log-") as folder:
        log = Path(folder, "log")
        with log.open("w") as out:
            process = subprocess.Popen([sys.executable, "-m", *module], env=env, stdout=out, stderr=out)
        try:
            yield _port(process, log), psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"Listening on http://[^:]+:(\d+)", log.read_text()):
            return int(found[1])
        time.sleep(0.1)
    raise SystemExit(log.read_text()[-4000:])


def _advice(client: httpx.Client, settings: Settings) -> tuple[str, str]:
    """Ask, and have it computed by a worker that ends with it; return its id and the commit."""
    with _worker(settings):
        asked = client.post("/v1/advice", json={"repo": R1, "hardware": HARDWARE}).raise_for_status().json()
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            found = client.get(f"/v1/advice/{asked['id']}", params={"wait": 5}).json()
            if found["state"] == "ready":
                return found["id"], found["revision"]
    raise SystemExit("the advice was not computed")


@contextmanager
def _worker(settings: Settings) -> Iterator[None]:
    command = [sys.executable, "-m", "workers.run"]
    process = subprocess.Popen(command, env=os.environ | as_environment(settings), stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _asked(client: httpx.Client, ram: int) -> Any:
    body = {"repo": R1, "hardware": f"RTX 3090, Ryzen 9 7950X, {ram}GB DDR5-5600"}
    sent = client.post(
        "/v1/advice", json=body, headers={"X-Forwarded-For": address(ram)}
    )  # a client has only a few open
    return sent.raise_for_status().json()


def _machines(context: Context, count: int) -> Iterator[Machine]:
    for i in range(count):
        key = SigningKey.generate()
        host = a_host(context, f"owner-{i // _HOSTS_OF_ONE}", key=key, visibility="public")
        yield Machine(host.id, key.encode().hex())
