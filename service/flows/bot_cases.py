"""Use cases of the bots, as the web calls them: taking questions, and what is proposed while they are typed."""

from __future__ import annotations

from service.flows import chat_accounts, completions, interactions
from service.flows.context import Context
from service.wire.bots import Ask, Asker, Reply


class BotCases:
    """What the web asks of the bots' flows. Every method blocks; all raise AdvisorError only."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def take_question(self, identity: str, asker: Asker, ask: Ask, reply: Reply) -> bool:
        """See `service.flows.interactions.take`."""
        return interactions.take(self._context, identity, asker, ask, reply)

    def remembered_rig(self, account: str) -> str | None:
        """See `service.flows.chat_accounts.remembered_rig`."""
        return chat_accounts.remembered_rig(self._context, account)

    def completions(self, kind: str, typed: str, account: str) -> list[str]:
        """Return what is proposed for a word of this kind: `repo`, `model` or `hardware`; nothing for any other."""
        typed = typed.replace("\0", "")  # which no database takes
        if kind == "repo":
            return completions.repos(self._context, typed)
        if kind == "model":
            return completions.models(self._context, typed)
        return completions.hardware(self._context, typed, account) if kind == "hardware" else []
