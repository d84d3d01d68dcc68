"""The types of results: the measured model, what was recorded with the rows, and `/v1/results`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from service.engine.advice import DeviceMemory, SpeedPoint
from service.engine.check.compare import compare_predicted
from service.engine.config import Engine
from service.engine.hardware import Hardware
from service.engine.logs.read import LogBuffers
from service.engine.measured.classify import Failure
from service.engine.measured.rows import MeasuredRow
from service.engine.measured.summary import measured_speed, spread
from service.engine.run_flags import RunFlags
from service.structs import made_from
from service.wire.measuring.agent import RunFile
from service.wire.measuring.runs import DeviceUse, RunOutcome, TrustTier

ResultOrigin: TypeAlias = Literal["agent", "submitted", "published"]
AnyDay: TypeAlias = Annotated[
    str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", extra_json_schema={"format": "date"}, examples=["2026-11-21"])
]
ResultState: TypeAlias = Literal["shown", "quarantined", "hidden", "deleted"]


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """Where a result from elsewhere was published: `by` whom, `url` of the thread, and the day."""

    by: str
    url: str
    date: str


class ResultModel(msgspec.Struct, frozen=True, kw_only=True):
    """The measured files, at a commit of a repo."""

    repo: str
    revision: str
    variant: str
    files: tuple[RunFile, ...]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine printed, and what was sampled while it ran. `engine_sha256`: of the program."""

    buffers: tuple[LogBuffers, ...] = ()
    graph_splits: int | None = None
    devices: tuple[DeviceUse, ...] = ()
    load_seconds: float | None = None
    page_cache: Literal["cold", "warm", "unknown"] = "unknown"
    engine_sha256: str | None = None
    engine_version: str | None = None
    engine_commit: str | None = None
    gpu_seconds: float = 0.0


def outcome(
    rows: Sequence[MeasuredRow], seen: Seen, engine: Engine, devices: Sequence[DeviceMemory],
    predicted: Sequence[SpeedPoint], *, build: str, measured_at: str, confirmed: bool,
    tier: TrustTier = "self-reported",
) -> RunOutcome:  # fmt: skip
    """Return a run's measurements, each with its prediction.

    llama-bench sizes the context for each test, so its cache is not the config's, which was predicted.
    """
    speed, same_context = measured_speed(rows), engine == "ik_llama.cpp"
    return made_from(
        RunOutcome,
        seen,
        speed=speed,
        spread=spread(rows),
        compared=compare_predicted(devices, predicted, speed, seen.buffers, same_context=same_context),
        buffers=list(seen.buffers),
        devices=list(seen.devices),
        build=build,
        measured_at=measured_at,
        confirmed=confirmed,
        tier=tier,
    )


class FiledModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model of a result; `slug` names its page. Numbers of weights and bits come from the header.

    They are None if no repo was named or no header was read.
    """

    name: str
    slug: str
    variant: str
    arch: str | None
    n_params: int | None
    n_active: int | None
    bpw: float | None
    repo: str | None
    revision: str | None


class FiledRig(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of a result; `slug` names the page of its cards."""

    name: str
    slug: str
    vram_mib: int
    cpu: str | None
    ram_gib: int | None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A result as everyone sees it. People and hosts appear only under pseudonyms.

    `state`: a quarantined result is shown with the reason, and counts for nothing. `command`: as given, or rendered
    from the flags of an agent's run. `rows`: raw times of each repeat, from which all speeds are computed. `outcome`:
    speeds by depth, and each figure with its prediction. `licence`: of the data; None for results published
    elsewhere, which are their authors'. `source`: the service that it was imported from.
    """

    id: str
    url: str | None = None
    origin: ResultOrigin
    state: ResultState
    state_reason: str | None
    tier: TrustTier
    confirmed: bool
    model: FiledModel
    rig: FiledRig
    hardware: Hardware
    engine: Engine
    build: str | None
    command: str | None
    flags: RunFlags | None
    rows: list[MeasuredRow]
    failure: Failure | None
    outcome: RunOutcome
    remarks: str | None
    published: Published | None
    contributor: str | None
    host: str | None
    has_log: bool
    licence: str | None
    measured_at: str
    created_at: str
    source: str | None = None


class ResultQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of `/v1/results`, which lists the latest received first.

    `model`, `rig`: slugs or names; `since`, `until`: first and last day on which they were received. `limit`: per page.
    """

    model: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    variant: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    rig: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    repo: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    engine: Engine | None = None
    tier: TrustTier | None = None
    origin: ResultOrigin | None = None
    contributor: Annotated[str, Meta(min_length=1, max_length=60)] | None = None
    host: Annotated[str, Meta(min_length=1, max_length=60)] | None = None
    since: AnyDay | None = None
    until: AnyDay | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: Annotated[str, Meta(min_length=1, max_length=300)] | None = None


class ResultPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of results. `next`: the cursor of the following page, None on the last."""

    results: list[Result]
    next: str | None = None
