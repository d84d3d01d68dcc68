"""What one person asks about what is saved of them is done in the order in which it was taken, on both platforms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.flows.chat import chat_accounts, interactions
from tests.bots import discord_payloads, slack_payloads
from tests.bots.conftest import Chat

RIG = "RTX 3090, 64GB"


def ask(chat: Chat, platform: str, user: str, action: str) -> Any:
    """Ask for `hardware`, and return what the platform knows of the question."""
    rig = RIG if action == "set" else ""
    if platform == "discord":
        payload = discord_payloads.command("hardware", {"rig": rig} if rig else {}, action=action, user=user)
        assert chat.discord(payload).status_code == 200
        return chat.platforms.hooks[payload["token"]]
    form = slack_payloads.command(f"hardware {action} {rig}".rstrip(), user=user)
    assert chat.slack("commands", form, form["response_url"]).status_code == 200
    return chat.platforms.hooks[form["response_url"].rpartition("/")[2]]


def answer_the_latest_first(chat: Chat) -> None:
    """Answer all that may be answered at the same time, the latest first, until nothing is left."""
    while found := interactions.claim(chat.context, 100):
        for asked in sorted(found, key=lambda one: one.created_at, reverse=True):
            chat.dispatcher.look(asked)


def said(hook: Any) -> str:
    return json.dumps([post.body for post in (hook.original, *hook.posts) if post])


@pytest.mark.parametrize("platform", ["discord", "slack"])
def test_a_rig_saved_and_forgotten_while_nobody_answered_stays_forgotten(chat: Chat, user: str, platform: str) -> None:
    user = user if platform == "discord" else f"U{user}"
    saved, forgotten, shown, saved_again = (ask(chat, platform, user, one) for one in ("set", "forget", "show", "set"))
    answer_the_latest_first(chat)
    assert "Saved" in said(saved)
    assert "Forgotten: your rig" in said(forgotten)
    assert "No rig is saved" in said(shown)
    assert "Saved" in said(saved_again)
    account = f"discord:{user}" if platform == "discord" else f"slack:{slack_payloads.TEAM}:{user}"
    assert chat_accounts.remembered_rig(chat.context, account) == RIG
    assert chat.platforms.breaches == []
