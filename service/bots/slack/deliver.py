"""Answers on Slack: messages to the question's `response_url`, which is good for five of them within thirty minutes.

What takes longer is a message of the bot's, where it has a token for that.
"""

from __future__ import annotations

from typing import Any

import httpx

from service.bots.answer import Answer, Outcome
from service.bots.sending import Sent, send
from service.bots.slack.incoming import is_hook
from service.bots.slack.render import render
from service.settings import Settings
from service.wire.bots import Interaction, Reply

ADDRESS_SECONDS, MAX_USES = 30 * 60, 5
_MARGIN_SECONDS = 30


class Delivery:
    """How answers go to Slack."""

    platform = "slack"

    def __init__(self, client: httpx.Client, settings: Settings) -> None:
        self._client, self._settings = client, settings

    def face(self, reply: Reply, outcome: Outcome, age: float) -> tuple[Answer, str] | None:
        """Return what is to be said while the answer is not final: once, and only what takes minutes or asks back.

        Slack's messages to a `response_url` cannot be edited, and five is all there are.
        """
        return (outcome.answer, "once") if outcome.answer.link or outcome.answer.buttons else None

    def show(self, asked: Interaction, reply: Reply, answer: Answer, age: float) -> Sent:
        """Say how far an answer is."""
        return self._respond(asked, reply, answer, age)

    def goes_on(self, asked: Interaction, reply: Reply, age: float) -> bool:
        """Return whether an answer can still be given at this age of the question, in seconds."""
        return self._has_address(asked, age) or self._may_post(reply)

    def final(self, asked: Interaction, reply: Reply, answer: Answer, age: float) -> Sent:
        """Give the answer, on whichever way is still open."""
        if self._has_address(asked, age):
            sent = self._respond(asked, reply, answer, age)
            if sent.kind != "gone":
                return sent
        return self._post(asked, reply, answer) if self._may_post(reply) else Sent("gone")

    def _has_address(self, asked: Interaction, age: float) -> bool:
        return age < ADDRESS_SECONDS - _MARGIN_SECONDS and asked.visit.uses < MAX_USES

    def _may_post(self, reply: Reply) -> bool:
        return self._settings.slack_bot_token is not None and reply.channel is not None

    def _respond(self, asked: Interaction, reply: Reply, answer: Answer, age: float) -> Sent:
        if not is_hook(reply.response_url, self._settings.slack_hooks):
            return Sent("gone")
        kind = "ephemeral" if answer.private or reply.private else "in_channel"
        body = {"response_type": kind, "replace_original": False, **render(answer)}
        return send(self._client, "POST", reply.response_url, body)

    def _post(self, asked: Interaction, reply: Reply, answer: Answer) -> Sent:
        body: dict[str, Any] = {"channel": reply.channel, "link_names": False, **render(answer)}
        method = "chat.postMessage"
        if answer.private or reply.private:
            method, body["user"] = "chat.postEphemeral", asked.account.rpartition(":")[2]
        headers = {"Authorization": f"Bearer {self._settings.slack_bot_token}"}
        return send(self._client, "POST", f"{self._settings.slack_api}/{method}", body, headers=headers)
