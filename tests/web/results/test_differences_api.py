"""Logs that differ, over HTTP: sent by three people, compared by the job's own process, shown, counted, settled."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from redis import Redis
from sqlalchemy import Engine

from service.flows.accounts import create_token
from service.flows.advice import advise
from service.flows.context import open_context, utc_now
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings, as_environment
from service.wire.advice.advice import AdviceRequest
from tests.computed_once import advise_once
from tests.databases import database_url, engine, postgres
from tests.flows.results.submitted import REPO, sweep
from tests.flows.results.test_differences import BUILD, COMMAND, MACHINE, NAME, printed
from tests.hosts import bearer, service
from tests.local_hub import LocalHub

__all__ = ["database_url", "engine", "postgres"]


@pytest.fixture
def settings(database_url: str, valkey: EmbeddedValkey, tmp_path: Path) -> Iterator[Settings]:
    with LocalHub() as hub:
        yield Settings(
            state_dir=tmp_path, database_url=database_url, redis_url=valkey.url, hf_endpoint=hub.endpoint,
            requests_per_minute=10_000, new_repos_per_hour=1_000,
        )  # fmt: skip


def compared(settings: Settings) -> None:
    """Run the job as the scheduler does."""
    environment = {**as_environment(settings), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-m", "workers.job", "logs"], env=environment, check=True, timeout=120)


def test_three_peoples_logs_reach_page_metric_check_and_advice_until_an_operator_settles_it(
    engine: Engine, settings: Settings, redis: Redis
) -> None:
    long_ago = utc_now() - timedelta(days=20)
    people = [bearer(create_token(engine, name, ["submit"], long_ago).token) for name in ("ann", "ben", "cleo")]
    operator = bearer(create_token(engine, "root", ["operator"], utc_now()).token)
    with open_context(settings) as context:
        made = advise.request_advice(context, AdviceRequest(repo=REPO, hardware=MACHINE)).advice
        advise.compute_advice(context, made.id, advise_once)
    with service(settings) as client:
        before = client.get(f"/v1/advice/{made.id}")
        for n, person in enumerate(people):
            text = f"{printed(332.75)}\n{sweep(pp=900.0 + 70 * n, tg=25.0 + 3 * n)}"
            sent = {"text": text, "command": COMMAND, "hardware": MACHINE, "repo": f"{REPO}:Q8_0", "build": BUILD}
            assert client.post("/v1/results", json=sent, headers=person).status_code == 201
        compared(settings)

        (entry,) = client.get("/v1/accuracy").json()["differences"]
        assert (entry["name"], entry["state"], entry["rigs"]) == (NAME, "warned", 3)
        assert "Buffers that differ in logs" in client.get("/accuracy").text
        assert 'advisor_memory_differences{state="warned"} 1.0' in client.get("/metrics").text
        check = {"command": COMMAND, "hardware": MACHINE, "repo": f"{REPO}:Q8_0", "build": BUILD}
        assert "logs-differ" in {one["rule"] for one in client.post("/v1/check", json=check).json()["findings"]}
        warned = client.get(f"/v1/advice/{made.id}", headers={"if-none-match": before.headers["etag"]})
        assert warned.status_code == 200
        assert any("32.0 MiB larger" in note for one in warned.json()["configs"] for note in one["notes"])
        assert "32.0 MiB larger" in client.get(f"/advice/{made.id}").text

        act = {"action": "settle", "subject": NAME, "reason": "a fork that three people run"}
        assert client.post("/v1/moderation", json=act, headers=operator).status_code in (200, 201)
        again = client.get(f"/v1/advice/{made.id}", headers={"if-none-match": warned.headers["etag"]})
        assert (again.status_code, again.headers["etag"]) == (200, before.headers["etag"])
        assert "logs-differ" not in {one["rule"] for one in client.post("/v1/check", json=check).json()["findings"]}


def test_the_command_line_settles_it_too_and_says_what_is_there_to_settle(
    engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from service.cli import main

    for name, value in as_environment(settings).items():
        monkeypatch.setenv(name, value)
    assert main(["admin", "moderate", "settle", NAME, "--reason", "nothing there"]) != 0
    assert "no unsettled" in capsys.readouterr().err


def test_a_client_is_told_of_the_field(settings: Settings, engine: Engine, redis: Redis) -> None:
    operator = bearer(create_token(engine, "root", ["operator"], utc_now()).token)
    with service(settings) as client:
        act = {"action": "settle", "subject": "none:of:these", "reason": "why not"}
        reply: httpx.Response = client.post("/v1/moderation", json=act, headers=operator)
        assert (reply.status_code, reply.json()["field"]) == (422, "subject")
