"""What the web asks of the flows of results. Tests give it one of their own."""

from __future__ import annotations

from typing import Protocol


class ResultFlows(Protocol):
    """The use cases of results and the leaderboard: all block, are called in a thread, and raise AdvisorError only."""
