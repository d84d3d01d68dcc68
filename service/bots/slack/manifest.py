"""The Slack app's manifest, to paste where an app is created (docs.slack.dev, app manifest reference)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.bots.slack.incoming import SHORTCUTS
from service.bots.vocabulary import OF_MESSAGES, SLACK_COMMAND, shown

_DESCRIPTIONS = {
    "check": "What is wrong with the command in this message",
    "result": "The benchmark in this message, for the leaderboard",
}

# Without the messages tab, chat.postMessage to a person fails with messages_tab_disabled.
_DIRECT_MESSAGES = {"home_tab_enabled": False, "messages_tab_enabled": True, "messages_tab_read_only_enabled": True}


def manifest(address: str, off: Sequence[str], *, with_bot: bool) -> dict[str, Any]:
    """Return the manifest of an app whose service is at `address`.

    `with_bot`: also ask for the permission to post messages, for answers that take over thirty minutes.
    """
    names = [verb.name for verb in shown(off)]
    shortcuts = [
        {"name": name, "type": "message", "callback_id": callback, "description": _DESCRIPTIONS[verb]}
        for name, (callback, verb) in zip(OF_MESSAGES, SHORTCUTS.items(), strict=True)
        if verb in names
    ]
    scopes = ["commands", *(["chat:write"] if with_bot else [])]
    return {
        "display_information": {
            "name": "Offload Advisor",
            "description": "Where to put a GGUF model on your hardware: ranked, explained, ready to paste",
        },
        "features": {
            **({"app_home": _DIRECT_MESSAGES} if with_bot else {}),
            "bot_user": {"display_name": "Offload Advisor", "always_online": True},
            "shortcuts": shortcuts,
            "slash_commands": [
                {
                    "command": SLACK_COMMAND,
                    "url": f"{address}/bots/slack/commands",
                    "description": "The best configs for a GGUF repo on your hardware",
                    "usage_hint": f"{' | '.join(names)} …",
                    "should_escape": False,
                }
            ],
        },
        "oauth_config": {"scopes": {"bot": scopes}},
        "settings": {
            "interactivity": {"is_enabled": True, "request_url": f"{address}/bots/slack/interactivity"},
            "org_deploy_enabled": False,
            "socket_mode_enabled": False,
            "token_rotation_enabled": False,  # nosec B105 (no password)
        },
    }
