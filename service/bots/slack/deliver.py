"""Answers on Slack: messages to the question's `response_url`, which takes five of them within thirty minutes.

If the bot has a token of its own, a later answer is a new message in the channel if it was invited there, else a
direct message.
"""

from __future__ import annotations

from typing import Any

import httpx
import msgspec

from service.bots.answer import Answer, Outcome
from service.bots.sending import Sent, of_slack, send
from service.bots.slack.incoming import is_hook
from service.bots.slack.render import render
from service.settings import Settings
from service.wire.bots import Interaction, Reply

ADDRESS_SECONDS, MAX_USES = 30 * 60, 5
LAST_WORD_SECONDS = 25 * 60  # from here on, an interim message says where the answer will be
_MARGIN_SECONDS = 30


class Delivery:
    """Delivers answers to Slack. `age` is the question's, in seconds, throughout."""

    def __init__(self, client: httpx.Client, settings: Settings) -> None:
        self._client, self._settings = client, settings

    def interim(self, reply: Reply, outcome: Outcome, age: float) -> tuple[Answer, str] | None:
        """Return what to say while the answer is not final, and a mark that tells whether it was said already.

        Messages to a `response_url` cannot be edited and only five are allowed: so at first only what takes minutes or
        asks back is shown and, shortly before the address expires, where the answer will be.
        """
        if age < LAST_WORD_SECONDS:
            return (outcome.answer, "once") if outcome.answer.link or outcome.answer.buttons else None
        if age >= ADDRESS_SECONDS - _MARGIN_SECONDS:
            return None
        note = f"This takes longer than Slack lets me answer here. {self._where_next(reply)}"
        return msgspec.structs.replace(outcome.answer, parts=(*outcome.answer.parts, note), private=True), "last"

    def show(self, asked: Interaction, reply: Reply, answer: Answer, age: float) -> Sent:
        return self._respond(reply, answer)

    def goes_on(self, asked: Interaction, age: float) -> bool:
        """Return whether an answer could still be delivered at this age."""
        return self._has_address(asked, age) or self._has_bot

    def reaches(self, reply: Reply, age: float) -> Sent:
        """Check that an answer would be seen now: always, as Slack's address takes messages at once."""
        return Sent("sent")

    def final(self, asked: Interaction, reply: Reply, answer: Answer, age: float) -> Sent:
        """Deliver the answer by whichever way is still open."""
        sent = Sent("gone", why="expired")
        if self._has_address(asked, age):
            sent = self._respond(reply, answer)
        if sent.kind == "gone" and self._has_bot and reply.channel:
            sent = self._post(asked, reply.channel, answer, private=answer.private or reply.private)
        if sent.kind == "gone" and self._has_bot and sent.why != "token":
            sent = self._post(asked, _user(asked), answer, private=False)
        return sent

    @property
    def _has_bot(self) -> bool:
        return self._settings.slack_bot_token is not None

    def _has_address(self, asked: Interaction, age: float) -> bool:
        return age < ADDRESS_SECONDS - _MARGIN_SECONDS and asked.visit.uses < MAX_USES

    def _where_next(self, reply: Reply) -> str:
        if not self._has_bot:
            return "Follow the link to see the result."
        here = (
            "The answer comes as a message here if you invite me to this channel (`/invite`), or else directly to you."
        )
        return here if reply.channel else "The answer will be a direct message."

    def _respond(self, reply: Reply, answer: Answer) -> Sent:
        if not is_hook(reply.response_url, self._settings.slack_hooks):
            return Sent("gone", why="expired")
        kind = "ephemeral" if answer.private or reply.private else "in_channel"
        body = {"response_type": kind, "replace_original": False, **render(answer)}
        return send(self._client, "POST", reply.response_url, body, of_slack)

    def _post(self, asked: Interaction, channel: str, answer: Answer, *, private: bool) -> Sent:
        """Post as the bot; `private`: so that only the asker sees it in the channel."""
        body: dict[str, Any] = {"channel": channel, "link_names": False, **render(answer)}
        method = "chat.postMessage"
        if private:
            method, body["user"] = "chat.postEphemeral", _user(asked)
        headers = {"Authorization": f"Bearer {self._settings.slack_bot_token}"}
        return send(self._client, "POST", f"{self._settings.slack_api}/{method}", body, of_slack, headers=headers)


def _user(asked: Interaction) -> str:
    return asked.account.rpartition(":")[2]
