"""The file in which `advisor validate --here` keeps what it measured, and `advisor submit` finds it."""

from __future__ import annotations

import msgspec

from service.engine.hardware import Hardware
from service.wire.measuring.agent import Report, RunDocument
from service.wire.results.results import ResultModel

FORMAT = "offload-advisor-results-1"
ON_DISK = "local/files"  # in place of a repo: the files lay on the disk, and nothing said where they are from


class SavedResult(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement as it is kept: which files, which flags, and all that the agent would report of it."""

    model: ResultModel
    document: RunDocument
    report: Report
    measured_at: str


class SavedResults(msgspec.Struct, frozen=True, kw_only=True):
    """The file that is kept. It holds no name, user, path or serial number of the machine."""

    format: str
    advice: str
    agent: str
    hardware: Hardware
    results: list[SavedResult]
