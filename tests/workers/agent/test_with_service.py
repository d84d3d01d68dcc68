"""The agent and the real service on real databases: from the enrolment code to the stored result."""

from __future__ import annotations

import hashlib
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest
from msgspec.structs import replace
from sqlalchemy import Engine

from service.engine.gguf.header import Tensor
from service.engine.gguf.write import header_bytes
from service.engine.measured.identity import model_identity
from service.engine.measured.roofline import Prediction
from service.engine.run_flags import RunFlags
from service.flows.accounts import caller_of
from service.flows.context import utc_now
from service.store.measuring import hosts, runs, validations
from service.store.measuring.runs import Eligible, StoredRun, Terms
from service.store.measuring.validations import StoredValidation
from service.store.results import results
from service.wire.measuring.agent import RunFile, RunOutline
from service.wire.measuring.runs import ValidationRequest
from tests.databases import database_url, engine, postgres
from tests.engine_replay import install
from tests.hosts import RIG
from tests.valkeys import redis, valkey
from tests.web.joining import api, code_of, token_of
from tests.workers.agent.scripted_gpus import ScriptedGpus
from workers.agent import owner, probe
from workers.agent.journal import last
from workers.agent.loop import Agent
from workers.agent.process import confinement
from workers.agent.state import State
from workers.agent.watcher import Watcher

__all__ = ["api", "database_url", "engine", "postgres", "redis", "valkey"]

ROOT = Path(__file__).parents[3]
MODEL = header_bytes({"general.architecture": "llama"}, [Tensor("output.weight", "F32", (32, 2), 0, 256)]) + bytes(256)
OUTLINE = RunOutline(
    engine="ik_llama.cpp",
    repo="owner/name-GGUF",
    revision="0" * 40,
    files=(RunFile(path="Q4/x-Q4_K_M.gguf", size=len(MODEL), sha256=hashlib.sha256(MODEL).hexdigest()),),
    flags=RunFlags(n_ctx=4096, n_gpu_layers=0),
    depths=(0, 1024),
    n_prompt=512,
    n_gen=32,
    seconds=10,
)
PREDICTION = Prediction(devices=[], speed=[], most_tg=10_000.0, most_pp=100_000.0)


class AgentBench:
    """A machine that joined the real service, and its owner's account."""

    def __init__(self, folder: Path, api: httpx.Client, engine: Engine) -> None:
        self.folder, self.api, self.engine = folder, api, engine
        self.account = token_of(engine, "ada", "host", "validate")
        self.state, self.policy = State(folder / "state"), folder / "policy.toml"
        (folder / "models").mkdir()
        (folder / "models" / "x-Q4_K_M.gguf").write_bytes(MODEL)
        install(folder / "bin", "llama-sweep-bench", "ok")
        folders = f'[engines]\nfolders = ["{folder}/bin"]\n[models]\nfolders = ["{folder}/models"]\n'
        self.policy.write_text(f"allow_root = true\n{folders}")
        self.said: list[str] = []
        self.ending = threading.Event()

    def enrol(self) -> None:
        address = str(self.api.base_url).rstrip("/")
        code = code_of(self.api, self.account)
        assert owner.enrol(address, code, self.state, self.policy, lambda _: True, self.said.append)

    @property
    def host(self) -> str:
        return self.state.enrolled().host

    def change(self, state: str) -> None:
        reply = self.api.patch(f"/v1/hosts/{self.host}", json={"state": state}, headers=self.account)
        assert reply.status_code == 200, reply.text

    def agent(self) -> Agent:
        """Return a new agent, as after a restart."""
        client = owner.open_client(self.state)
        watcher = Watcher(self.state.path, ScriptedGpus(count=0), self.ending)
        agent = Agent(
            self.state, self.policy, client, watcher, held=confinement(self.state.path),
            ending=self.ending, say=self.said.append,
        )  # fmt: skip
        client.lease = partial(client.lease, 0)  # type: ignore[method-assign]
        return agent

    def serve(self) -> None:
        agent = self.agent()
        try:
            agent.serve(once=True)
        finally:
            agent.client.close()

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start the agent as a process of its own."""
        command = [sys.executable, "-m", "service.cli", "host", "run", *words]
        places = ["--state-dir", str(self.state.path), "--policy", str(self.policy)]
        return subprocess.Popen([*command, *places], cwd=ROOT, stdout=subprocess.DEVNULL)

    def has_probed(self) -> bool:
        """Whether the service knows what the machine has."""
        known = hosts.read(self.engine, self.host)
        return known is not None and known.probe is not None

    def queue(self, outline: RunOutline = OUTLINE) -> str:
        """Queue a run that this host may do; return its id."""
        account = caller_of(self.engine, self.account["authorization"].partition(" ")[2], utc_now()).account_id
        program = hashlib.sha256((self.folder / "bin" / "llama-sweep-bench").read_bytes()).hexdigest()
        if not self.has_probed():  # a run is planned for hosts that have said what they are
            self.serve()
        known = hosts.read(self.engine, self.host)
        assert known is not None
        assert known.probe is not None
        terms = Terms(
            hardware=known.probe.hardware, most_tg=PREDICTION.most_tg, most_pp=PREDICTION.most_pp, max_minutes=60
        )  # fmt: skip
        ours = Eligible(
            host_id=self.host, match="exact", gpus=(), engine_builds=(program,), hardware_key=known.hardware_key,
            terms=terms,
        )  # fmt: skip
        validation = StoredValidation(
            id=secrets.token_urlsafe(16), advice_id="a", account_id=account, mode="validate",
            request=ValidationRequest(), refused=[], idempotency_key=None, created_at=utc_now(),
        )  # fmt: skip
        run = StoredRun(
            id=secrets.token_urlsafe(16), validation_id=validation.id, account_id=account, kind="config",
            config_id="c", position=0, variant="Q4_K_M", cell="0" * 64, outline=outline, prediction=PREDICTION,
            identity=model_identity(outline.repo, None), created_at=utc_now(),
        )  # fmt: skip
        assert validations.add(self.engine, validation, [(run, [ours])])
        return run.id

    def run_row(self, run: str) -> StoredRun:
        found = runs.read(self.engine, run)
        assert found is not None
        return found


@pytest.fixture
def bench(tmp_path: Path, api: httpx.Client, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentBench]:
    monkeypatch.setattr(probe, "find_hardware", lambda nvidia: RIG)
    bench = AgentBench(tmp_path, api, engine)
    yield bench
    bench.ending.set()


def test_from_the_code_to_the_stored_result(bench: AgentBench) -> None:
    bench.enrol()
    bench.change("active")
    bench.serve()
    mine = bench.api.get(f"/v1/hosts/{bench.host}", headers=bench.account).json()
    assert [(build["engine"], build["commit"]) for build in mine["engines"]] == [("ik_llama.cpp", "8337e4cd3")]
    assert [model["name"] for model in mine["models"]] == ["x-Q4_K_M.gguf"]
    assert mine["key_fingerprint"] in "".join(bench.said)
    run = bench.queue()
    bench.serve()
    row = bench.run_row(run)
    assert row.state == "succeeded", row.failure
    assert [measured.n_kv for measured in row.rows] == [0, 1024]
    assert row.result_id is not None
    result = results.read(bench.engine, row.result_id)
    assert result is not None
    assert (result.tier, result.host_id, result.build) == ("self-reported", bench.host, "8337e4cd3")
    assert [ran.outcome for ran in last(bench.state.path / "ran.jsonl", 2)] == ["started", "measured 2 rows"]


def test_a_model_that_is_not_here_is_a_result_too(bench: AgentBench) -> None:
    bench.enrol()
    bench.change("active")
    run = bench.queue(replace(OUTLINE, files=(replace(OUTLINE.files[0], size=7),)))
    bench.serve()
    row = bench.run_row(run)
    assert row.state == "failed"
    assert row.failure is not None
    assert row.failure.kind == "model_missing"


def test_a_dry_run_leaves_the_run_in_the_queue_uncounted(bench: AgentBench) -> None:
    bench.enrol()
    bench.change("active")
    run = bench.queue()
    agent = bench.agent()
    agent.serve(once=True, dry_run=True)
    agent.client.close()
    assert any("llama-sweep-bench -m" in line for line in bench.said)
    row = bench.run_row(run)
    assert (row.state, row.attempt) == ("queued", 0)


def test_an_agent_that_lost_its_counter_goes_on(bench: AgentBench) -> None:
    bench.enrol()
    bench.change("active")
    bench.serve()
    bench.state.remove("counter")
    run = bench.queue()
    bench.serve()
    assert bench.run_row(run).state == "succeeded"


@pytest.mark.full
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_that_ends_in_the_middle_leaves_nothing_and_the_run_is_done_later(bench: AgentBench, how: int) -> None:
    install(bench.folder / "bin", "llama-sweep-bench", "ok", delay=1.5)
    bench.enrol()
    bench.change("active")
    agent = bench.start()
    try:
        assert until(bench.has_probed)  # a run is planned for the machine that its host says it is
        run = bench.queue()
        assert until(lambda: bool(bench.run_row(run).rows)), bench.run_row(run)
        assert until(lambda: bool(_engines_of(agent.pid)))
        engines = _engines_of(agent.pid)
        agent.send_signal(how)
        agent.wait(60)
        assert until(lambda: not any(process.is_running() for process in engines))
        if how == signal.SIGTERM:
            assert (agent.returncode, bench.run_row(run).state, bench.run_row(run).attempt) == (0, "queued", 0)
    finally:
        agent.kill()
        agent.wait()
    again = bench.start("--once")
    assert again.wait(90) == 0
    row = bench.run_row(run)
    assert row.state == "succeeded", row
    assert [measured.n_kv for measured in row.rows] == [0, 1024]
    assert not (bench.state.path / "engine.json").exists()


def _engines_of(pid: int) -> list[psutil.Process]:
    """What runs of the engine now: between two passes nothing does."""
    return [process for process in psutil.Process(pid).children(recursive=True) if _is_engine(process)]


def _is_engine(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "llama-sweep-bench" in " ".join(process.cmdline())
    return False


def until(is_so: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.05)
    return is_so()


def test_a_host_that_leaves_is_revoked_and_its_key_is_gone(bench: AgentBench) -> None:
    bench.enrol()
    assert owner.leave(bench.state, lambda _: True, bench.said.append)
    hosts = bench.api.get("/v1/hosts", headers=bench.account).json()
    assert "revoked" in str(hosts) or not any(host["mine"] for host in hosts["hosts"])
