"""What platforms answer to our messages: nothing that was not taken counts as sent, and nothing is lost in silence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
from litestar.types import Receive, Scope, Send

from service import metrics
from service.bots.sending import Sent, of_discord, of_slack
from service.flows.chat import interactions
from service.settings import Settings
from service.web.app import create_app
from service.wire.bots import Ask, Asker, Reply
from tests.bots import discord_payloads, slack_payloads
from tests.bots.conftest import BOT_TOKEN, SLACK_TOKEN, Chat
from tests.web.servers import client_of

REPO, RIG = "Qwen/Qwen3-0.6B-GGUF", "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"


def lost(platform: str, why: str) -> float:
    return float(metrics.BOT_ANSWERS_LOST.of(platform, why)._value.get())


def late_on_slack(chat: Chat, context: str) -> str:
    """Ask something whose answer comes after half an hour; return where answers went at first."""
    form = slack_payloads.command(f"advise {REPO} on {RIG} context {context}")
    chat.slack("commands", form, form["response_url"])
    chat.look()
    chat.clock.ahead += timedelta(minutes=26)
    chat.look()
    chat.clock.ahead += timedelta(minutes=5)
    chat.work()
    return form["response_url"].rpartition("/")[2]


def test_an_answer_that_slack_refuses_with_status_200_goes_to_the_asker_directly(chat: Chat) -> None:
    chat.with_settings(slack_bot_token=SLACK_TOKEN)
    chat.platforms.closed.add(slack_payloads.CHANNEL)
    hook = late_on_slack(chat, "17k")
    chat.settle()
    (post,) = chat.platforms.channel
    assert post.channel == slack_payloads.BERT
    assert post.text.startswith("Yes") or "Yes:" in post.text
    assert any("invite me" in said.text for said in chat.platforms.hooks[hook].posts)


def test_an_answer_that_nobody_can_be_given_counts_as_lost_not_as_sent(chat: Chat) -> None:
    chat.with_settings(slack_bot_token=SLACK_TOKEN)
    chat.platforms.closed |= {slack_payloads.CHANNEL, slack_payloads.BERT}
    late_on_slack(chat, "18k")
    before = lost("slack", "not-invited"), metrics.BOT_MESSAGES.of("sent")._value.get()
    chat.settle()
    assert chat.platforms.channel == []
    assert (lost("slack", "not-invited"), metrics.BOT_MESSAGES.of("sent")._value.get()) == (before[0] + 1, before[1])


def test_a_late_answer_goes_directly_to_who_asked_where_discord_lets_the_bot_not_write(chat: Chat, user: str) -> None:
    chat.with_settings(discord_bot_token=BOT_TOKEN)
    chat.platforms.closed.add(discord_payloads.CHANNEL)
    payload = discord_payloads.command("advise", {"repo": REPO, "hardware": RIG, "context": "19k"}, user=user)
    chat.discord(payload)
    chat.look()
    chat.clock.ahead += timedelta(minutes=16)
    chat.work()
    chat.settle()
    assert [post.channel for post in chat.platforms.channel] == [f"9{user}"]


@pytest.mark.parametrize("verb", ["help", "token"])
def test_an_answer_waits_for_an_acknowledgement_that_discord_does_not_know_yet(
    chat: Chat, user: str, verb: str
) -> None:
    payload = discord_payloads.command(verb, {}, user=user)
    chat.discord(payload)
    chat.platforms.deaf_until = chat.platforms.now() + 6
    chat.look()
    for _ in range(4):
        chat.clock.ahead += timedelta(seconds=2.1)
        chat.look()
    shown = chat.platforms.hooks[payload["token"]].shown.text
    assert ("adv_" in shown) == (verb == "token")  # and not that there is one already, which was never shown
    assert "Unknown" not in shown


def test_nothing_is_made_once_for_an_address_that_has_ended(chat: Chat, user: str) -> None:
    payload = discord_payloads.command("token", {}, user=user)
    chat.discord(payload)
    chat.platforms.deaf_until = chat.platforms.now() + 1e9
    for _ in range(12):
        chat.look()
        chat.clock.ahead += timedelta(seconds=2.1)
    chat.platforms.deaf_until = 0
    assert "adv_" in chat.ask_discord("token", user=user).shown.text


def test_a_question_is_due_only_when_its_acknowledgement_is_on_the_wire(
    chat: Chat, bot_settings: Settings, user: str
) -> None:
    app, due_before = create_app(bot_settings), list[int]()

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Any) -> None:
            if message["type"] == "http.response.body" and scope["path"] == "/bots/discord":
                due_before.append(len(interactions.claim(chat.context, 10)))
            await send(message)

        await app(scope, receive, sent)

    payload = discord_payloads.command("help", {}, user=user)
    with client_of(watched) as client:  # type: ignore[arg-type]
        assert client.post("/bots/discord", **discord_payloads.signed(payload)).status_code == 200
    assert due_before
    assert not any(due_before)
    assert [asked.id for asked in interactions.claim(chat.context, 10)] == [f"discord:{payload['id']}"]


def test_a_question_whose_service_died_before_it_could_say_so_is_due_after_three_seconds(chat: Chat, user: str) -> None:
    asker, ask = Asker(account=f"discord:{user}", place="discord-guild:1"), Ask(verb="help")
    reply = Reply(platform="discord", token=user)
    assert interactions.take(chat.context, f"discord:{user}", asker, ask, reply)
    assert interactions.claim(chat.context, 10) == []
    chat.clock.ahead += timedelta(seconds=3.1)
    assert len(interactions.claim(chat.context, 10)) == 1
    interactions.acknowledged(chat.context, f"discord:{user}")  # too late: somebody has it
    assert interactions.claim(chat.context, 10) == []


DISCORD: list[tuple[int, Any, tuple[str, str]]] = [
    (204, None, ("sent", "")), (429, {"retry_after": 1.5}, ("later", "")), (502, None, ("later", "")),
    (404, {"code": 10015}, ("gone", "expired")), (401, {"code": 50027}, ("gone", "expired")),
    (403, {"code": 50001}, ("gone", "not-invited")), (403, {"code": 50007}, ("gone", "unreachable")),
    (401, {"code": 0}, ("gone", "token")), (400, {"code": 50035}, ("refused", "")), (400, None, ("refused", "")),
]  # fmt: skip
SLACK: list[tuple[int, Any, tuple[str, str]]] = [
    (200, {"ok": True}, ("sent", "")), (200, "ok", ("sent", "")),
    (200, {"ok": False, "error": "ratelimited"}, ("later", "")),
    (200, {"ok": False, "error": "not_in_channel"}, ("gone", "not-invited")),
    (200, {"ok": False, "error": "messages_tab_disabled"}, ("gone", "unreachable")),
    (200, {"ok": False, "error": "token_revoked"}, ("gone", "token")),
    (200, {"ok": False, "error": "invalid_blocks"}, ("refused", "")),
    (404, "used_url", ("gone", "expired")), (410, "channel_is_archived", ("gone", "not-invited")),
    (500, "rollup_error", ("later", "")), (400, "invalid_payload", ("refused", "")),
    (200, {"ok": False}, ("refused", "")), (403, "<html>", ("gone", "expired")),
]  # fmt: skip


def reply(status: int, body: Any) -> httpx.Response:
    return httpx.Response(status, text=body) if isinstance(body, str) else httpx.Response(status, json=body)


def test_a_reply_of_discord_means_one_thing() -> None:
    for status, body, meant in DISCORD:
        found = of_discord(reply(status, body), 100)
        assert (found.kind, found.why) == meant, (status, body)
    assert of_discord(reply(404, {"code": 10008}), 3) == Sent("later", 2.0, "10008")
    assert of_discord(reply(429, {"retry_after": 1.5}), 3).seconds == 1.5


def test_a_reply_of_slack_means_one_thing() -> None:
    for status, body, meant in SLACK:
        found = of_slack(reply(status, body))
        assert (found.kind, found.why) == meant, (status, body)
