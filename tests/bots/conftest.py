"""The real app, courier and database; Discord and Slack are stood in for, and the worker of an advice is called."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from redis import Redis

from service.bots.dispatcher import Dispatcher
from service.flows.advice.advise import compute_advice
from service.flows.chat import interactions
from service.flows.context import Context
from service.flows.hub import make_hub
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.store.advice import queue
from service.store.engines import make_engine
from service.store.migrations import migrate
from service.web.app import create_app
from tests.bots import discord_payloads, slack_payloads
from tests.bots.platforms import APPLICATION, BOT_TOKEN, DISCORD, FILES, SLACK_API, SLACK_HOOKS, SLACK_TOKEN, Platforms
from tests.flows.conftest import session_hub
from tests.local_hub import LocalHub
from tests.valkeys import redis, valkey
from tests.waiting import PATIENCE
from tests.web.servers import client_of

__all__ = ["redis", "session_hub", "valkey"]
PUBLIC_URL = "https://advisor.example"
_numbers = itertools.count(1000)


class Clock:
    """The real time, and what a test adds to it."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


def settings_of(folder: Path, redis_url: str, hub: str = "http://127.0.0.1:1", **more: Any) -> Settings:
    """Return the settings of a service with both bots."""
    values = {
        "state_dir": folder,
        "redis_url": redis_url,
        "hf_endpoint": hub,
        "public_url": PUBLIC_URL,
        "discord_public_key": discord_payloads.PUBLIC_KEY,
        "discord_application_id": APPLICATION,
        "discord_api": DISCORD,
        "discord_files": (FILES,),
        "slack_signing_secret": slack_payloads.SECRET,
        "slack_api": SLACK_API,
        "slack_hooks": SLACK_HOOKS,
        "bot_person_per_minute": 1000,
        "bot_place_per_minute": 10_000,
        "requests_per_minute": 1000,
    }
    return Settings(**{**values, **more})


class Chat:
    """Both platforms with our app behind them."""

    def __init__(self, client: httpx.Client, context: Context, clock: Clock) -> None:
        self.http, self.context, self.clock = client, context, clock
        self.platforms = Platforms(lambda: clock().timestamp())
        self.dispatcher = Dispatcher(context, self.platforms.client(), lambda account: None)

    def with_settings(self, **changed: Any) -> None:
        """Let the courier work with other settings."""
        changed_settings = msgspec.structs.replace(self.context.settings, **changed)
        self.context = self.context._replace(settings=changed_settings)
        self.dispatcher = Dispatcher(self.context, self.platforms.client(), lambda account: None)

    def discord(self, payload: dict[str, Any], **how: Any) -> httpx.Response:
        """Send an interaction as Discord does; a deferred answer is noted there."""
        reply = self.http.post("/bots/discord", **discord_payloads.signed(payload, **how))
        if reply.status_code == 200 and reply.json()["type"] == 5:
            private = reply.json().get("data", {}).get("flags") == 64
            self.platforms.taken(payload["token"], private, payload["id"])
            self._released(f"discord:{payload['id']}")
        return reply

    def _released(self, identity: str) -> None:
        """Wait until the service noticed that its acknowledgement is out: the client may have it a moment earlier."""
        last = time.monotonic() + PATIENCE
        while (row := interactions.read(self.context, identity)) and row.due_at:
            if row.due_at <= datetime.now(UTC) or time.monotonic() > last:
                break
            time.sleep(0.001)

    def slack(self, path: str, form: dict[str, str], url: str, **how: Any) -> httpx.Response:
        """Send a form as Slack does."""
        reply = self.http.post(f"/bots/slack/{path}", **slack_payloads.signed(form, **how))
        if reply.status_code == 200:
            self.platforms.taken(url.rpartition("/")[2], False, "")
            trigger = form.get("trigger_id") or json.loads(form["payload"])["trigger_id"]
            self._released(f"slack:{hashlib.sha256(trigger.encode()).hexdigest()[:40]}")
        return reply

    def look(self) -> int:
        """Look once at every question that is due; return how many were."""
        found = interactions.claim(self.context, 100)
        for asked in found:
            self.dispatcher.look(asked)
        return len(found)

    def work(self) -> None:
        """Compute what is queued, as a worker does."""
        for advice_id in queue.calls(self.context.engine):
            compute_advice(self.context, advice_id)

    def settle(self) -> None:
        """Look, work and look again until nothing is due any more within the minute."""
        for _ in range(4):
            self.look()
            self.work()
            self.clock.ahead += timedelta(seconds=40)
        assert self.platforms.breaches == []

    def ask_discord(self, verb: str, words: dict[str, Any] | None = None, **how: Any) -> Any:
        """Ask with a slash command, let it be answered, and return what Discord knows of it."""
        payload = discord_payloads.command(verb, words or {}, **how)
        assert self.discord(payload).status_code == 200
        self.settle()
        return self.platforms.hooks[payload["token"]]

    def press_discord(self, label: str, post: Any, **how: Any) -> Any:
        """Press a button of a message, let it be answered, and return what Discord knows of it."""
        buttons = [one for row in post.body["components"] for one in row["components"]]
        chosen = next(one for one in buttons if one["label"].startswith(label))
        payload = discord_payloads.button(chosen["custom_id"], **how)
        assert self.discord(payload).status_code == 200
        self.settle()
        return self.platforms.hooks[payload["token"]]

    def ask_slack(self, text: str, **how: Any) -> Any:
        """Ask with the slash command, let it be answered, and return what Slack knows of it."""
        form = slack_payloads.command(text, **how)
        assert self.slack("commands", form, form["response_url"]).status_code == 200
        self.settle()
        return self.platforms.hooks[form["response_url"].rpartition("/")[2]]

    def press_slack(self, label: str, post: Any, **how: Any) -> Any:
        """Press a button of a message, let it be answered, and return what Slack knows of it."""
        elements = next(block["elements"] for block in post.body["blocks"] if block["type"] == "actions")
        chosen = next(one for one in elements if one["text"]["text"].startswith(label))
        form, url = slack_payloads.button(chosen, **how)
        assert self.slack("interactivity", form, url).status_code == 200
        self.settle()
        return self.platforms.hooks[url.rpartition("/")[2]]


@pytest.fixture(scope="session")
def bot_settings(tmp_path_factory: pytest.TempPathFactory, valkey: EmbeddedValkey, session_hub: LocalHub) -> Settings:
    return settings_of(tmp_path_factory.mktemp("bots"), valkey.url, session_hub.endpoint)


@pytest.fixture(scope="session")
def bot_app(bot_settings: Settings) -> Iterator[httpx.Client]:
    engine = make_engine(bot_settings.database)
    migrate(engine)
    engine.dispose()
    with client_of(create_app(bot_settings)) as client:
        yield client


@pytest.fixture
def chat(bot_app: httpx.Client, bot_settings: Settings, redis: Redis) -> Iterator[Chat]:
    engine = make_engine(bot_settings.database)
    hub, clock = make_hub(bot_settings), Clock()
    found = Chat(bot_app, Context(bot_settings, engine, redis, hub, clock), clock)
    for asked in interactions.claim(found.context, 100):  # what another test left
        interactions.end(found.context, asked.id)
    yield found
    hub.close()
    engine.dispose()


@pytest.fixture
def user() -> str:
    """Somebody who was never here."""
    return str(next(_numbers))


__all__ += ["BOT_TOKEN", "SLACK_TOKEN"]
