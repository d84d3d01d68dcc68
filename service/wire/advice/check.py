"""The public shapes of `/v1/check`, and of a line of `advisor check --batch`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from service.engine.builds import BuildAsked
from service.engine.check.report import CheckReport
from service.engine.config import Engine
from service.engine.goal import ReserveMib
from service.engine.hardware import Hardware
from service.engine.logs.requests import MeasuredSpeed
from service.wire.advice.advice import HardwareText, RepoText, RevisionText

CommandText = Annotated[str, msgspec.Meta(min_length=1, max_length=65_536)]
Depths = Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]], msgspec.Meta(max_length=64)]
MeasuredRows = Annotated[list[MeasuredSpeed], msgspec.Meta(max_length=200)]
BuildText = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
LogText = Annotated[str, msgspec.Meta(min_length=1, max_length=1 << 20)]


class CommandOnHardware(msgspec.Struct, frozen=True, kw_only=True):
    """A command that somebody uses, its hardware, and what else is known. `depths` in tokens.

    `engine` null: guessed from the command. `build`: the engine's build by date, number or commit, as an object or as
    printed by `--version`; null: today's. `log`: output of a server, llama-sweep-bench or llama-bench. `reserve_mib`:
    MiB that proposed changes leave free on every GPU, or one number per GPU; null: 512, or 1,024 with a display.
    """

    command: CommandText
    hardware: Hardware | HardwareText
    engine: Engine | None = None
    depths: Depths | None = None
    measured: MeasuredRows | None = None
    log: LogText | None = None
    allocator: Literal["cuda", "lab"] = "cuda"
    draft: RepoText | None = None
    mmproj: RepoText | None = None
    build: BuildAsked | BuildText | None = None
    reserve_mib: ReserveMib | None = None


class CheckRequest(CommandOnHardware, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command to check.

    `repo` may be omitted if the command names it (`-hf`, `-hfr`, or a path with owner and name of a GGUF repo), or if
    only one repo read here holds the command's file, which `assumed` then states. The variant is that of
    `owner/name:VARIANT`, or the one that holds the command's file. `draft` and `mmproj`: the files that the command
    loads besides its model, as `OWNER/NAME:VARIANT` or `OWNER/NAME/FILE.gguf`; by default they are looked for in the
    model's repo.
    """

    repo: RepoText | None = None
    revision: RevisionText | None = None


class Checked(CheckReport, frozen=True, kw_only=True):
    """The answer, and the variant whose header was read. `repo` and `revision` are null for files on disk."""

    repo: str | None
    revision: str | None
    variant: str


class BatchCase(CommandOnHardware, frozen=True, kw_only=True):
    """One line of a batch. Unknown keys are ignored.

    `model`: a GGUF file or folder on this disk (for shards, the first), or a repo; by default the file that the command
    opens, or the repo that it names. `draft` and `mmproj`: files on this disk or in a repo; by default those that the
    command names, if they exist.

    """

    model: RepoText | None = None
