"""The public shapes of `/v1/advice`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from service.engine.advice import AdvisedConfig, DeviceMemory, Loser, Mine, Refusal, SpeedPoint, Versions, WhatIf
from service.engine.goal import Constraints, Goal, GoalRequest, Preset
from service.engine.hardware import Assumption, Hardware
from service.wire.problem import Problem

REVISION_PATTERN = r"^(?!.*(\.\.|//))[A-Za-z0-9_]([A-Za-z0-9_./-]{0,126}[A-Za-z0-9_.-])?$"
RepoText = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
RevisionText = Annotated[  # what the Hub refuses as a name is said in words when it is looked up
    str,
    msgspec.Meta(min_length=1, max_length=200, extra_json_schema={"pattern": REVISION_PATTERN}),
]
Question = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
HardwareText = Annotated[str, msgspec.Meta(min_length=1, max_length=65_536)]


class AdviceRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user asks: a repo (id, Hub URL, `owner/name:VARIANT`), hardware as object or text, and a goal.

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
    """A step of the card: lines to paste into a POSIX shell or PowerShell, empty where nothing is to be typed."""

    title: str
    posix: str
    powershell: str
    note: str = ""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was assumed. `say`: an example of how to state it."""

    name: str
    value: str
    why: str
    changes: str
    say: str = ""


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """Another config in one line. `times`: how long a request takes, as a multiple of the first one's.

    `label`: what it was picked for, such as `Quality`, and `why`; empty for the others.
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


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """The answer in short, the same in every form: the first config with what is needed to run it.

    `now`: speed at the goal's depth; `full`: at the full context of one request. `facts`: the assumptions that would
    narrow the answer most, of `more_assumed` others.
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
    """One advice as it is read. Until `ready`, the lists are empty; `problem` is set when it failed.

    `model_slug`: under what results of its model are filed, as in `/models/SLUG` and `/v1/results`; `architecture`: as
    its header names it.
    `computed_again`: set where it was not kept, and is another version's than at first.
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
    """The answer to a request. `delete_key` is there once, for the one whose request made the advice."""

    delete_key: str | None = None


FINAL = ("ready", "failed")
"""States of an advice that never change again."""


class AdviceEvent(msgspec.Struct, frozen=True):
    """One event of an advice's stream: its state, and the step that a worker is at."""

    id: str
    state: Literal["queued", "running", "ready", "failed"]
    progress: str | None
