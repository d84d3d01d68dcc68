"""Answers on Discord: the deferred message is edited, or deleted and replaced if only the asker may see the answer.

An interaction's token is good for 15 minutes. If the bot has a token of its own, a later answer is a new message in
the channel, or a direct message if it is private or the bot may not write in the channel. Without a bot token, the
last edit says where to look.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx
import msgspec

from service import __version__
from service.bots.answer import Answer, Outcome, mark_of
from service.bots.discord.render import EPHEMERAL, Message, render
from service.bots.sending import Sent, ask, of_discord, send
from service.settings import Settings
from service.wire.bots import Interaction, Reply

TOKEN_SECONDS = 15 * 60
LAST_EDIT_SECONDS = 14 * 60  # any later and the next edit may come too late


class Delivery:
    """Delivers answers to Discord. `age` is the question's, in seconds, throughout."""

    def __init__(self, client: httpx.Client, settings: Settings) -> None:
        self._client, self._settings = client, settings

    def interim(self, reply: Reply, outcome: Outcome, age: float) -> tuple[Answer, str] | None:
        """Return what to show while the answer is not final, and a mark that tells whether it is already shown."""
        if age < LAST_EDIT_SECONDS:
            return outcome.answer, mark_of(outcome.answer)
        note = f"This takes longer than Discord lets me edit a message. {self._where_next(reply)}"
        return msgspec.structs.replace(outcome.answer, parts=(*outcome.answer.parts, note)), "last"

    def show(self, asked: Interaction, reply: Reply, answer: Answer, age: float) -> Sent:
        """Show an answer that is not final yet."""
        return self._edit(reply, render(answer), age)

    def goes_on(self, asked: Interaction, age: float) -> bool:
        """Return whether an answer could still be delivered at this age."""
        return age < LAST_EDIT_SECONDS or self._has_bot

    def reaches(self, reply: Reply, age: float) -> Sent:
        """Check that an answer would be seen now: Discord must know of the acknowledgement before it can be edited."""
        meaning = partial(of_discord, age=age)
        return send(self._client, "GET", self._original(reply), None, meaning, headers=headers(self._settings))

    def final(self, asked: Interaction, reply: Reply, answer: Answer, age: float) -> Sent:
        """Deliver the answer by whichever way is still open."""
        sent = Sent("gone", why="expired")
        if age < TOKEN_SECONDS:
            private = self._turned_private(reply, answer, age) if answer.private and not reply.private else None
            sent = private or self._edit(reply, render(answer), age)
        if sent.kind == "gone" and self._has_bot and reply.channel and not (answer.private or reply.private):
            sent = self._post(reply.channel, answer, age)
        if sent.kind == "gone" and self._has_bot:
            sent = self._write_to(asked, answer, age) or sent
        return sent

    @property
    def _has_bot(self) -> bool:
        return self._settings.discord_bot_token is not None

    def _where_next(self, reply: Reply) -> str:
        if not self._has_bot:
            return "Look there for the result."
        if reply.private or reply.channel is None:
            return "The answer will be a direct message."
        return "The answer will be a message here, or a direct message if I may not write here."

    def _turned_private(self, reply: Reply, answer: Answer, age: float) -> Sent:
        """Delete the message, which everybody saw being announced and which cannot become private; send a private
        one."""
        deleted = self._send("DELETE", self._original(reply), None, age)
        if deleted.kind == "later":
            return deleted
        message = render(answer)
        return self._send("POST", self._hook(reply), {**message.body, "flags": EPHEMERAL}, age, message.file)

    def _edit(self, reply: Reply, message: Message, age: float) -> Sent:
        return self._send("PATCH", self._original(reply), message.body, age, message.file)

    def _post(self, channel: str, answer: Answer, age: float) -> Sent:
        message, url = render(answer), f"{self._settings.discord_api}/channels/{channel}/messages"
        return self._send("POST", url, message.body, age, message.file, as_bot=True)

    def _write_to(self, asked: Interaction, answer: Answer, age: float) -> Sent | None:
        """Send the answer as a direct message; None if no channel to the asker can be opened."""
        body = {"recipient_id": asked.account.rpartition(":")[2]}
        url = f"{self._settings.discord_api}/users/@me/channels"
        opened = ask(self._client, "POST", url, body, headers=headers(self._settings, as_bot=True))
        channel = opened.get("id")
        return self._post(channel, answer, age) if isinstance(channel, str) and channel.isdigit() else None

    def _send(
        self, method: str, url: str, body: Any, age: float, file: str | None = None, *, as_bot: bool = False
    ) -> Sent:
        sent_with = headers(self._settings, as_bot=as_bot)
        return send(self._client, method, url, body, partial(of_discord, age=age), headers=sent_with, file=file)

    def _original(self, reply: Reply) -> str:
        return f"{self._hook(reply)}/messages/@original"

    def _hook(self, reply: Reply) -> str:
        return f"{self._settings.discord_api}/webhooks/{reply.application}/{reply.token}"


def headers(settings: Settings, *, as_bot: bool = False) -> dict[str, str]:
    """Return the User-Agent Discord asks for, with this service's URL; `as_bot`: also the bot's token."""
    found = {"User-Agent": f"DiscordBot ({settings.public_url or settings.discord_api}, {__version__})"}
    return {**found, "Authorization": f"Bot {settings.discord_bot_token}"} if as_bot else found
