"""The public shapes of submissions: what people send of their benchmarks, and what was understood of it."""

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
    str, Meta(pattern=r"^20[0-9]{2}-[01][0-9]-[0-3][0-9]$(?!\n)", extra_json_schema={"format": "date"})
]
Source: TypeAlias = Annotated[
    str, Meta(max_length=500, pattern=r"^https://[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(:[0-9]{1,5})?/[!-~]+$(?!\n)")
]
Rows: TypeAlias = Annotated[list[MeasuredRow], Meta(min_length=1, max_length=1_000)]


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A benchmark that somebody ran: its command, what it printed, and on what machine.

    `text`: a paste of any of it, in any order: the command, what a benchmark printed, the timings of a server,
    the log around them. What is stated next to it counts before what the paste says. `rows`: raw times, in place of an
    output. `hardware`: in any of the forms; `repo`: as `OWNER/NAME:VARIANT`, where the command does not
    name it; `measured_on`: a day (default: today). `source`: where it was published, if somebody else measured it; it
    is kept as a citation, without a licence.
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
    """Return a submission that names its source. Raises InvalidInput for what is not an address of a page."""
    try:
        return msgspec.structs.replace(submission, source=msgspec.convert(source, Source))
    except msgspec.ValidationError as error:
        raise InvalidInput("a source is the https:// address of a page or message", field="source") from error


class Missing(msgspec.Struct, frozen=True):
    """A field without which the submission is not a result, and what would be right there."""

    field: str
    text: str


class SubmittedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model that was run, from its header; `slug`: that of its page."""

    name: str
    slug: str
    repo: str
    revision: str | None
    variant: str
    architecture: str | None
    bpw: float | None


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What was understood of a submission, before anything is kept. `complete`: it can be sent as it is.

    `missing`: what it lacks, by field; what depends on it is null or empty. `command`: as it would be shown, without
    paths, names and secrets. `flags`: what it means to today's engine; null where no host could be asked to run it,
    `dropped` says why, and which words were left away. `rows`: raw times; `speed`: recomputed from them; `predicted`:
    what would have been said of this command on this machine, `compared`: both side by side, with the memory that a log
    tells. `state` and `state_reason`: whether it would be shown or quarantined. `duplicate_of`: the result that these
    very rows are already.
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
    """A result that was kept, or the one that these rows were already. `url`: its page.

    `edit_key`: given once, to who sent it without an account: with it (header `X-Edit-Key`) the result can be corrected
    or deleted. `is_new`: it was not there before.
    """

    id: str
    url: str | None = None
    state: ResultState
    state_reason: str | None
    tier: TrustTier
    is_new: bool
    edit_key: str | None = None


class Correction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a result its submitter changes: what is left out stays. Rows are never changed: send them again."""

    remarks: Remarks | None = None
    hardware: Hardware | HardwareText | None = None
    build: BuildAsked | BuildText | None = None


class ResultChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a result: when, and what its submitter changed or took back (fields by name, as they were)."""

    at: str
    what: str
    before: dict[str, str]


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
