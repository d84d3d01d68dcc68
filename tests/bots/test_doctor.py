"""What `advisor doctor` says of the bots, asked of the platforms themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis

from service import metrics
from service.bots import doctor
from service.flows.operations.components import send_counts
from service.flows.operations.doctor import Diagnosis
from service.queue.embedded import EmbeddedValkey
from tests.bots.conftest import settings_of

TOKENS = {"discord_bot_token": "secret-1", "slack_bot_token": "secret-2"}


@pytest.fixture
def said(
    tmp_path: Path, valkey: EmbeddedValkey, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Diagnosis]]:
    send_counts(redis)  # what earlier tests of this process counted is not this test's
    redis.flushdb()

    def found(discord: httpx.Response, slack: httpx.Response, **settings: Any) -> dict[str, Diagnosis]:
        def answer(request: httpx.Request) -> httpx.Response:
            return discord if "discord" in request.url.host else slack

        client = httpx.Client(transport=httpx.MockTransport(answer))
        monkeypatch.setattr(doctor, "new_client", lambda _: client)
        return {one.part: one for one in doctor.diagnose_bots(settings_of(tmp_path, valkey.url, **settings))}

    return found


def test_a_bot_whose_platform_takes_its_token_is_good(said: Callable[..., dict[str, Diagnosis]]) -> None:
    discord = httpx.Response(200, json={"id": "700"})
    slack = httpx.Response(200, json={"ok": True, "team": "T"}, headers={"x-oauth-scopes": "commands,chat:write"})
    assert {one.state for one in said(discord, slack, **TOKENS).values()} == {"good"}


def test_a_token_that_is_not_taken_or_may_not_write_is_said_with_what_to_do(
    said: Callable[..., dict[str, Diagnosis]],
) -> None:
    discord = httpx.Response(401, json={"message": "401: Unauthorized", "code": 0})
    refused = httpx.Response(200, json={"ok": False, "error": "token_revoked"})
    found = said(discord, refused, **TOKENS)
    assert "401: Unauthorized" in found["Discord"].text
    assert "token_revoked" in found["Slack"].text
    mute = httpx.Response(200, json={"ok": True}, headers={"x-oauth-scopes": "commands"})
    assert "chat:write" in said(discord, mute, **TOKENS)["Slack"].text
    assert {one.state for one in said(discord, mute).values()} == {"warning"}
    assert all(one.fix and "secret" not in str(one) for one in found.values())


def test_answers_that_reached_nobody_are_said_with_what_to_do(
    said: Callable[..., dict[str, Diagnosis]], redis: Redis
) -> None:
    metrics.BOT_ANSWERS_LOST.of("slack", "not-invited").inc()
    send_counts(redis)
    found = said(httpx.Response(500), httpx.Response(500))
    assert "answers on slack reached nobody (not-invited)" in found["answers"].text
    assert "/invite" in (found["answers"].fix or "")
