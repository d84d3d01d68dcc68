"""Answers on Discord: the deferred message is edited, and deleted for what only the asker is to see.

An interaction's token is good for 15 minutes. What takes longer is a message of the bot's in the channel, where it has
a token for that; else the last edit says where to look.
"""

from __future__ import annotations

import httpx
import msgspec

from service.bots.answer import Answer, Outcome, mark_of
from service.bots.discord.render import EPHEMERAL, Message, render
from service.bots.sending import Sent, send
from service.settings import Settings
from service.wire.bots import Interaction, Reply

TOKEN_SECONDS = 15 * 60
LAST_EDIT_SECONDS = 14 * 60  # after this the next edit may be too late


class Delivery:
    """How answers go to Discord."""

    platform = "discord"

    def __init__(self, client: httpx.Client, settings: Settings) -> None:
        self._client, self._settings = client, settings

    def face(self, reply: Reply, outcome: Outcome, age: float) -> tuple[Answer, str] | None:
        """Return what is to stand there while the answer is not final, and a mark by which it is known again.

        `age` of the question, in seconds.
        """
        if age < LAST_EDIT_SECONDS:
            return outcome.answer, mark_of(outcome.answer)
        where = "The answer will be a message here." if self._may_post(reply) else "Look there for what came of it."
        note = f"This takes longer than Discord lets me edit a message. {where}"
        return msgspec.structs.replace(outcome.answer, parts=(*outcome.answer.parts, note)), "last"

    def show(self, asked: Interaction, reply: Reply, answer: Answer, age: float) -> Sent:
        """Show how far an answer is."""
        return self._edit(reply, render(answer))

    def goes_on(self, asked: Interaction, reply: Reply, age: float) -> bool:
        """Return whether an answer can still be given at this age."""
        return age < LAST_EDIT_SECONDS or self._may_post(reply)

    def final(self, asked: Interaction, reply: Reply, answer: Answer, age: float) -> Sent:
        """Give the answer, on whichever way is still open."""
        if age < TOKEN_SECONDS:
            sent = self._turned_private(reply, answer) if answer.private and not reply.private else None
            sent = sent or self._edit(reply, render(answer))
            if sent.kind != "gone":
                return sent
        return self._post(reply, answer) if self._may_post(reply) and not answer.private else Sent("gone")

    def _may_post(self, reply: Reply) -> bool:
        return self._settings.discord_bot_token is not None and reply.channel is not None and not reply.private

    def _turned_private(self, reply: Reply, answer: Answer) -> Sent:
        """A message that everybody saw coming cannot become private: it is deleted, and a private one follows."""
        gone = send(self._client, "DELETE", f"{self._hook(reply)}/messages/@original", None)
        if gone.kind == "later":
            return gone
        message = render(answer)
        body = {**message.body, "flags": EPHEMERAL}
        return send(self._client, "POST", self._hook(reply), body, file=message.file)

    def _edit(self, reply: Reply, message: Message) -> Sent:
        return send(self._client, "PATCH", f"{self._hook(reply)}/messages/@original", message.body, file=message.file)

    def _post(self, reply: Reply, answer: Answer) -> Sent:
        message = render(answer)
        headers = {"Authorization": f"Bot {self._settings.discord_bot_token}"}
        url = f"{self._settings.discord_api}/channels/{reply.channel}/messages"
        return send(self._client, "POST", url, message.body, headers=headers, file=message.file)

    def _hook(self, reply: Reply) -> str:
        return f"{self._settings.discord_api}/webhooks/{reply.application}/{reply.token}"
