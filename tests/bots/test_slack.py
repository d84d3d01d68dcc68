"""Slack, from the request it sends to the message that stands there."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from service.store.chat import interactions as store
from tests.bots import slack_payloads as payloads
from tests.bots.conftest import SLACK_TOKEN, Chat

REPO, RIG = "Qwen/Qwen3-0.6B-GGUF", "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"
QUESTION = f"advise {REPO} on {RIG}"

BAD = {
    "no signature": {"signature": ""},
    "a wrong signature": {"signature": "v0=" + "0" * 64},
    "one that is too long": {"signature": "v0=" + "0" * 6400},
    "one that is not hex": {"signature": "v0=ü"},
    "another version": {"signature": "v1=" + "0" * 64},
    "a stale one": {"at": 1_700_000_000},
    "one of the future": {"at": 4_000_000_000},
    "another content type": {"content_type": "application/json"},
}


@pytest.mark.parametrize("path", ["commands", "interactivity"])
@pytest.mark.parametrize("how", BAD.values(), ids=list(BAD))
def test_what_slack_did_not_sign_like_this_is_refused_and_nothing_is_kept(
    chat: Chat, how: dict[str, Any], path: str
) -> None:
    before = store.count_open(chat.context.engine)
    form, _ = payloads.shortcut("llama-server -m a.gguf")
    form = payloads.command(QUESTION) if path == "commands" else form
    request = payloads.signed(form, **how)
    request["headers"] = {name: value.encode() for name, value in request["headers"].items()}
    assert chat.http.post(f"/bots/slack/{path}", **request).status_code in (400, 401)
    assert store.count_open(chat.context.engine) == before


@pytest.mark.parametrize("change", ["body", "timestamp", "text", "replay", "headers"])
def test_what_was_changed_after_it_was_signed_or_comes_again_is_refused(chat: Chat, change: str) -> None:
    request = payloads.signed(payloads.command(QUESTION))
    if change == "body":
        request["content"] = request["content"].replace(b"128GB", b"129GB")
    elif change in ("timestamp", "text"):
        sent = request["headers"]["x-slack-request-timestamp"]
        request["headers"]["x-slack-request-timestamp"] = "now" if change == "text" else str(int(sent) + 1)
    elif change == "replay":
        assert chat.http.post("/bots/slack/commands", **request).status_code == 200
    else:
        request["headers"] = {"content-type": "application/x-www-form-urlencoded"}
    before = store.count_open(chat.context.engine)
    assert chat.http.post("/bots/slack/commands", **request).status_code == 401
    assert store.count_open(chat.context.engine) == before


def with_(form: dict[str, str], **changed: str) -> dict[str, str]:
    return {**form, **changed}


@pytest.mark.parametrize(
    "changed",
    [{"response_url": "https://evil.example/commands/T1/1/x"}, {"response_url": "https://hooks.slack.test@evil/x"},
     {"response_url": "https://hooks.slack.test/../x?y"}, {"response_url": ""}, {"trigger_id": ""},
     {"user_id": "../x"}, {"team_id": ""}],
)  # fmt: skip
def test_a_command_that_would_be_answered_elsewhere_or_is_nobody_s_is_refused(
    chat: Chat, changed: dict[str, str]
) -> None:
    reply = chat.http.post("/bots/slack/commands", **payloads.signed(with_(payloads.command(QUESTION), **changed)))
    assert reply.status_code == 422


@pytest.mark.parametrize("body", [b"", b"\xff", b"payload=", b"payload=[]", b"payload=" + b"[" * 20_000, b"a=1&" * 99])
def test_what_is_signed_but_is_no_interaction_is_refused(chat: Chat, body: bytes) -> None:
    assert chat.http.post("/bots/slack/interactivity", **payloads.signed(body)).status_code == 422


def test_slacks_look_at_the_certificate_is_answered(chat: Chat) -> None:
    reply = chat.http.post("/bots/slack/commands", **payloads.signed({"ssl_check": "1", "token": "x"}))
    assert reply.status_code == 200


def texts(post: Any) -> list[str]:
    return [block["text"]["text"] for block in post.body["blocks"] if "text" in block]


def test_an_advice_is_acknowledged_and_answered_once_for_everybody(chat: Chat) -> None:
    form = payloads.command(QUESTION)
    reply = chat.slack("commands", form, form["response_url"])
    assert reply.json()["response_type"] == "ephemeral"
    chat.settle()
    (post,) = chat.platforms.hooks[form["response_url"].rpartition("/")[2]].posts
    assert not post.private
    assert texts(post)[0].startswith("Yes")
    assert any("llama-server" in text for text in texts(post))


def test_the_buttons_of_an_advice_ask_further_for_anyone_who_presses_them(chat: Chat) -> None:
    (post,) = chat.ask_slack(QUESTION).posts
    (other,) = chat.press_slack("With", post, user="U777").posts
    assert other.private
    (shown,) = chat.press_slack("Show commands", post).posts
    assert any("hf download" in text for text in texts(shown))
    (longer,) = chat.press_slack("Context 32k", post).posts
    assert texts(longer)[0].startswith("Yes")
    form, _ = payloads.button({"type": "button", "action_id": "open", "url": "https://advisor.example/advice/x"})
    assert chat.http.post("/bots/slack/interactivity", **payloads.signed(form)).status_code == 200


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "Where to put"), ("help", "Where to put"), ("dance", "is not a command"), ("advise", "name a repo"),
     (f"advise {REPO} on RTX 9999", "RTX 5090"), (f"advise {REPO} on {RIG} context lots", "is not a number of tokens"),
     (f"advise {REPO} on {RIG} goal dance", "dance"), (f"advise {REPO} on {RIG} engine vllm", "vllm"),
     ("advise Qwen/None-at-all on RTX 3090", "repo"), ("validate", "name the advice"), ("hardware dance", "use set"),
     ("check", "there is no command"), ("hardware set", "hardware")],
)  # fmt: skip
def test_what_cannot_be_answered_is_said_to_the_asker_alone_with_what_to_type(chat: Chat, text: str, said: str) -> None:
    form = payloads.command(text, user="U0ERR")
    reply = chat.slack("commands", form, form["response_url"])
    chat.settle()
    posts = chat.platforms.hooks[form["response_url"].rpartition("/")[2]].posts
    found = "\n".join([reply.text, *(post.text for post in posts)])
    assert said.lower() in found.lower()
    assert all(post.private for post in posts)


def test_a_rig_is_saved_used_and_forgotten_with_the_account(chat: Chat) -> None:
    user = "U0RIG"
    chat.ask_slack(f"hardware set {RIG}", user=user)
    (post,) = chat.ask_slack(f"advise {REPO}", user=user).posts
    assert post.private
    (post,) = chat.ask_slack("token", user=user).posts
    assert "adv_" in post.text
    (post,) = chat.ask_slack("hardware forget", user=user).posts
    assert "your rig and 1 API token" in post.text


def test_a_command_is_checked_with_what_stands_on_lines_of_its_own(chat: Chat) -> None:
    text = (
        f"check\nrig: {RIG}\nrepo: {REPO}\nmeasured: tg 200 at 0\nllama-server -m Qwen3-0.6B-Q8_0.gguf -b 256 -ub 4096"
    )
    (post,) = chat.ask_slack(text).posts
    assert post.private
    assert "Fixed:" in post.text


def test_a_message_is_checked_by_its_shortcut(chat: Chat) -> None:
    chat.ask_slack(f"hardware set {RIG}", user="U0SHORT")
    form, url = payloads.shortcut(f"```llama-server -hf {REPO}:Q8_0 -c 4096 &amp;&amp; echo done```", user="U0SHORT")
    assert chat.slack("interactivity", form, url).status_code == 200
    chat.settle()
    (post,) = chat.platforms.hooks[url.rpartition("/")[2]].posts
    assert "Q8_0" in post.text or "fits" in post.text.lower()


def test_a_shortcut_that_is_not_ours_is_refused(chat: Chat) -> None:
    form, url = payloads.shortcut("x", callback="other")
    assert chat.slack("interactivity", form, url).status_code == 422


def test_after_thirty_minutes_the_answer_is_the_bot_s_own_message_where_it_may(chat: Chat) -> None:
    chat.with_settings(slack_bot_token=SLACK_TOKEN)
    form = payloads.command(f"{QUESTION} context 9k")
    chat.slack("commands", form, form["response_url"])
    chat.look()
    chat.clock.ahead += timedelta(minutes=31)
    chat.work()
    chat.settle()
    (post,) = chat.platforms.channel
    assert texts(post)[0].startswith("Yes")
    assert post.channel == payloads.CHANNEL


def test_after_thirty_minutes_without_a_token_the_question_ends(chat: Chat) -> None:
    form = payloads.command(f"{QUESTION} context 10k")
    chat.slack("commands", form, form["response_url"])
    chat.look()
    chat.clock.ahead += timedelta(minutes=31)
    chat.work()
    chat.settle()
    assert chat.platforms.channel == []
    assert chat.look() == 0


def test_too_many_requests_are_waited_for(chat: Chat) -> None:
    form = payloads.command("help")
    chat.slack("commands", form, form["response_url"])
    chat.platforms.refuse_next = [httpx.Response(429, headers={"retry-after": "15"}), httpx.Response(503)]
    chat.settle()
    assert len(chat.platforms.hooks[form["response_url"].rpartition("/")[2]].posts) == 1


def test_the_fixtures_are_forms() -> None:
    assert urlencode(payloads.command("x"))
    assert json.loads(payloads.shortcut("x")[0]["payload"])["message"]["text"] == "x"
