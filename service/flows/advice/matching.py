"""Matches strangers' `-ot` patterns that could run away, in a process that can be killed.

`regex` keeps its own time limit on easy patterns (service.engine.overrides.is_easy), and every published one is easy.
The rest are matched by `match_worker`, with little memory and a deadline; a pattern that kills it or outlasts it is
refused like one that the engine itself refuses.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from threading import BoundedSemaphore

import msgspec

from service.engine.errors import InvalidFlags
from service.engine.overrides import is_easy, matching
from service.settings import without_secrets

SECONDS = 3.0  # for one process; starting it takes a tenth of a second
_MOST_KILLED, _MOST_STARTED = 4, 32
_AT_ONCE = BoundedSemaphore(2)


class MatchRequest(msgspec.Struct, frozen=True):
    """The worker's input: tensor names, and the pattern to look for in them."""

    names: list[str]
    pattern: str


class MatchResponse(msgspec.Struct, frozen=True):
    """The worker's answer: the indices of the names that match, or why the pattern is refused."""

    found: list[int] = []
    refused: str | None = None


class SafeMatch:
    """Matches like `matching`, but dangerous patterns in a process of their own. One instance per request.

    After four killed processes, or 32 in all, it refuses such patterns.
    """

    def __init__(self) -> None:
        self._started = self._killed = 0

    def __call__(self, pattern: str, names: Sequence[str]) -> Sequence[int]:
        """Return the indices, ascending, of the names in which `pattern` is found. Raises InvalidFlags."""
        if is_easy(pattern):
            return matching(pattern, names)
        if self._killed >= _MOST_KILLED:
            raise InvalidFlags(f"-ot pattern: not matched, because {_MOST_KILLED} before it were killed", field="-ot")
        if self._started >= _MOST_STARTED:
            raise InvalidFlags(f"-ot: more than {_MOST_STARTED} patterns that are slow to match", field="-ot")
        self._started += 1
        answer = _answer(MatchRequest(list(names), pattern))
        if answer is None:
            self._killed += 1
            raise InvalidFlags("-ot pattern: takes too long, or too much memory, to match", field="-ot")
        if answer.refused is not None:
            raise InvalidFlags(answer.refused, field="-ot")
        return answer.found


def _answer(asked: MatchRequest) -> MatchResponse | None:
    """Return the worker's answer, None if it died or missed its deadline."""

    command = [sys.executable, "-m", "service.flows.advice.match_worker"]
    environment = without_secrets(os.environ)  # the pattern is a stranger's
    with _AT_ONCE:
        try:
            done = subprocess.run(
                command, input=msgspec.json.encode(asked), capture_output=True, timeout=SECONDS, env=environment
            )
        except subprocess.TimeoutExpired:
            return None
    return msgspec.json.decode(done.stdout, type=MatchResponse) if done.returncode == 0 else None
