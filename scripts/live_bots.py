"""What `make live-check` looks at of Discord and Slack: their sandboxes, with the settings of an operator's own bots.

Asked by itself: whether the tokens are taken, and what a message to `--slack-channel` or `--discord-channel` is
answered.
What only a person can see is printed as a checklist.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from service.bots.answer import Answer
from service.bots.discord.deliver import headers
from service.bots.discord.render import render as render_for_discord
from service.bots.doctor import diagnose_bots
from service.bots.sending import Sent, new_client, of_discord, of_slack, send
from service.bots.slack.render import render as render_for_slack
from service.settings import Settings, load_settings

_TEST = Answer(title="A message of `make live-check`: it may be deleted.")
CHECKLIST = {
    "Discord": (
        "save the Interactions Endpoint URL: Discord takes it only if good and bad signatures are told apart",
        "`advisor bots discord register --guild ID`, then `/help`: the answer is edited in within three seconds",
        "`/token` twice: the first shows a token to you alone, the second says that there is one already",
        "`/check`: the form's title is whole, and your saved rig is in it",
        "a `/validate` of over 15 minutes in a channel where the bot may not write: its answer is a direct message",
        "a message's menu, Check this command, with a text file attached",
    ),
    "Slack": (
        "make an app of `advisor bots slack manifest` in a sandbox workspace: it is taken without a change",
        "`/advisor help` in a channel that the bot was not invited to: it is answered, to you alone",
        "a `/advisor validate` that takes over 30 minutes: after 25 it says where the answer will be, and it is there",
        "the same after `/invite`: the answer is a message in the channel",
        "press each button once, and a shortcut on a message",
    ),
}


class Finding(NamedTuple):
    """One check: whether it is as expected, and what was seen."""

    what: str
    as_expected: bool
    seen: str


def findings(discord_channel: str | None, slack_channel: str | None) -> Iterator[Finding]:
    """Yield the checks; none if no bot is set up."""
    settings = load_settings(os.environ)
    for one in diagnose_bots(settings):
        yield Finding(one.part, one.state == "good", one.text)
    if discord_channel is not None:
        yield _message("Discord", discord_channel, _on_discord(settings, discord_channel))
    if slack_channel is not None:
        yield _message("Slack", slack_channel, _on_slack(settings, slack_channel))


def _message(platform: str, channel: str, sent: Sent) -> Finding:
    seen = " ".join(filter(None, (sent.kind, sent.code, sent.why)))
    known = sent.kind == "sent" or bool(sent.why)
    return Finding(f"{platform}: a message to {channel}", known, seen)


def _on_discord(settings: Settings, channel: str) -> Sent:
    url, meaning = f"{settings.discord_api}/channels/{channel}/messages", partial(of_discord, age=60)
    with new_client(settings) as client:
        body = render_for_discord(_TEST).body
        return send(client, "POST", url, body, meaning, headers=headers(settings, as_bot=True))


def _on_slack(settings: Settings, channel: str) -> Sent:
    authorization = {"Authorization": f"Bearer {settings.slack_bot_token}"}
    with new_client(settings) as client:
        body = {"channel": channel, **render_for_slack(_TEST)}
        return send(client, "POST", f"{settings.slack_api}/chat.postMessage", body, of_slack, headers=authorization)


def checklist() -> Iterator[str]:
    """Yield what a person has to check, line by line."""
    for platform, steps in CHECKLIST.items():
        yield f"{platform}, by hand:"
        yield from (f"  [ ] {step}" for step in steps)
    yield "What differs goes into tests/recorded first, then into the code: docs/recordings.md says how."
