"""The shapes of results: which model was measured, and what was seen beside the rows."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from service.engine.logs import LogBuffers
from service.wire.agent import RunFile
from service.wire.runs import DeviceUse

ResultOrigin: TypeAlias = Literal["agent", "submitted", "published"]
ResultState: TypeAlias = Literal["shown", "quarantined", "hidden", "deleted"]


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """Where a result that was not made for this database was published: `by` whom, `url` of the thread, the day."""

    by: str
    url: str
    date: str


class ResultModel(msgspec.Struct, frozen=True, kw_only=True):
    """The files that were measured, at a commit of a repo."""

    repo: str
    revision: str
    variant: str
    files: tuple[RunFile, ...]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine printed and what was sampled while it ran. `engine_sha256`: of the program that ran."""

    buffers: tuple[LogBuffers, ...] = ()
    graph_splits: int | None = None
    devices: tuple[DeviceUse, ...] = ()
    load_seconds: float | None = None
    page_cache: Literal["cold", "warm", "unknown"] = "unknown"
    engine_sha256: str | None = None
    engine_version: str | None = None
    engine_commit: str | None = None
    gpu_seconds: float = 0.0
