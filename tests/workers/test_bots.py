"""The process that answers Discord and Slack: it answers at once, and one that is killed leaves nothing unanswered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from service.errors import InvalidSetting
from service.flows.chat import interactions
from service.flows.context import Context, open_context
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings, as_environment
from service.store.migrations import migrate
from service.wire.bots import Ask, Asker, Reply
from tests.bots.conftest import settings_of
from tests.valkeys import redis, valkey
from workers import bots

__all__ = ["redis", "valkey"]
ASKER = Asker(account="discord:1", place="discord-guild:1")


class Discord(ThreadingHTTPServer):
    """Takes edits; while `deaf` is set, it holds them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.edits: list[str] = []
        self.deaf = threading.Event()
        self.called = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that were killed."""


class _Handler(BaseHTTPRequestHandler):
    server: Discord

    def do_PATCH(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.called.set()
        while self.server.deaf.is_set():
            time.sleep(0.01)
        assert json.loads(body)["embeds"]
        self.server.edits.append(self.path.split("/")[3])
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def discord() -> Iterator[Discord]:
    server = Discord()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.deaf.clear()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def context(tmp_path: Path, valkey: EmbeddedValkey, discord: Discord) -> Iterator[Context]:
    address = f"http://127.0.0.1:{discord.server_address[1]}"
    settings = settings_of(tmp_path, valkey.url, discord_api=address)
    with open_context(settings) as found:
        migrate(found.engine)
        yield found


def started(settings: Settings) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **as_environment(settings)}
    return subprocess.Popen([sys.executable, "-m", "workers.bots"], env=environment)


def ask(context: Context, token: str) -> None:
    reply = Reply(platform="discord", application="700", token=token, private=True)
    assert interactions.take(context, f"discord:{token}", ASKER, Ask(verb="help"), reply)
    interactions.acknowledged(context, f"discord:{token}")


def wait_for(discord: Discord, token: str, times: int = 1) -> None:
    last = time.monotonic() + 60
    while discord.edits.count(token) < times:
        assert time.monotonic() < last, f"{token} is not answered"
        time.sleep(0.01)


@pytest.mark.full
def test_a_question_is_answered_and_one_whose_courier_was_killed_by_the_next(
    context: Context, discord: Discord
) -> None:
    first = started(context.settings)
    try:
        ask(context, "one")
        wait_for(discord, "one")
        discord.deaf.set()
        discord.called.clear()
        ask(context, "two")
        assert discord.called.wait(60)
    finally:
        first.kill()
        first.wait()
    discord.deaf.clear()
    wait_for(discord, "two")  # which its sender never heard of
    with context.engine.begin() as connection:  # half a minute later
        connection.exec_driver_sql("UPDATE interaction SET due_at = created_at WHERE due_at IS NOT NULL")
    second = started(context.settings)
    try:
        wait_for(discord, "two", 2)
    finally:
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 0


def test_without_a_bot_that_is_set_up_it_says_so(context: Context) -> None:
    with pytest.raises(InvalidSetting, match="no bot"):
        anyio.run(
            bots.run, msgspec.structs.replace(context.settings, discord_public_key=None, slack_signing_secret=None)
        )
