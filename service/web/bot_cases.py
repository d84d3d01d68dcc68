"""What the web asks of the bots' flows. Tests give it one of their own."""

from __future__ import annotations

from typing import Protocol

from service.wire.bots import Ask, Asker, Reply


class BotFlows(Protocol):
    """The use cases of the bots: all block, are called in a thread, and raise AdvisorError only."""

    def take_question(self, identity: str, asker: Asker, ask: Ask, reply: Reply) -> bool:
        """Commit a question to be answered; False: it was taken before. Raises ServiceUnavailable."""
        ...

    def remembered_rig(self, account: str) -> str | None:
        """Return the hardware that somebody had us remember."""
        ...

    def completions(self, kind: str, typed: str, account: str) -> list[str]:
        """Return what is proposed while somebody types a word: `repo`, `model` or `hardware`."""
        ...
