"""Strangers' `-ot` patterns that could run away, matched in a process that can be killed.

`regex` keeps its own time limit on easy patterns (service.engine.overrides.is_easy), which all published ones are. The
others are matched by `service.flows.match_worker`, with little memory and a deadline; a pattern at which it dies or
stays is refused like one that the engine refuses.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from threading import BoundedSemaphore

import msgspec

from service.engine.errors import InvalidFlags
from service.engine.memory.overrides import is_matched, remember_matches
from service.engine.model import Model
from service.engine.overrides import MAX_RULES, is_easy
from service.settings import without_secrets

SECONDS = 3.0  # for one process; starting it takes a tenth of a second
_MOST_KILLED = 4
_AT_ONCE = BoundedSemaphore(2)
_LIMIT = "takes too long, or too much memory, to match"


class Asked(msgspec.Struct, frozen=True):
    """What a worker is told: tensor names, and the patterns to look for."""

    names: list[str]
    patterns: list[str]


class Answered(msgspec.Struct, frozen=True):
    """One line of a worker's answer: the indices of the names that a pattern is found in, or why it is refused."""

    found: list[int] = []
    refused: str | None = None


def match_safely(model: Model, patterns: Iterable[str]) -> None:
    """Match the patterns that could run away, so that the engine only looks them up. At most 256 are looked at."""
    hard = [p for p in dict.fromkeys(patterns) if not is_matched(model, p) and _is_hard(p)][:MAX_RULES]
    names = [tensor.name for tensor in model.tensors]
    for _ in range(_MOST_KILLED):
        if not hard:
            return
        answers = _answers(Asked(names, hard))
        for pattern, answer in zip(hard, answers, strict=False):
            found = answer.refused or tuple(names[i] for i in answer.found)
            remember_matches(model, pattern, found)
        hard = hard[len(answers) :]
        if hard:
            remember_matches(model, hard.pop(0), f"-ot pattern: {_LIMIT}")
    for pattern in hard:
        remember_matches(model, pattern, f"-ot pattern: not matched, for {_MOST_KILLED} before it were killed")


def _is_hard(pattern: str) -> bool:
    try:
        return not is_easy(pattern)
    except InvalidFlags:
        return False  # the engine says why, without matching


def _answers(asked: Asked) -> Sequence[Answered]:
    """Return the answers that a process gave before its deadline, in order."""
    command = [sys.executable, "-m", "service.flows.match_worker"]
    with _AT_ONCE:
        try:
            done = subprocess.run(
                command,
                input=msgspec.json.encode(asked),
                capture_output=True,
                timeout=SECONDS,
                env=without_secrets(os.environ),  # what it runs is a stranger's
            )
            said = done.stdout
        except subprocess.TimeoutExpired as late:
            said = late.stdout or b""
    whole = said[: said.rfind(b"\n") + 1].splitlines()
    return [msgspec.json.decode(line, type=Answered) for line in whole]
