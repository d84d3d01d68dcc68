"""Use cases of results and the leaderboard, as the web calls them."""

from __future__ import annotations

from service.flows.context import Context


class ResultCases:
    """What the web asks of results. Every method blocks; all raise AdvisorError only."""

    def __init__(self, context: Context) -> None:
        self._context = context
