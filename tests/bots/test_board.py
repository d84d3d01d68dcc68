"""The leaderboard in chat."""

from __future__ import annotations

from tests.bots import discord_payloads as discord
from tests.bots.conftest import Chat
from tests.bots.test_answers import HOSTILE
from tests.stored_results import a_result, keep


def test_the_fastest_of_a_model_are_shown_for_everybody_with_a_link_to_all(chat: Chat) -> None:
    keep(
        chat.context.engine,
        a_result(tier="replicated"),
        a_result(tier="replicated", model_name="Other", model_slug="other"),
    )
    hook = chat.ask_discord("leaderboard", {"model": "Qwen3-30B", "gpu": "3090"})
    assert not hook.private
    assert "20.0" in hook.original.text
    assert "Other" not in hook.original.text
    (link,) = hook.original.body["components"][0]["components"]
    assert link["url"] == "https://advisor.example/leaderboard?q=Qwen3-30B+3090"
    (post,) = chat.ask_slack("leaderboard Qwen3-30B on 3090").posts
    assert "20.0" in post.text
    (none,) = chat.ask_slack("leaderboard no-such-model").posts
    assert "matches. The page shows unverified results too." in str(none.body)
    assert "https://advisor.example/leaderboard?q=no-such-model&trust=self-reported" in str(none.body)
    proposed = chat.discord(discord.typing("leaderboard", "model", "qwen3-30")).json()["data"]["choices"]
    assert {"name": "Qwen3-30B-A3B", "value": "Qwen3-30B-A3B"} in proposed


def test_names_that_somebody_made_up_call_nobody(chat: Chat) -> None:
    keep(chat.context.engine, a_result(model_name=HOSTILE[:60], model_slug="hostile", variant=HOSTILE[:60]))
    post = chat.ask_discord("leaderboard").original
    assert "\x1b" not in post.text
    assert "\u202e" not in post.text
    assert chat.platforms.breaches == []


def test_who_has_saved_no_rig_is_told_how_and_who_has_no_account_that_there_was_none(chat: Chat) -> None:
    (shown,) = chat.ask_slack("hardware show").posts
    assert "/advisor hardware set 2x5090" in str(shown.body)
    (gone,) = chat.ask_slack("hardware forget").posts
    assert "There was nothing to forget." in gone.text
    assert "If you had an account here, it is deleted." in str(gone.body)
