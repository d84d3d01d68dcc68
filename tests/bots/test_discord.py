"""Discord, from the request it sends to the message that stands there."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import httpx
import pytest

from service.store.chat import interactions as store
from service.store.tables import interaction
from tests.bots import discord_payloads as payloads
from tests.bots.conftest import BOT_TOKEN, Chat
from tests.bots.platforms import FILES

REPO, RIG = "Qwen/Qwen3-0.6B-GGUF", "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"
QUESTION = {"repo": REPO, "hardware": RIG}


def title(post: Any) -> str:
    return str(post.body["embeds"][0]["title"])


def test_a_ping_is_answered(chat: Chat) -> None:
    assert chat.discord(payloads.ping()).json() == {"type": 1}


BAD = {
    "no signature": {"signature": ""},
    "a wrong signature": {"signature": "00" * 64},
    "one that is too long": {"signature": "ab" * 65},
    "one that is not hex": {"signature": "zz" * 64},
    "one with blanks": {"signature": "a b" + " b" * 62 + "c"},
    "a stale one": {"at": 1_700_000_000},
    "one of the future": {"at": 4_000_000_000},
    "another content type": {"content_type": "text/plain"},
}


@pytest.mark.parametrize("how", BAD.values(), ids=list(BAD))
def test_what_discord_did_not_sign_like_this_is_refused_and_nothing_is_kept(chat: Chat, how: dict[str, Any]) -> None:
    before = store.count_open(chat.context.engine)
    reply = chat.discord(payloads.command("advise", QUESTION), **how)
    assert reply.status_code in (400, 401)
    assert store.count_open(chat.context.engine) == before


@pytest.mark.parametrize("change", ["body", "timestamp", "replay", "headers"])
def test_what_was_changed_after_it_was_signed_or_comes_again_is_refused(chat: Chat, change: str) -> None:
    request = payloads.signed(payloads.command("advise", QUESTION))
    if change == "body":
        request["content"] = request["content"].replace(b"128GB", b"129GB")
    elif change == "timestamp":
        request["headers"]["x-signature-timestamp"] = str(int(request["headers"]["x-signature-timestamp"]) + 1)
    elif change == "replay":
        assert chat.http.post("/bots/discord", **request).status_code == 200
    else:
        request["headers"] = {"content-type": "application/json"}
    before = store.count_open(chat.context.engine)
    assert chat.http.post("/bots/discord", **request).status_code == 401
    assert store.count_open(chat.context.engine) == before


def test_a_replay_is_refused_by_the_database_where_redis_forgot_it(chat: Chat) -> None:
    payload = payloads.command("advise", QUESTION)
    assert chat.discord(payload).status_code == 200
    chat.context.redis.flushall()
    assert chat.discord(payload).status_code == 401


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"type": 2}', b"\xff\xfe", b"[" * 20_000,
     json.dumps(payloads.command("advise", {}) | {"application_id": "701"}).encode(),
     json.dumps(payloads.interaction(99, {})).encode(),
     json.dumps(payloads.command("advise", {}) | {"member": None}).encode(),
     json.dumps(payloads.command("advise", {}) | {"token": "../../users"}).encode(),
     json.dumps(payloads.interaction(2, {"name": "x", "options": [{"name": "a", "options": [1]}]})).encode()],
)  # fmt: skip
def test_what_is_signed_but_is_no_interaction_of_ours_is_refused(chat: Chat, body: bytes) -> None:
    reply = chat.http.post("/bots/discord", **payloads.signed(body))
    assert reply.status_code == 422


def test_an_advice_is_deferred_shown_in_progress_and_then_complete(chat: Chat, user: str) -> None:
    payload = payloads.command("advise", QUESTION | {"context": "7k"}, user=user)
    assert chat.discord(payload).json() == {"type": 5}
    hook = chat.platforms.hooks[payload["token"]]
    chat.look()
    assert "waiting for a worker" in title(hook.original)
    chat.settle()
    assert title(hook.original).startswith("Yes")
    shown = hook.shown.body["embeds"][0]["description"]
    assert "```bash\nhf download" in shown
    assert "llama-server" in shown
    labels = [one["label"] for one in hook.shown.body["components"][0]["components"]]
    assert labels[0] == "Show commands"
    assert labels[-1] == "Permalink"
    assert chat.look() == 0


def test_the_buttons_of_an_advice_ask_further_for_anyone_who_presses_them(chat: Chat, user: str) -> None:
    post = chat.ask_discord("advise", QUESTION).original
    other = chat.press_discord("With", post, user=user)
    assert other.private
    assert other.shown.text
    commands = chat.press_discord("Show commands", post, user=user).original
    assert "llama-bench" in commands.text or "llama-sweep-bench" in commands.text
    longer = chat.press_discord("Context 32k", post, user=user).original
    assert title(longer).startswith("Yes")
    nobody = chat.press_discord("Measure this", post, user=user).original
    assert "host" in title(nobody)


def test_a_saved_rig_is_used_and_what_is_said_of_it_is_the_asker_s_alone(chat: Chat, user: str) -> None:
    saved = chat.ask_discord("hardware", {"rig": RIG}, action="set", user=user)
    assert saved.private
    answered = chat.ask_discord("advise", {"repo": REPO}, user=user)
    assert answered.private
    assert title(answered.original).startswith("Yes")
    other = chat.ask_discord("advise", {"repo": REPO}, user=f"{user}9")
    assert "name the hardware" in title(other.original).lower()
    assert "your rig and" not in title(chat.ask_discord("hardware", action="forget", user=user).original)
    assert "No rig" in title(chat.ask_discord("hardware", action="show", user=user).original)


def test_an_error_of_a_public_question_is_said_in_private(chat: Chat, user: str) -> None:
    hook = chat.ask_discord("advise", {"repo": REPO, "hardware": "RTX 9999"}, user=user)
    assert hook.deleted
    assert hook.original is None
    assert hook.posts[0].private
    assert "RTX 5090" in hook.posts[0].text
    assert "/advise repo:ubergarm/" in hook.posts[0].text


def test_a_token_is_shown_once_and_can_be_replaced(chat: Chat, user: str) -> None:
    first = chat.ask_discord("token", user=user)
    assert first.private
    assert "adv_" in first.shown.text
    again = chat.ask_discord("token", user=user)
    assert "adv_" not in again.shown.text
    assert "adv_" in chat.press_discord("Revoke it", again.original, user=user).shown.text
    with chat.context.engine.connect() as connection:
        assert "adv_" not in str(connection.execute(interaction.select()).all())


def test_check_asks_by_a_form_with_the_saved_rig_in_it(chat: Chat, user: str) -> None:
    chat.ask_discord("hardware", {"rig": RIG}, action="set", user=user)
    shown = chat.discord(payloads.command("check", {}, user=user)).json()
    assert shown["type"] == 9
    assert 1 <= len(shown["data"]["components"]) <= 5
    assert shown["data"]["title"] == "What is wrong with a command you use"
    fields = {one["component"]["custom_id"]: one["component"] for one in shown["data"]["components"]}
    assert fields["rig"]["value"] == RIG
    assert all(len(one["label"]) <= 45 and len(one["component"]["placeholder"]) <= 100
               for one in shown["data"]["components"])  # fmt: skip


@pytest.mark.parametrize("made", [payloads.form_sent, payloads.form_sent_in_rows])
def test_a_check_has_the_verdict_three_findings_and_the_fixed_command(chat: Chat, user: str, made: Any) -> None:
    command = f"llama-server -m /home/anna/models/{REPO}/Qwen3-0.6B-Q8_0.gguf -ngl 99 -b 256 -ub 4096 -c 4096 --mlock"
    payload = made("check", {"command": command, "rig": RIG, "measured": "tg 200 pp 9000 at 0"}, user=user)
    assert chat.discord(payload).json() == {"type": 5, "data": {"flags": 64}}
    with chat.context.engine.connect() as connection:
        assert "anna" not in str(connection.execute(interaction.select()).all())
    chat.settle()
    post = chat.platforms.hooks[payload["token"]].shown
    shown = post.body["embeds"][0]["description"]
    assert "Fixed: TG " in shown
    assert " at 0 tokens; fits: CUDA0 " in shown
    assert "-b 4096" in shown
    assert len([line for line in shown.split("\n") if line]) <= 10


def test_a_file_of_which_no_paths_are_kept_is_not_given_back(chat: Chat, user: str) -> None:
    unit = f"[Service]\nExecStart=llama-server -m /home/anna/models/{REPO}/Qwen3-0.6B-Q8_0.gguf -c 4096 --mlock\n"
    payload = payloads.form_sent("check", {"command": unit, "rig": RIG}, user=user)
    chat.discord(payload)
    chat.settle()
    shown = str(chat.platforms.hooks[payload["token"]].shown.body)
    assert "--mlock" in shown
    assert "Fixed" not in shown
    assert "ExecStart" not in shown


def test_a_message_is_checked_with_its_log_and_its_attached_file(chat: Chat, user: str) -> None:
    chat.ask_discord("hardware", {"rig": RIG}, action="set", user=user)
    text = f"why so slow?\n```\n./llama-server -hf {REPO}:Q8_0 \\\n  -c 4096 -ngl 99\n```\nthanks @everyone"
    log = "prompt eval time =  100.00 ms /  512 tokens ( 0.20 ms per token, 5120.00 tokens per second)\n"
    address = f"{FILES}/attachments/1/2/server.log"
    chat.platforms.files[address] = log.encode()
    file = {"id": "1", "filename": "server.log", "size": len(log), "url": address, "content_type": "text/plain"}
    payload = payloads.on_message("Check this command", text, [file], user=user)
    assert chat.discord(payload).status_code == 200
    chat.settle()
    post = chat.platforms.hooks[payload["token"]].shown
    assert "fits" in post.text.lower()
    assert "At 4,096 tokens" in post.text or "t/s" in post.text


def test_a_file_elsewhere_is_never_asked_for(chat: Chat, user: str) -> None:
    chat.ask_discord("hardware", {"rig": RIG}, action="set", user=user)
    file = {"id": "1", "filename": "a.log", "size": 5, "url": "http://169.254.169.254/a.log", "content_type": "text/x"}
    payload = payloads.on_message("Check this command", "llama-server -m a.gguf", [file], user=user)
    chat.discord(payload)
    chat.settle()
    assert "is not where the platform" in chat.platforms.hooks[payload["token"]].shown.text


def test_a_message_without_a_command_says_so(chat: Chat, user: str) -> None:
    payload = payloads.on_message("Check this command", "hello", user=user)
    chat.discord(payload)
    chat.settle()
    assert "there is no command" in chat.platforms.hooks[payload["token"]].shown.text.lower()


def test_repos_variants_and_cards_are_proposed_while_they_are_typed(chat: Chat, user: str) -> None:
    chat.ask_discord("advise", QUESTION)

    def proposed(payload: dict[str, Any]) -> list[str]:
        reply = chat.discord(payload).json()
        assert reply["type"] == 8
        assert len(reply["data"]["choices"]) <= 25
        return [choice["value"] for choice in reply["data"]["choices"]]

    assert proposed(payloads.typing("advise", "repo", "qwen3")) == [REPO]
    assert f"{REPO}:Q8_0" in proposed(payloads.typing("advise", "repo", f"{REPO}:q8"))
    assert "2x5090 + RTX 4090" in proposed(payloads.typing("advise", "hardware", "2x5090 + 4090"))
    assert "RTX 3090" in proposed(payloads.typing("hardware", "rig", "rtx 309", action="set"))
    assert proposed(payloads.typing("advise", "hardware", "", user=user)) == []
    chat.ask_discord("hardware", {"rig": RIG}, action="set", user=user)
    assert proposed(payloads.typing("advise", "hardware", "", user=user)) == [RIG]
    assert proposed(payloads.typing("advise", "goal", "x")) == []


def test_after_fourteen_minutes_the_last_edit_says_where_to_look(chat: Chat, user: str) -> None:
    payload = payloads.command("advise", QUESTION | {"context": "8k"}, user=user)
    chat.discord(payload)
    chat.look()
    chat.clock.ahead += timedelta(minutes=14.2)
    chat.look()
    hook = chat.platforms.hooks[payload["token"]]
    assert "takes longer than Discord lets me" in hook.shown.text
    chat.clock.ahead += timedelta(minutes=5)
    assert chat.look() == 0


def test_with_a_bot_token_a_late_answer_is_a_message_in_the_channel(chat: Chat, user: str) -> None:
    chat.with_settings(discord_bot_token=BOT_TOKEN)
    payload = payloads.command("advise", QUESTION | {"context": "12k"}, user=user)
    chat.discord(payload)
    chat.look()
    for _ in range(3):
        chat.clock.ahead += timedelta(minutes=14.2)
        chat.look()
    assert "will be a message here" in chat.platforms.hooks[payload["token"]].shown.text
    chat.work()
    chat.settle()
    (post,) = chat.platforms.channel
    assert title(post).startswith("Yes")
    assert post.channel == payloads.CHANNEL


def test_a_late_answer_of_a_private_question_is_a_direct_message(chat: Chat, user: str) -> None:
    chat.with_settings(discord_bot_token=BOT_TOKEN)
    chat.ask_discord("hardware", {"rig": RIG}, action="set", user=user)
    payload = payloads.command("advise", {"repo": REPO, "context": "13k"}, user=user)
    chat.discord(payload)
    chat.look()
    chat.clock.ahead += timedelta(minutes=16)
    chat.work()
    chat.settle()
    assert [post.channel for post in chat.platforms.channel] == [f"9{user}"]


def test_too_many_requests_are_waited_for_as_long_as_discord_says(chat: Chat, user: str) -> None:
    payload = payloads.command("help", {}, user=user)
    chat.discord(payload)
    chat.platforms.refuse_next = [httpx.Response(429, headers={"retry-after": "20"}, json={"retry_after": 20})]
    chat.look()
    hook = chat.platforms.hooks[payload["token"]]
    assert hook.original is None
    chat.clock.ahead += timedelta(seconds=10)
    assert chat.look() == 0
    chat.clock.ahead += timedelta(seconds=11)
    assert chat.look() == 1
    assert hook.original is not None


@pytest.mark.parametrize("status", [500, 502, 400])
def test_what_discord_does_not_take_is_sent_again_or_in_its_shortest_form(chat: Chat, user: str, status: int) -> None:
    payload = payloads.command("help", {}, user=user)
    chat.discord(payload)
    chat.platforms.refuse_next = [httpx.Response(status)]
    chat.settle()
    assert chat.platforms.hooks[payload["token"]].original is not None


def test_a_token_is_not_lost_when_discord_is_busy_for_a_moment(chat: Chat, user: str) -> None:
    payload = payloads.command("token", {}, user=user)
    chat.discord(payload)
    chat.platforms.refuse_next = [httpx.Response(429, headers={"retry-after": "0.05"})]
    chat.settle()
    assert "adv_" in chat.platforms.hooks[payload["token"]].shown.text


def test_a_courier_that_dies_leaves_its_question_to_the_next(chat: Chat, user: str) -> None:
    from service.flows.chat import interactions

    payload = payloads.command("help", {}, user=user)
    chat.discord(payload)
    assert len(interactions.claim(chat.context, 100)) == 1  # and nothing comes of it
    assert chat.look() == 0
    chat.clock.ahead += timedelta(seconds=31)
    assert chat.look() == 1
    assert chat.platforms.hooks[payload["token"]].original is not None
