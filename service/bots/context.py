"""What verbs work with."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from service.flows.context import Context


class BotContext(NamedTuple):
    """The flows' context, the service's address, and what is called before a repo is read that is new here.

    `admit(account)` may raise RateLimited. `read_file(address)` returns the text of a file that is attached to a
    message; it raises InvalidInput for one that is none, or lies elsewhere than the platform's files.
    """

    context: Context
    admit: Callable[[str], None]
    read_file: Callable[[str], str]

    def address(self, path: str) -> str:
        """Return the URL of a path of this service."""
        return (self.context.settings.public_url or "").rstrip("/") + path


class Question(NamedTuple):
    """A question as a verb sees it: its words, who asks, its id, and the advice or validation it waits for already.

    `text`, `file_url`: of the message that it is about; `of_another`: somebody else wrote that.
    """

    words: dict[str, str]
    account: str
    id: str
    subject: str | None = None
    text: str = ""
    file_url: str | None = None
    of_another: bool = False
    platform: str = ""
    place: str = ""
