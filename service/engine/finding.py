"""What a rule says about a command."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Severity: TypeAlias = Literal["error", "warning", "info"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a check says about a command. `error`: the engine refuses it or runs out of memory.

    `fix`: what to write instead, if there is one; `gain`: what memory and speed, computed again with it, gain, or that
    it is about correctness only; null where `fix` is not a change of the command. `source`: the engine's file and line,
    or the thread it is known from.
    """

    rule: str
    severity: Severity
    message: str
    fix: str | None
    source: str
    gain: str | None = None
