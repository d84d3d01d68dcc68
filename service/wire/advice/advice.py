"""The public shapes of `/v1/advice`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from service.engine.advice import (
    AdvisedConfig,
    AtOnce,
    DeviceMemory,
    Loser,
    Mine,
    Refusal,
    SpeedPoint,
    Versions,
    WhatIf,
)
from service.engine.goal import Constraints, Goal, GoalRequest, Preset
from service.engine.hardware import Assumption, Hardware
from service.wire.problem import Problem

REVISION_PATTERN = r"^(?!.*(\.\.|//))[A-Za-z0-9_]([A-Za-z0-9_./-]{0,126}[A-Za-z0-9_.-])?$"
RepoText = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
RevisionText = Annotated[  # checked in full, with a readable error, when it is looked up
    str, msgspec.Meta(min_length=1, max_length=200, extra_json_schema={"pattern": REVISION_PATTERN})
]
Question = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
HardwareText = Annotated[str, msgspec.Meta(min_length=1, max_length=65_536)]


class AdviceRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for advice: a repo (id, Hub URL, `owner/name:VARIANT`), hardware as object or text, and a goal.

    `what_if`: questions about other hardware: `+1 RTX 3090`, `256 GB more RAM`, `PCIe 4 x16 instead of x4`,
    `DDR5-6000 x8`, `-1 RTX 4090`, `no GPU`, `which single upgrade helps most`.
    """

    repo: RepoText
    hardware: Hardware | HardwareText
    revision: RevisionText | None = None
    goal: GoalRequest | Preset = GoalRequest()
    constraints: Constraints = Constraints()
    what_if: Annotated[list[Question], msgspec.Meta(max_length=8)] = []


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the card: lines to paste into a POSIX shell or PowerShell, empty if nothing is to be typed."""

    title: str
    posix: str
    powershell: str
    note: str = ""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """An assumption. `say`: an example of how to state the fact."""

    name: str
    value: str
    why: str
    changes: str
    say: str = ""


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """Another config in one line. `times`: the duration of a request, as a multiple of the first config's.

    `label`: what it was picked for, such as `Quality`, and `why`; empty for configs that were not picked. `tg_tps` is
    of one request, `at_once` of as many as the goal has at once, null for one.
    """

    rank: int
    label: str = ""
    why: str = ""
    variant: str
    engine: str
    loss_percent: float | None
    tg_tps: float
    pp_tps: float
    times: float
    at_once: AtOnce | None = None


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """The answer in short, the same in every format: the first config with everything needed to run it.

    `now`: speed at the goal's depth; `full`: at the full context of one request. `facts`: the assumptions that would
    narrow the answer most if stated; `more_assumed`: how many others there are.
    """

    sentence: str
    why: str
    config: str
    steps: list[Step]
    devices: list[DeviceMemory]
    now: SpeedPoint
    full: SpeedPoint | None
    facts: list[Fact]
    more_assumed: int
    options: list[Option]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """An advice. Until it is `ready`, its lists are empty; `problem` is set if it failed.

    `model_slug`: the name under which results of its model are filed, as in `/models/SLUG` and `/v1/results`;
    `architecture`: as the header names it. `computed_again`: set if it was recomputed with another version than at
    first.
    """

    id: str
    state: Literal["queued", "running", "ready", "failed"]
    repo: str
    revision: str | None
    hardware: Hardware
    goal: Goal | None
    headline: str | None = None
    card: Card | None = None
    progress: str | None = None
    assumed: list[Assumption] = []
    configs: list[AdvisedConfig] = []
    refused: list[Refusal] = []
    considered: int = 0
    placed: int = 0
    losers: list[Loser] = []
    versions: Versions | None = None
    mine: Mine | None = None
    what_if: list[WhatIf] = []
    model_slug: str | None = None
    architecture: str | None = None
    problem: Problem | None = None
    computed_again: str | None = None
    created_at: str | None = None
    url: str | None = None


class CreatedAdvice(Advice, frozen=True, kw_only=True, omit_defaults=False):
    """The answer to a request. `delete_key` is given once, to the request that created the advice."""

    delete_key: str | None = None


FINAL = ("ready", "failed")
"""States in which an advice no longer changes."""


class AdviceEvent(msgspec.Struct, frozen=True):
    """One event of the stream of a request for advice: its state, and the worker's current step."""

    id: str
    state: Literal["queued", "running", "ready", "failed"]
    progress: str | None
