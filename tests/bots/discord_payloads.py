"""Interactions as Discord sends them: the shapes of discord-api-docs c98d64b, with a key of ours."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

from nacl.signing import SigningKey

KEY = SigningKey(b"discord-bot-tests-discord-bot-te")
PUBLIC_KEY = KEY.verify_key.encode().hex()
GUILD, CHANNEL, ANNA = "41771983423143937", "645027906669510667", "53908232506183680"
_ids = itertools.count(786008729715212338)


def signed(
    payload: dict[str, Any] | bytes, *, at: float | None = None, signature: str | None = None,
    content_type: str = "application/json",
) -> dict[str, Any]:  # fmt: skip
    """Return what a request takes that carries this payload, signed now."""
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    timestamp = str(int(time.time() if at is None else at))
    made = KEY.sign(timestamp.encode() + content).signature.hex()
    headers = {
        "content-type": content_type,
        "x-signature-timestamp": timestamp,
        "x-signature-ed25519": made if signature is None else signature,
        "user-agent": "Discord-Interactions/1.0 (+https://discord.com)",
    }
    return {"content": content, "headers": headers}


def interaction(
    kind: int, data: dict[str, Any] | None, *, user: str = ANNA, guild: str | None = GUILD
) -> dict[str, Any]:
    """Return an interaction of this type, of somebody in a guild, or in a direct message."""
    number = str(next(_ids))
    who = {"id": user, "username": "anna", "discriminator": "0", "avatar": None, "global_name": "Anna"}
    found: dict[str, Any] = {
        "app_permissions": "442368",
        "application_id": "700",
        "attachment_size_limit": 10485760,
        "authorizing_integration_owners": {"0": guild or "0"},
        "channel": {"id": CHANNEL, "type": 0 if guild else 1},
        "channel_id": CHANNEL,
        "context": 0 if guild else 1,
        "entitlements": [],
        "id": number,
        "locale": "en-GB",
        "token": f"aW50ZXJhY3Rpb246{number}",
        "type": kind,
        "version": 1,
    }
    if guild:
        found |= {"guild_id": guild, "guild_locale": "en-US", "member": {"user": who, "roles": [], "permissions": "0"}}
    else:
        found |= {"user": who}
    return found | ({"data": data} if data is not None else {})


def ping() -> dict[str, Any]:
    """Return Discord's look at whether the endpoint is there."""
    number = str(next(_ids))
    return {"application_id": "700", "id": number, "token": "t", "type": 1, "version": 1, "entitlements": []}


def command(verb: str, words: dict[str, Any], *, action: str | None = None, **who: Any) -> dict[str, Any]:
    """Return a slash command with its options, of a sub-command where `action` names one."""
    kinds = {bool: 5, int: 4, str: 3}
    options: list[dict[str, Any]] = [{"name": n, "type": kinds[type(v)], "value": v} for n, v in words.items()]
    if action:
        options = [{"name": action, "type": 1, "options": options}]
    return interaction(2, {"id": "771825006014889984", "name": verb, "type": 1, "options": options}, **who)


def typing(verb: str, word: str, typed: str, *, action: str | None = None, **who: Any) -> dict[str, Any]:
    """Return an autocomplete interaction: `word` is being typed."""
    payload = command(verb, {word: typed}, action=action, **who)
    options = payload["data"]["options"]
    (options[0]["options"] if action else options)[0]["focused"] = True
    return payload | {"type": 4}


def on_message(
    name: str, content: str, files: list[dict[str, Any]] | None = None, *, by: str = "9", **who: Any
) -> dict[str, Any]:
    """Return a command of the menu of a message that `by` wrote."""
    message = {"id": "867793854505943041", "content": content, "attachments": files or [], "author": {"id": by}}
    data = {
        "id": "866818195033292851",
        "name": name,
        "type": 3,
        "target_id": message["id"],
        "resolved": {"messages": {message["id"]: message}},
    }
    return interaction(2, data, **who)


def form_sent(verb: str, fields: dict[str, str], **who: Any) -> dict[str, Any]:
    """Return a form that was filled in, its inputs in labels."""
    labels = [
        {"type": 18, "id": i, "component": {"type": 4, "id": 50 + i, "custom_id": name, "value": value}}
        for i, (name, value) in enumerate(fields.items())
    ]
    return interaction(5, {"custom_id": verb, "components": labels}, **who)


def form_sent_in_rows(verb: str, fields: dict[str, str], **who: Any) -> dict[str, Any]:
    """Return a form that was filled in, its inputs in action rows, as older clients send it."""
    rows = [
        {"type": 1, "components": [{"type": 4, "custom_id": name, "value": value}]} for name, value in fields.items()
    ]
    return interaction(5, {"custom_id": verb, "components": rows}, **who)


def button(custom_id: str, **who: Any) -> dict[str, Any]:
    """Return a button that was pressed."""
    message = {"id": "1", "content": "", "embeds": []}
    return interaction(3, {"custom_id": custom_id, "component_type": 2}, **who) | {"message": message}
