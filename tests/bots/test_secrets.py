"""What people type to bots is reduced before it is kept: planted secrets are in no table, queue or log."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from service.store.tables import metadata
from tests.bots import discord_payloads as discord
from tests.bots import slack_payloads as slack
from tests.bots.conftest import Chat
from tests.bots.test_answers import REPO
from tests.flows.results.submitted import RIG, sweep

SECRETS = ("hf_QQQQwwwwEEEErrrrTTTT", "sk-PLANTEDplantedPLANTED", "annalena", "192.168.77.7", "GPU-5ecre7aa-0000")
COMMAND = (
    f"HF_TOKEN={SECRETS[0]} /home/annalena/bin/llama-sweep-bench -m /home/annalena/models/{REPO}/Qwen3-0.6B-Q8_0.gguf"
    f" -c 4096 -ngl 99 -fa on --api-key {SECRETS[1]} --host {SECRETS[3]}"
)
MACHINE = f"{RIG}\nannalena@annalena-pc:~$ nvidia-smi\nhostname: annalena-pc"


def everything(chat: Chat) -> str:
    """Return all rows of all tables, and everything in Redis."""
    with chat.context.engine.connect() as connection:
        rows = [str(row) for table in metadata.sorted_tables for row in connection.execute(select(table))]
    redis = chat.context.redis
    kept = [str(redis.dump(key)) for key in redis.scan_iter()] + [str(key) for key in redis.scan_iter()]
    return "\n".join(rows + kept)


def test_planted_secrets_are_kept_nowhere(
    chat: Chat, user: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    paste = f"```\n{COMMAND}\n```\n{sweep(255.0)}"
    for payload in (
        discord.command("advise", {"repo": REPO, "hardware": MACHINE}, user=user),
        discord.command("hardware", {"rig": MACHINE}, action="set", user=user),
        discord.form_sent("check", {"command": COMMAND, "rig": MACHINE}, user=user),
        discord.form_sent("result", {"text": paste, "rig": MACHINE}, user=user),
        discord.on_message("Check this command", paste, user=user),
        discord.on_message("Add to leaderboard", paste, user=user),
    ):
        assert chat.discord(payload).status_code == 200
    for form in (
        slack.command(f"check\nrig: {RIG}\n{COMMAND}"),
        slack.command(f"result\nrig: {RIG}\n{COMMAND}\n{sweep(256.0)}"),
    ):
        chat.slack("commands", form, form["response_url"])
    form, address = slack.shortcut(paste)
    chat.slack("interactivity", form, address)
    taken = everything(chat)
    chat.settle()
    said = "".join(capfd.readouterr()) + caplog.text
    for secret in SECRETS[:4]:
        assert secret not in taken
        assert secret not in everything(chat)
        assert secret not in said
