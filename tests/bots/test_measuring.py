"""Measurements asked for in chat: followed while they run, and told when they end, however late."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from service.flows.advice.advise import read_advice
from tests.bots import discord_payloads as discord
from tests.bots import slack_payloads as slack
from tests.bots.conftest import BOT_TOKEN, Chat
from tests.bots.test_answers import REPO
from tests.bots.test_discord import title
from tests.flows.measuring.asking import host_of, run_all

RIG = "2x3090, Ryzen 9 7950X, 128GB DDR5-5600"


def asked(chat: Chat, user: str) -> tuple[Any, str]:
    """Return the answer to somebody's question, and the advice's id."""
    post = chat.ask_discord("advise", {"repo": REPO, "hardware": RIG}, user=user).original
    buttons = post.body["components"][0]["components"]
    return post, next(one["custom_id"].rpartition("=")[2] for one in buttons if one["label"] == "Measure this")


def test_measure_this_runs_on_ones_own_host_and_the_message_follows_it(chat: Chat, user: str) -> None:
    post, advice_id = asked(chat, user)
    host = host_of(chat.context, f"discord:{user}")
    hook = chat.press_discord("Measure this", post, user=user)
    assert "0 of" in title(hook.original)
    run_all(chat.context, host, read_advice(chat.context, advice_id), {})
    chat.settle()
    assert title(hook.original).startswith("Measured fastest")
    assert chat.look() == 0


def test_a_measurement_that_outlasts_discords_token_is_told_in_the_channel(chat: Chat, user: str) -> None:
    chat.with_settings(discord_bot_token=BOT_TOKEN)
    _, advice_id = asked(chat, user)
    host = host_of(chat.context, f"discord:{user}")
    payload = discord.command("validate", {"advice": f"https://advisor.example/advice/{advice_id}"}, user=user)
    chat.discord(payload)
    chat.look()
    chat.clock.ahead += timedelta(minutes=14.5)
    chat.look()
    hook = chat.platforms.hooks[payload["token"]]
    assert not hook.posts
    assert "will be a message here" in hook.shown.text
    chat.clock.ahead += timedelta(hours=5)
    chat.look()
    run_all(chat.context, host, read_advice(chat.context, advice_id), {})
    chat.settle()
    assert title(chat.platforms.channel[-1]).startswith("Measured fastest")


def test_on_slack_it_is_said_once_that_it_runs_and_once_what_came_of_it(chat: Chat, user: str) -> None:
    _, advice_id = asked(chat, user)
    host = host_of(chat.context, f"slack:{slack.TEAM}:U0MEASURE")
    form = slack.command(f"validate {advice_id} config 1 minutes 5", user="U0MEASURE")
    chat.slack("commands", form, form["response_url"])
    for _ in range(6):
        chat.look()
        chat.clock.ahead += timedelta(seconds=40)
    hook = chat.platforms.hooks[form["response_url"].rpartition("/")[2]]
    assert len(hook.posts) == 1
    run_all(chat.context, host, read_advice(chat.context, advice_id), {})
    chat.settle()
    assert len(hook.posts) == 2
    assert hook.posts[-1].body["text"].startswith("Measured fastest")


def test_a_config_or_an_advice_that_is_not_there_is_said_so(chat: Chat, user: str) -> None:
    _, advice_id = asked(chat, user)
    for words in ({"advice": "x" * 22}, {"advice": advice_id, "config": 99}, {"advice": advice_id, "minutes": 999}):
        hook = chat.ask_discord("validate", words, user=user)
        assert hook.posts[0].private
