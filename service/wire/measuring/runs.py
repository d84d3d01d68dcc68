"""The types of `/v1/advice/{id}/validations` and `/v1/validations`: what to measure, and what was measured."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from service.engine.advice import SpeedPoint
from service.engine.check.report import Compared
from service.engine.config import Engine
from service.engine.logs.read import LogBuffers
from service.engine.measured.classify import Failure
from service.engine.measured.identity import MatchKind
from service.engine.measured.rows import MeasuredRow
from service.engine.run_flags import RunFlags

RunState: TypeAlias = Literal["queued", "leased", "running", "succeeded", "failed", "cancelled"]
RunKind: TypeAlias = Literal["config", "baseline", "step"]
Mode: TypeAlias = Literal["validate", "tune"]
TrustTier: TypeAlias = Literal["self-reported", "agent-run", "replicated"]


class ValidationRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to measure of the advice given.

    `configs`: ids (default: the best two, and the other engine's best). `baseline`: also measure the command in use, if
    the advice has one. `hosts`: ids (default: all that match). `minutes`: limit on measuring per run; with `tune`,
    which searches around the first of `configs` on one host, on the whole search.
    """

    mode: Mode = "validate"
    configs: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(min_length=1, max_length=8)] | None = None
    baseline: bool = True
    hosts: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(min_length=1, max_length=16)] | None = None
    minutes: Annotated[int, Meta(ge=1, le=60)] = 10


class HostMatch(msgspec.Struct, frozen=True, kw_only=True):
    """How a host suits a config: its `match`, or what is `missing`, as sentences."""

    host: str
    pseudonym: str
    match: MatchKind | None
    missing: list[str] = []


class ConfigHosts(msgspec.Struct, frozen=True, kw_only=True):
    """How each host that the asker may use suits a config (None: the command in use), with a summary sentence."""

    config: str | None
    name: str
    hosts: list[HostMatch]
    text: str


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU's use during a run: peak memory in MiB, and mean power in watts."""

    device: Annotated[str, Meta(max_length=32)]
    peak_mib: Annotated[int, Meta(ge=0, le=1 << 24)] | None = None
    watts: Annotated[float, Meta(ge=0, le=10_000)] | None = None


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A run's measurements. `speed`: by depth, basis `measured`; `spread`: the largest sigma/mean of repeats.

    `spread` is None if nothing was repeated. `compared`: predicted and measured memory and speed side by side.
    """

    speed: list[SpeedPoint]
    spread: float | None
    compared: list[Compared]
    buffers: list[LogBuffers]
    graph_splits: int | None
    devices: list[DeviceUse]
    load_seconds: float | None
    page_cache: Literal["cold", "warm", "unknown"]
    build: str
    measured_at: str
    confirmed: bool
    tier: TrustTier


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of one config. `host`: the pseudonym of the measuring host; `rows`: as they came in.

    `dropped`: words of a baseline command that hosts may not be asked to run. `step`: what a tuning step changed.
    `result`: id of the stored result; `previous`: it was measured before, within thirty days.
    """

    id: str
    kind: RunKind
    config: str | None
    engine: Engine
    variant: str
    flags: RunFlags
    state: RunState
    attempt: int
    host: str | None
    match: MatchKind | None
    progress: str | None
    rows: list[MeasuredRow] = []
    outcome: RunOutcome | None = None
    failure: Failure | None = None
    dropped: list[str] = []
    step: str | None = None
    result: str | None = None
    previous: bool = False


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """One validation of advice, done when every run is final. `hosts`: how each host suits it.

    `refused`: why some configs may not be measured. `best`: the config that was measured fastest.
    """

    id: str
    advice: str
    mode: Mode
    state: Literal["queued", "running", "done", "cancelled"]
    runs: list[Run]
    hosts: list[HostMatch]
    refused: list[str] = []
    best: str | None = None
    created_at: str
    url: str | None = None


FINAL = ("done", "cancelled")
"""States in which a validation no longer changes."""
FINAL_RUN = ("succeeded", "failed", "cancelled")
"""States in which a run no longer changes."""


class ValidationEvent(msgspec.Struct, frozen=True):
    """One event of a validation's stream: the changed run, its state, and new rows or a new step."""

    id: str
    run: str | None
    state: str
    progress: str | None = None
    rows: list[MeasuredRow] = []
