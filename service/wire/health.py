"""The public shapes of `/health` and `/ready`."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from service.wire.problem import Problem

PartName: TypeAlias = Literal["database", "redis", "workers", "bots", "disk", "hub"]


class Health(msgspec.Struct, frozen=True):
    """The process answers; nothing else is looked at."""

    status: str
    version: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part at this moment. `needed`: where it is bad, so is the service. `ms`: how long the question took."""

    name: PartName
    state: Literal["good", "bad"]
    needed: bool
    text: str
    ms: float


class Readiness(msgspec.Struct, frozen=True):
    """All parts that are needed answer."""

    parts: tuple[Part, ...]


class NotReady(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """A problem that names each part."""

    parts: tuple[Part, ...] = ()
