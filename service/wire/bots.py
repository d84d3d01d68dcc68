"""What somebody asks a bot: who, what, and where the answer goes. These are the columns of the table `interaction`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

Platform: TypeAlias = Literal["discord", "slack"]
Word = Annotated[str, Meta(max_length=8_192)]


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and where. `account`: `discord:<id>` or `slack:<team>:<user>`; `place`: the guild or workspace, such as
    `discord-guild:<id>` or `slack:<team>`, or the account itself in direct messages.
    """

    account: Annotated[str, Meta(max_length=120)]
    place: Annotated[str, Meta(max_length=120)]


class SharedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that somebody points at: its text (reduced), and the address of a text file attached to it.

    `is_own`: the person who points at it wrote it.
    """

    is_own: bool = False
    text: Word = ""
    file_url: Annotated[str, Meta(max_length=2_048)] | None = None


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A verb with its words by name. `private`: only the asker is to see the answer."""

    verb: str
    words: dict[str, Word] = {}
    message: SharedMessage | None = None
    private: bool = False


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Where an answer goes. Discord: `application` and the interaction's `token`; Slack: `response_url`.

    `channel`: for a message of the bot's own, after token or address have ended. `private`: how the platform was told
    to show the answer when the question was taken.
    """

    platform: Platform
    application: str = ""
    token: str = ""
    response_url: str = ""
    channel: str | None = None
    private: bool = False


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """How far an answer is. `subject`: the advice or validation that is waited for; `shown`: hash of what stands there.

    `uses`: messages sent so far; `failures`: attempts in a row that the platform did not take; `looks`: how often the
    subject was looked at; `request_id`: of the request that brought the question, for logs.
    """

    subject: str | None = None
    shown: str = ""
    uses: int = 0
    failures: int = 0
    looks: int = 0
    request_id: str | None = None


class Interaction(msgspec.Struct, frozen=True, kw_only=True):
    """A question. `due_at`: when to look at it; None, as `ask` and `reply`, once it is answered."""

    id: str
    account: str
    place: str
    ask: Ask | None
    reply: Reply | None
    visit: Visit
    created_at: datetime
    due_at: datetime | None
