"""Benchmarks for the leaderboard, sent in chat: shown as they are understood, kept when their sender says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import func, select

from service.store.tables import result as table
from tests.bots import discord_payloads as discord
from tests.bots import slack_payloads as slack
from tests.bots.conftest import Chat
from tests.flows.submitted import COMMAND, REPO, RIG, sweep


def n_results(chat: Chat) -> int:
    with chat.context.engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(table)) or 0


def shown(chat: Chat, payload: dict[str, Any]) -> Any:
    assert chat.discord(payload).status_code == 200
    chat.look()
    return chat.platforms.hooks[payload["token"]].original


def paste(tg: float) -> str:
    return f"```\n{COMMAND}\n```\n```\n{sweep(tg)}\n```"


def test_a_result_is_shown_first_and_kept_when_its_sender_says_so(chat: Chat, user: str) -> None:
    before = n_results(chat)
    fields = {"text": paste(251.0), "rig": RIG, "repo": REPO}
    post = shown(chat, discord.form_sent("result", fields, user=user))
    assert "This is how it is understood" in post.text
    assert "llama-sweep-bench" in post.text
    assert n_results(chat) == before
    stranger = chat.press_discord("Add to leaderboard", post, user=f"{user}7")
    assert "is not there any more" in stranger.original.text
    kept = chat.press_discord("Add to leaderboard", post, user=user).original
    assert "On the leaderboard" in kept.text
    assert "somebody reported it" in kept.text
    assert n_results(chat) == before + 1
    again = chat.press_discord("Add to leaderboard", post, user=user).original
    assert "is not there any more" in again.text
    assert n_results(chat) == before + 1


def test_what_it_lacks_is_asked_for_by_name(chat: Chat, user: str) -> None:
    post = shown(chat, discord.form_sent("result", {"text": sweep()}, user=user))
    assert "It lacks" in post.text
    assert "hardware" in post.text


def test_a_result_that_nobody_says_to_keep_is_not_kept(chat: Chat, user: str) -> None:
    before = n_results(chat)
    payload = discord.form_sent("result", {"text": paste(252.0), "rig": RIG, "repo": REPO}, user=user)
    shown(chat, payload)
    chat.clock.ahead += timedelta(minutes=11)
    chat.look()
    post = chat.platforms.hooks[payload["token"]].original
    assert "Not sent" in post.text
    assert post.body["components"] == []
    assert n_results(chat) == before


def test_the_benchmark_in_a_message_is_put_on_the_leaderboard_by_its_menu(chat: Chat, user: str) -> None:
    chat.ask_discord("hardware", {"rig": RIG}, action="set", user=user)
    text = f"look\n{paste(253.0)}".replace("llama-sweep-bench -m ", f"llama-sweep-bench -m /models/{REPO}/")
    post = shown(chat, discord.on_message("Add to leaderboard", text, user=user))
    assert "This is how it is understood" in post.text
    assert "On the leaderboard" in chat.press_discord("Add to leaderboard", post, user=user).original.text


def test_on_slack_the_preview_is_a_message_and_so_is_what_became_of_it(chat: Chat) -> None:
    before = n_results(chat)
    form = slack.command(f"result\nrig: {RIG}\nrepo: {REPO}\n{COMMAND}\n{sweep(254.0)}", user="U0SENDS")
    chat.slack("commands", form, form["response_url"])
    chat.look()
    (preview,) = chat.platforms.hooks[form["response_url"].rpartition("/")[2]].posts
    assert preview.private
    (kept,) = chat.press_slack("Add to leaderboard", preview, user="U0SENDS").posts
    assert "On the leaderboard" in kept.text
    assert n_results(chat) == before + 1
