"""Benchmarks for the leaderboard, sent in chat: shown as they are understood, kept when their sender says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from service.flows.results.read_results import read_result
from service.store.results import listed_results
from service.store.tables import result as table
from tests.bots import discord_payloads as discord
from tests.bots import slack_payloads as slack
from tests.bots.conftest import Chat
from tests.flows.results.submitted import COMMAND, REPO, RIG, sweep


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
    assert "This is how it was read" in post.text
    assert "llama-sweep-bench" in post.text
    assert n_results(chat) == before
    stranger = chat.press_discord("Add to leaderboard", post, user=f"{user}7")
    assert "no longer exists" in stranger.shown.text
    kept = chat.press_discord("Add to leaderboard", post, user=user).original
    assert "On the leaderboard" in kept.text
    assert "somebody reported it" in kept.text
    assert n_results(chat) == before + 1
    again = chat.press_discord("Add to leaderboard", post, user=user).original
    assert "no longer exists" in again.text
    assert n_results(chat) == before + 1


def test_what_it_lacks_is_asked_for_by_name(chat: Chat, user: str) -> None:
    post = shown(chat, discord.form_sent("result", {"text": sweep()}, user=user))
    assert "Still missing" in post.text
    assert "hardware" in post.text


def test_a_result_that_nobody_says_to_keep_is_not_kept(chat: Chat, user: str) -> None:
    before = n_results(chat)
    payload = discord.form_sent("result", {"text": paste(252.0), "rig": RIG, "repo": REPO}, user=user)
    shown(chat, payload)
    chat.clock.ahead += timedelta(minutes=11)
    chat.look()
    post = chat.platforms.hooks[payload["token"]].shown
    assert "Not sent" in post.text
    assert post.body["components"] == []
    assert n_results(chat) == before


def test_the_benchmark_in_a_message_is_put_on_the_leaderboard_by_its_menu(chat: Chat, user: str) -> None:
    chat.ask_discord("hardware", {"rig": RIG}, action="set", user=user)
    text = f"look\n{paste(253.0)}".replace("llama-sweep-bench -m ", f"llama-sweep-bench -m /models/{REPO}/")
    post = shown(chat, discord.on_message("Add to leaderboard", text, user=user, by=user))
    assert "This is how it was read" in post.text
    assert "On the leaderboard" in chat.press_discord("Add to leaderboard", post, user=user).shown.text


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


@pytest.mark.parametrize("by", ["9", ""])
def test_somebody_elses_message_is_not_mine_to_add_and_my_rig_is_not_the_one_it_ran_on(
    chat: Chat, user: str, by: str
) -> None:
    before = n_results(chat)
    chat.ask_discord("hardware", {"rig": RIG}, action="set", user=user)
    payload = discord.on_message("Add to leaderboard", paste(255.0), user=user, by=by or "9")
    if not by:
        del payload["data"]["resolved"]["messages"][payload["data"]["target_id"]]["author"]
    post = shown(chat, payload)
    assert "Somebody else wrote this message" in post.text
    assert post.body.get("components", []) == []
    assert n_results(chat) == before


def test_on_slack_too_only_its_author_adds_a_message(chat: Chat) -> None:
    before = n_results(chat)
    for by, said in (("U9", "Somebody else wrote this message"), ("U0WROTE", "Still missing")):
        form, address = slack.shortcut(sweep(256.0), callback="result_message", user="U0WROTE", by=by)
        chat.slack("interactivity", form, address)
        chat.look()
        assert said in chat.platforms.hooks[address.rpartition("/")[2]].posts[-1].text
    assert n_results(chat) == before


def test_the_licence_is_shown_before_anything_is_kept(chat: Chat, user: str) -> None:
    fields = {"text": paste(257.0), "rig": RIG, "repo": REPO}
    post = shown(chat, discord.form_sent("result", fields, user=user))
    assert "CC-BY-4.0" in post.text
    assert "Add to leaderboard" in str(post.body["components"])
    form = slack.command(f"result\nrig: {RIG}\nrepo: {REPO}\n{COMMAND}\n{sweep(258.0)}", user="U0READS")
    chat.slack("commands", form, form["response_url"])
    chat.look()
    (preview,) = chat.platforms.hooks[form["response_url"].rpartition("/")[2]].posts
    assert "CC-BY-4.0" in preview.text


def test_who_names_the_source_cites_it_with_its_own_rig_and_without_a_licence_of_ours(chat: Chat, user: str) -> None:
    chat.ask_discord("hardware", {"rig": RIG}, action="set", user=user)
    fields = {"text": paste(259.0), "repo": REPO, "source": "https://forum.example/threads/1"}
    assert "hardware" in shown(chat, discord.form_sent("result", fields, user=user)).text  # not the saved one
    post = shown(chat, discord.form_sent("result", {**fields, "rig": RIG}, user=user))
    assert "CC-BY-4.0" not in post.text
    assert "its author" in post.text or "their author" in post.text
    chat.press_discord("Add to leaderboard", post, user=user)
    with chat.context.engine.connect() as connection:
        newest = select(table.c.id).where(table.c.published.is_not(None)).order_by(table.c.created_at.desc()).limit(1)
        result = read_result(chat.context, connection.scalar(newest) or "")
    assert result.published is not None
    assert (result.published.url, result.licence) == ("https://forum.example/threads/1", None)
    dumped = listed_results.after_id(chat.context.engine, "", 500, chat.context.clock())
    assert all(one.result.published is None for one in dumped)
    bad = shown(chat, discord.form_sent("result", {**fields, "rig": RIG, "source": "javascript:alert(1)"}, user=user))
    assert "https:// address" in bad.text
