"""Who may ask a bot, how often, and which verbs it answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from redis import Redis
from sqlalchemy import Engine, select

from service.errors import InvalidSetting
from service.flows.chat import completions
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.store.tables import interaction
from service.web.app import create_app
from service.web.chat import slack as slack_door
from tests.bots import discord_payloads as discord
from tests.bots import slack_payloads as slack
from tests.bots.conftest import Chat, settings_of
from tests.databases import engine_with_tables
from tests.web.servers import client_of


@contextmanager
def app(tmp_path: Path, valkey: EmbeddedValkey, **more: Any) -> Iterator[tuple[httpx.Client, Engine]]:
    """Run the real app with bots, on an empty database."""
    settings = settings_of(tmp_path, valkey.url, **more)
    with engine_with_tables(settings.database) as engine, client_of(create_app(settings)) as client:
        yield client, engine


def taken(engine: Engine) -> list[str]:
    """Return the accounts whose questions were committed, in their order."""
    with engine.connect() as connection:
        return list(connection.scalars(select(interaction.c.account).order_by(interaction.c.created_at)))


def ask(client: httpx.Client, **who: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.post("/bots/discord", **discord.signed(discord.command("help", {}, **who))).json()
    return found


def test_one_person_and_one_place_may_ask_so_often(tmp_path: Path, valkey: EmbeddedValkey, redis: Redis) -> None:
    with app(tmp_path, valkey, bot_person_per_minute=2, bot_place_per_minute=3) as (client, engine):
        assert [ask(client, user="1")["type"] for _ in range(3)] == [5, 5, 4]
        refused = ask(client, user="1")
        assert refused["data"]["flags"] == 64
        assert "Try again in" in str(refused)
        assert ask(client, user="2")["type"] == 5
        assert ask(client, user="3")["type"] == 4
        assert ask(client, user="3", guild=None)["type"] == 5
        assert taken(engine) == ["discord:1", "discord:1", "discord:2", "discord:3"]
        said = client.post("/bots/slack/commands", **slack.signed(slack.command("help"))).json()
        assert said["response_type"] == "ephemeral"


def test_why_a_button_on_slack_is_not_answered_is_sent_where_answers_go(
    tmp_path: Path, valkey: EmbeddedValkey, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(slack_door, "_tell", lambda _, address, message: told.append((address, str(message))))
    with app(tmp_path, valkey, bot_deny=(f"slack:{slack.TEAM}",)) as (client, _):
        form, address = slack.button({"type": "button", "action_id": "ask-0", "value": "help?"})
        reply = client.post("/bots/slack/interactivity", **slack.signed(form))
        assert (reply.status_code, reply.text) == (200, "")
    ((where, what),) = told
    assert where == address
    assert "does not answer here" in what


def test_what_nobody_signed_is_counted_by_where_it_comes_from(
    tmp_path: Path, valkey: EmbeddedValkey, redis: Redis
) -> None:
    with app(tmp_path, valkey, requests_per_minute=2) as (client, _):
        replies = [client.post("/bots/discord", json={}).status_code for _ in range(3)]
        assert replies == [401, 401, 429]
        assert ask(client)["type"] == 5


@pytest.mark.parametrize(
    ("lists", "answered"),
    [({}, True), ({"bot_allow": ("discord:1",)}, True), ({"bot_allow": (f"discord-guild:{discord.GUILD}",)}, True),
     ({"bot_allow": ("discord:2", "slack:T9")}, False), ({"bot_deny": ("discord:1",)}, False),
     ({"bot_deny": (f"discord-guild:{discord.GUILD}",), "bot_allow": ("discord:1",)}, False)],
)  # fmt: skip
def test_operators_say_who_may_ask(
    tmp_path: Path, valkey: EmbeddedValkey, redis: Redis, lists: dict[str, Any], answered: bool
) -> None:
    with app(tmp_path, valkey, **lists) as (client, engine):
        reply = ask(client, user="1")
        assert (reply["type"] == 5) == answered == bool(taken(engine))
        assert answered or "does not answer here" in str(reply)
        typed = client.post(
            "/bots/discord", **discord.signed(discord.typing("advise", "hardware", "309", user="1"))
        ).json()
        assert bool(typed["data"]["choices"]) == answered


def test_completions_are_as_many_and_as_long_as_discord_takes(
    tmp_path: Path, valkey: EmbeddedValkey, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completions, "repos", lambda *_: ["x" * 101, "RTX 3090"] + ["y"] * 40)
    with app(tmp_path, valkey, bot_person_per_minute=1) as (client, _):
        typing = [client.post("/bots/discord", **discord.signed(discord.typing("advise", "repo", "x"))).json()
                  for _ in range(14)]  # fmt: skip
        assert len(typing[0]["data"]["choices"]) == 25
        assert all(len(choice["value"]) <= 100 for choice in typing[0]["data"]["choices"])
        assert typing[-1] == {"type": 8, "data": {"choices": []}}


def test_verbs_that_are_turned_off_are_not_answered(chat: Chat, user: str) -> None:
    chat.with_settings(bot_verbs_off=("token", "validate"))
    assert "turned off" in chat.ask_discord("token", user=user).original.text
    assert "token" not in chat.ask_discord("help", user=user).original.text
    assert "not a command here" in chat.ask_discord("dance", user=user).original.text


@pytest.mark.parametrize("missing", ["public_url", "discord_application_id"])
def test_a_bot_that_is_half_set_up_stops_the_start(tmp_path: Path, missing: str) -> None:
    settings = msgspec.structs.replace(settings_of(tmp_path, "redis://127.0.0.1:1"), **{missing: None})
    with pytest.raises(InvalidSetting):
        create_app(settings)


def test_without_bots_there_are_no_endpoints() -> None:
    made = create_app(Settings(redis_url="redis://127.0.0.1:1"))
    assert not [route.path for route in made.routes if route.path.startswith("/bots")]
