"""The public shapes of `/health` and `/ready`."""

from __future__ import annotations

import msgspec


class Health(msgspec.Struct, frozen=True):
    """The process answers; nothing else is looked at."""

    status: str
    version: str


class Readiness(msgspec.Struct, frozen=True):
    """Whether the parts answer at this moment: the database, Redis, and at least one worker seen lately."""

    database: bool
    redis: bool
    worker: bool
