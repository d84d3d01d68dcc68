"""A question to a bot: who asks, what, and where the answer goes; the columns of the table `interaction`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

Platform: TypeAlias = Literal["discord", "slack"]
Word = Annotated[str, Meta(max_length=8_192)]


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and where.

    `account`: `discord:<id>` or `slack:<team>:<user>`; `place`: the guild or workspace, such as `discord-guild:<id>` or
    `slack:<team>`, or in direct messages the account itself.
    """

    account: Annotated[str, Meta(max_length=120)]
    place: Annotated[str, Meta(max_length=120)]


class SharedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a user points at: its text (reduced), and the address of an attached text file.

    `is_own`: it was written by the same user.
    """

    is_own: bool = False
    text: Word = ""
    file_url: Annotated[str, Meta(max_length=2_048)] | None = None


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A verb with its arguments by name. `private`: only the asker may see the answer."""

    verb: str
    words: dict[str, Word] = {}
    message: SharedMessage | None = None
    private: bool = False


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Where an answer goes. Discord: `application` and the interaction's `token`; Slack: `response_url`.

    `channel`: for a message by the bot itself, once token or address have expired. `private`: the visibility that the
    platform was told when the question was acknowledged.
    """

    platform: Platform
    application: str = ""
    token: str = ""
    response_url: str = ""
    channel: str | None = None
    private: bool = False


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of an answer. `subject`: the advice or validation waited for; `shown`: hash of the current message.

    `uses`: messages sent so far; `failures`: consecutive attempts that the platform rejected; `looks`: how often the
    subject was checked; `request_id`: of the request that brought the question, for logs. `in_turn`: it uses or changes
    what is saved of its asker, so it waits until their earlier ones of this kind are done, and later ones wait for it.
    """

    subject: str | None = None
    shown: str = ""
    uses: int = 0
    failures: int = 0
    looks: int = 0
    request_id: str | None = None
    in_turn: bool = False


class Interaction(msgspec.Struct, frozen=True, kw_only=True):
    """A question. `due_at`: when to look at it next; None, like `ask` and `reply`, once it is answered."""

    id: str
    account: str
    place: str
    ask: Ask | None
    reply: Reply | None
    visit: Visit
    created_at: datetime
    due_at: datetime | None
