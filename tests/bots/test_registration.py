"""What Discord and Slack are told of us, as an operator does it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import get_args

import httpx
import pytest

from service.bots import sending
from service.bots.slack.manifest import manifest
from service.bots.vocabulary import NAMES, verb_named
from service.cli import main
from service.engine.config import ENGINES
from service.engine.goal import Preset
from tests.bots.platforms import APPLICATION, BOT_TOKEN, DISCORD, Platforms


@pytest.fixture
def platforms(monkeypatch: pytest.MonkeyPatch) -> Iterator[Platforms]:
    found = Platforms(lambda: 0.0)
    monkeypatch.setattr(sending, "new_client", lambda _: found.client())
    monkeypatch.setenv("ADVISOR_DISCORD_APPLICATION_ID", APPLICATION)
    monkeypatch.setenv("ADVISOR_DISCORD_BOT_TOKEN", BOT_TOKEN)
    monkeypatch.setenv("ADVISOR_DISCORD_API", DISCORD)
    monkeypatch.setenv("ADVISOR_PUBLIC_URL", "https://advisor.example/")
    yield found
    assert found.breaches == []


@pytest.mark.parametrize("guild", [None, "41771983423143937"])
def test_all_commands_are_registered_within_discords_limits(platforms: Platforms, guild: str | None) -> None:
    assert main(["bots", "discord", "register", *(["--guild", guild] if guild else [])]) == 0
    commands = platforms.registered[guild or "global"]
    assert [one["name"] for one in commands] == [*NAMES, "Check this command", "Add to leaderboard"]
    assert ("contexts" in commands[0]) == (guild is None)


def test_verbs_that_are_off_are_not_registered(
    platforms: Platforms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ADVISOR_BOT_VERBS_OFF", "check,token")
    assert main(["bots", "discord", "register", "--json"]) == 0
    registered = [one["name"] for one in platforms.registered["global"]]
    assert not {"check", "token", "Check this command"} & set(registered)
    assert json.loads(capsys.readouterr().out) == registered


@pytest.mark.parametrize(
    ("missing", "status", "said"),
    [("ADVISOR_DISCORD_BOT_TOKEN", 200, "docs/discord.md"), ("ADVISOR_DISCORD_APPLICATION_ID", 200, "docs/discord.md"),
     (None, 401, "does not accept the bot's token"), (None, 429, "wait 7 seconds"), (None, 500, "status 500")],
)  # fmt: skip
def test_what_is_missing_or_refused_is_said(
    platforms: Platforms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    missing: str | None, status: int, said: str,
) -> None:  # fmt: skip
    if missing:
        monkeypatch.delenv(missing)
    platforms.refuse_next = [httpx.Response(status, headers={"retry-after": "7"})] if status != 200 else []
    assert main(["bots", "discord", "register"]) == 1
    assert said in capsys.readouterr().err


def test_a_server_is_named_by_its_number(platforms: Platforms, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bots", "discord", "register", "--guild", "../../x"]) == 2
    assert "is not the id of a server" in capsys.readouterr().err
    assert platforms.calls == []


def test_the_manifest_names_our_addresses_and_asks_for_no_more_than_is_used(
    platforms: Platforms, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bots", "slack", "manifest"]) == 0
    shown = json.loads(capsys.readouterr().out)
    (command,) = shown["features"]["slash_commands"]
    assert command["url"] == "https://advisor.example/bots/slack/commands"
    assert len(command["usage_hint"]) <= 1000
    assert len(command["description"]) <= 2000
    for shortcut in shown["features"]["shortcuts"]:
        assert len(shortcut["name"]) <= 24
        assert len(shortcut["description"]) <= 150
    assert len(shown["display_information"]["name"]) <= 35
    assert len(shown["display_information"]["description"]) <= 140
    assert shown["settings"]["interactivity"]["request_url"] == "https://advisor.example/bots/slack/interactivity"
    assert shown["oauth_config"]["scopes"]["bot"] == ["commands", "chat:write"]
    assert manifest("https://a", ["check"], with_bot=False)["oauth_config"]["scopes"]["bot"] == ["commands"]
    assert manifest("https://a", ["check"], with_bot=False)["features"]["shortcuts"][0]["name"] == "Add to leaderboard"


def test_the_manifest_needs_our_address(
    platforms: Platforms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ADVISOR_PUBLIC_URL")
    assert main(["bots", "slack", "manifest"]) == 1
    assert "ADVISOR_PUBLIC_URL" in capsys.readouterr().err


def test_goals_and_engines_to_choose_are_those_that_there_are() -> None:
    advise = verb_named("advise")
    assert advise is not None
    choices = {option.name: option.choices for option in advise.options}
    assert (choices["goal"], choices["engine"]) == (get_args(Preset), ENGINES)
