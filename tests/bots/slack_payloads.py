"""Forms as Slack sends them: the shapes of docs.slack.dev, with a secret of ours."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import time
from typing import Any
from urllib.parse import urlencode

from tests.bots.platforms import SLACK_HOOKS

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
TEAM, CHANNEL, BERT = "T1DC2JH3J", "C12345678", "U2CERLKJA"
_numbers = itertools.count(1)


def signed(
    form: dict[str, str] | bytes, *, at: float | None = None, signature: str | None = None,
    content_type: str = "application/x-www-form-urlencoded",
) -> dict[str, Any]:  # fmt: skip
    """Return what a request takes that carries this form, signed now."""
    content = form if isinstance(form, bytes) else urlencode(form).encode()
    timestamp = str(int(time.time() if at is None else at))
    digest = hmac.new(SECRET.encode(), b"v0:" + timestamp.encode() + b":" + content, hashlib.sha256).hexdigest()
    headers = {
        "content-type": content_type,
        "x-slack-request-timestamp": timestamp,
        "x-slack-signature": f"v0={digest}" if signature is None else signature,
        "user-agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
    }
    return {"content": content, "headers": headers}


def new_address() -> tuple[str, str]:
    """Return a trigger id and an address for answers that were not there before."""
    number = next(_numbers)
    return f"13345224609.738474920.{number:032x}", f"{SLACK_HOOKS}/commands/{TEAM}/{number}/hook{number}"


def command(text: str, *, user: str = BERT, team: str = TEAM) -> dict[str, str]:
    """Return a slash command."""
    trigger, address = new_address()
    return {
        "token": "gIkuvaNzQIHg97ATvDxqgjtO",
        "team_id": team,
        "team_domain": "example",
        "channel_id": CHANNEL,
        "channel_name": "test",
        "user_id": user,
        "user_name": "bert",
        "command": "/advisor",
        "text": text,
        "api_app_id": "A123456",
        "is_enterprise_install": "false",
        "response_url": address,
        "trigger_id": trigger,
    }


def _payload(kind: str, user: str, more: dict[str, Any]) -> tuple[dict[str, str], str]:
    trigger, address = new_address()
    payload = {
        "type": kind,
        "team": {"id": TEAM, "domain": "example"},
        "user": {"id": user, "name": "bert"},
        "channel": {"id": CHANNEL, "name": "test"},
        "api_app_id": "A123456",
        "token": "gIkuvaNzQIHg97ATvDxqgjtO",
        "trigger_id": trigger,
        "response_url": address,
        **more,
    }
    return {"payload": json.dumps(payload)}, address


def button(element: dict[str, Any], *, user: str = BERT) -> tuple[dict[str, str], str]:
    """Return a button that was pressed, and where answers go."""
    action = {**element, "block_id": "b", "action_ts": "1548426417.840180"}
    return _payload("block_actions", user, {"actions": [action], "container": {"type": "message"}})


def shortcut(
    text: str, *, callback: str = "check_message", user: str = BERT, by: str = "U9"
) -> tuple[dict[str, str], str]:
    """Return a shortcut on a message that `by` wrote, and where answers go."""
    message = {"type": "message", "user": by, "text": text, "ts": "1548261231.000200"}
    return _payload("message_action", user, {"callback_id": callback, "message_ts": message["ts"], "message": message})
