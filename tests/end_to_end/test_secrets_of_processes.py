"""What runs of a service shows its secrets to nobody: not in process lists, files, Valkey, logs or answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from redis import Redis

from service.settings import Settings, as_environment
from tests.local_hub import TOKEN, LocalHub

SECRETS = {
    "HF_TOKEN": TOKEN,
    "ADVISOR_DISCORD_BOT_TOKEN": "CanaryOfDiscord.000000.0000000000000000",
    "ADVISOR_SLACK_SIGNING_SECRET": "CanaryOfSlackSigning000000000000",
    "ADVISOR_SLACK_BOT_TOKEN": "xoxb-CanaryOfSlackBot-0000000000",
}
OF_BOTS = [name for name in SECRETS if name.startswith("ADVISOR_")]
_START = """
import os
from service.serve import serve
from service.settings import load_settings
serve(load_settings(os.environ))
"""
PAGES = ("/ready", "/health", "/docs", "/nothing", "/v1/repos/local/private-GGUF")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[httpx.Client, psutil.Process, Path]]:
    """A service with every secret, the bots' too; its state folder has what it logs."""
    with LocalHub() as hub, (tmp_path / "log").open("wb") as log:
        settings = Settings(
            state_dir=tmp_path / "state", hf_endpoint=hub.endpoint, port=0, workers=1,
            public_url="https://advisor.example", discord_public_key="0" * 64, discord_application_id="1",
        )  # fmt: skip
        environment = {**os.environ, **as_environment(settings), **SECRETS}
        command = [sys.executable, "-c", _START]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            try:
                assert process.stdout
                address = process.stdout.readline().split()[-1]
                with httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
                    yield client, psutil.Process(process.pid), tmp_path
            finally:
                process.terminate()
                process.wait(30)


@pytest.mark.full
def test_no_secret_is_where_others_look(running: tuple[httpx.Client, psutil.Process, Path]) -> None:
    client, process, folder = running
    body = {"repo": "Qwen/Qwen3-0.6B-GGUF", "hardware": "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"}
    answers = [client.post("/v1/advice?wait=30", json=body).text]
    answers += [client.get(path).text for path in PAGES]
    forged = {"x-slack-signature": "v0=0", "x-slack-request-timestamp": "1"}
    answers.append(client.post("/bots/slack/commands", content=b"text=help", headers=forged).text)
    below = process.children(recursive=True)
    ours = [one for one in below if "valkey" not in one.name()]
    (valkey,) = (one for one in below if "valkey" in one.name())
    assert {"workers.run", "workers.bots"} <= {word for one in ours for word in one.cmdline()}
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_socket()]
    (socket,) = {one.laddr for one in valkey.net_connections("unix") if str(one.laddr).endswith(".sock")}
    places = {
        "process list": repr([one.cmdline() for one in (process, *below)]),
        "environment of Valkey": repr(valkey.environ()),
        "answers": "".join(answers),
        "files": repr(files),
        "Valkey": _held_by(str(socket)),
    }
    assert [(name, place) for name, secret in SECRETS.items() for place, text in places.items() if secret in text] == []
    for one in ours:
        if "workers.run" in one.cmdline():
            assert not set(OF_BOTS) & set(one.environ())


def _held_by(socket: str) -> str:
    with Redis(unix_socket_path=socket) as redis:
        held = [(key, redis.dump(key)) for key in redis.scan_iter("*")]
    assert held
    return repr(held)
