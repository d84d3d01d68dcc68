"""The types of `/health` and `/ready`."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from service.wire.problem import Problem

PartName: TypeAlias = Literal["database", "redis", "workers", "bots", "disk", "hub"]


class Health(msgspec.Struct, frozen=True):
    """The process answers; nothing else was checked."""

    status: str
    version: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one part. `needed`: the service is bad if this part is. `ms`: how long the check took."""

    name: PartName
    state: Literal["good", "bad"]
    needed: bool
    text: str
    ms: float


class Readiness(msgspec.Struct, frozen=True):
    """All needed parts answer."""

    parts: tuple[Part, ...]


class NotReady(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """A problem that lists every part."""

    parts: tuple[Part, ...] = ()
