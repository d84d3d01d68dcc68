"""The types of submissions: benchmarks that people send, and how they were understood."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from service.engine.advice import DeviceMemory, SpeedPoint
from service.engine.builds import BuildAsked
from service.engine.check.report import Compared
from service.engine.config import Engine
from service.engine.errors import InvalidInput
from service.engine.hardware import Assumption, Hardware
from service.engine.measured.rows import MeasuredRow
from service.engine.run_flags import RunFlags
from service.engine.submission.tables import Tool
from service.wire.advice.advice import HardwareText, RepoText, RevisionText
from service.wire.advice.check import BuildText, CommandText
from service.wire.measuring.agent import Report, RunDocument
from service.wire.measuring.runs import TrustTier
from service.wire.results.results import ResultModel, ResultState

Paste: TypeAlias = Annotated[str, Meta(max_length=1 << 20)]
Remarks: TypeAlias = Annotated[str, Meta(max_length=2_000)]
Day: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^20[0-9]{2}-[01][0-9]-[0-3][0-9]$(?!\n)",
        extra_json_schema={"format": "date"},
        examples=["2026-11-21"],
    ),
]
Source: TypeAlias = Annotated[
    str,
    Meta(
        max_length=500,
        pattern=r"^https://[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(:[0-9]{1,5})?/[!-~]+$(?!\n)",
        examples=["https://github.com/ikawrakow/ik_llama.cpp/discussions/357"],
    ),
]
Rows: TypeAlias = Annotated[list[MeasuredRow], Meta(min_length=1, max_length=1_000)]


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A benchmark that somebody ran: its command, its output, and the machine.

    `text`: a paste of any of these in any order: the command, a benchmark's output, a server's timings, the log around
    them. Other fields override the paste. `rows`: raw times instead of an output. `hardware`: in any form; `repo`: as
    `OWNER/NAME:VARIANT`, if the command does not name it; `measured_on`: a day (default: today). `source`: where
    somebody else published it; it is then stored as a citation, without a licence.
    """

    text: Paste = ""
    command: CommandText | None = None
    rows: Rows | None = None
    hardware: Hardware | HardwareText | None = None
    repo: RepoText | None = None
    revision: RevisionText | None = None
    engine: Engine | None = None
    build: BuildAsked | BuildText | None = None
    remarks: Remarks | None = None
    measured_on: Day | None = None
    source: Source | None = None


def cited(submission: Submission, source: str) -> Submission:
    """Return the submission with its source. Raises InvalidInput if that is not the address of a page."""
    try:
        return msgspec.structs.replace(submission, source=msgspec.convert(source, Source))
    except msgspec.ValidationError as error:
        raise InvalidInput("a source is the https:// address of a page or message", field="source") from error


class Missing(msgspec.Struct, frozen=True):
    """A field that a submission lacks, and what is wanted there."""

    field: str
    text: str


class SubmittedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model that was run, from its header; `slug` names its page."""

    name: str
    slug: str
    repo: str
    revision: str | None
    variant: str
    architecture: str | None
    bpw: float | None


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """How a submission is understood, before anything is stored. `complete`: it can be sent as it is.

    `missing`: what it lacks, by field; whatever depends on that is null or empty. `command`: as it would be shown,
    without paths, names and secrets. `flags`: its meaning to today's engine; null if no host could be asked to run it;
    `dropped` says why, and which words were left out. `warnings`: what is probably wrong, though it can be sent.
    `rows`: raw times; `speed`: computed from them; `predicted`: the prediction for this command on this machine;
    `compared`: both side by side, with the memory that a log tells. `state`, `state_reason`: whether it would be shown
    or quarantined. `duplicate_of`: the existing result with exactly these rows.
    """

    complete: bool
    missing: list[Missing]
    model: SubmittedModel | None = None
    engine: Engine | None = None
    tool: Tool | None = None
    build: str | None = None
    command: str | None = None
    flags: RunFlags | None = None
    dropped: list[str] = []
    warnings: list[str] = []
    hardware: Hardware | None = None
    rig: str | None = None
    assumed: list[Assumption] = []
    rows: list[MeasuredRow] = []
    speed: list[SpeedPoint] = []
    predicted: list[SpeedPoint] = []
    devices: list[DeviceMemory] = []
    compared: list[Compared] = []
    state: ResultState | None = None
    state_reason: str | None = None
    tier: TrustTier | None = None
    duplicate_of: str | None = None


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """A stored result, or the existing one with the same rows. `url`: its page.

    `edit_key`: given once, to a sender without an account; with it (header `X-Edit-Key`) the result can be corrected or
    deleted. `is_new`: it did not exist before.
    """

    id: str
    url: str | None = None
    state: ResultState
    state_reason: str | None
    tier: TrustTier
    is_new: bool
    edit_key: str | None = None


class Correction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A submitter's changes to a result; omitted fields stay. Rows cannot be changed, only sent again."""

    remarks: Remarks | None = None
    hardware: Hardware | HardwareText | None = None
    build: BuildAsked | BuildText | None = None


class ResultChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a result: when, what the submitter changed or deleted, and the old values by field."""

    at: str
    what: str
    before: dict[str, str]


FORMAT = "offload-advisor-results-1"
ON_DISK = "local/files"  # stands for a repo if the files were on disk and their origin is unknown


class SavedResult(msgspec.Struct, frozen=True, kw_only=True):
    """One saved measurement: its files, its flags, and everything that the agent would report."""

    model: ResultModel
    document: RunDocument
    report: Report
    measured_at: str


class SavedResults(msgspec.Struct, frozen=True, kw_only=True):
    """The file of saved measurements. It contains no name, user, path or serial number of the machine."""

    format: str
    advice: str
    agent: str
    hardware: Hardware
    results: list[SavedResult]
