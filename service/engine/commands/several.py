"""Which of a text's several commands an answer is about."""

from __future__ import annotations

from service.engine.commands.parse import ParsedCommand
from service.engine.hardware import Assumption

_MOST_OTHERS, _SHOWN = 3, 80  # commands that are named, and characters of each


def assumed_command(parsed: ParsedCommand, field: str) -> list[Assumption]:
    """Say which of a text's commands was taken, and how the others begin; nothing of a text with one."""
    if not parsed.others:
        return []
    named = ", ".join(f"`{_shortened(other)}`" for other in parsed.others[:_MOST_OTHERS])
    more = f" and {len(parsed.others) - _MOST_OTHERS} more" if len(parsed.others) > _MOST_OTHERS else ""
    why = f"the first of {len(parsed.others) + 1} commands in the text; neither checked nor counted: {named}{more}"
    return [Assumption(field, _shortened(parsed.words.line), why, "everything")]


def _shortened(line: str) -> str:
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
