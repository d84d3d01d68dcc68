"""The one file of a GPU day: a line about the machine, and a line for each step as it ends.

A step is written when it has ended, so that a day that is cut off goes on where it was; the last line of a program that
was killed while it wrote is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from rig.gpu_plan import Step
from service.engine.errors import InvalidInput
from service.engine.hardware import Hardware
from service.engine.logs.read import LogBuffers
from service.engine.measured.classify import Failure
from service.engine.reduction import reduced
from service.wire.measuring.hosts import EngineBuild
from service.wire.results.submissions import FORMAT as RESULTS
from service.wire.results.submissions import SavedResult, SavedResults

FORMAT: Literal["offload-advisor-gpu-day-1"] = "offload-advisor-gpu-day-1"
_TAIL = 4_000


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line: what machine it is. No name, user, path or serial number is in it."""

    format: Literal["offload-advisor-gpu-day-1"]
    agent: str
    hardware: Hardware
    started_at: str


class Taken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Memory of one device at one moment, in MiB, beyond what it held before the program was started.

    Of the CPU: `taken` is what the program has resident of its own, `mapped` what it has of files.
    """

    device: str
    taken: float
    mapped: float = 0.0


class MemorySeen(msgspec.Struct, frozen=True, kw_only=True):
    """What a server was seen to hold once it had loaded (`idle`), and behind a prompt (`after`); what it printed.

    `after` is empty where the prompt failed.
    """

    command: str
    idle: list[Taken]
    after: list[Taken]
    buffers: tuple[LogBuffers, ...]


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one step ended. `failure`: why it gave nothing, `tail`: the engine's last words then.

    `others`: cores that other programs kept busy meanwhile.
    `result`: of a speed step, as `advisor validate --here` keeps it; `memory`: of a memory step; `build`: of a build.
    """

    step: Step
    seconds: float
    at: str
    others: float = 0.0
    result: SavedResult | None = None
    memory: MemorySeen | None = None
    build: EngineBuild | None = None
    failure: Failure | None = None
    tail: str = ""

    @property
    def done(self) -> bool:
        """Whether there is a figure."""
        return self.failure is None


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was read. `lines`: the last of each step, in the order in which they ended."""

    head: Head
    lines: list[Line]

    def results(self) -> SavedResults:
        """Return the speeds in the form in which `advisor` takes results."""
        kept = [line.result for line in self.lines if line.result is not None]
        return SavedResults(
            format=RESULTS, advice="gpu-day", agent=self.head.agent, hardware=self.head.hardware, results=kept
        )


def read(path: Path) -> Day:
    """Return what a file holds. Raises InvalidInput for one that is none."""
    first, *rest = path.read_bytes().splitlines(keepends=True) or [b""]
    try:
        head = msgspec.json.decode(first, type=Head)
        lines = [msgspec.json.decode(line, type=Line) for line in rest if line.endswith(b"\n")]
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{path} is no file of a GPU day: {error}") from error
    return Day(head=head, lines=list({line.step.id: line for line in lines}.values()))


def last_words(text: str) -> str:
    """Return the end of what a program printed, without paths and names of this machine."""
    return reduced(text[-_TAIL:])


def append(path: Path, line: Head | Line) -> None:
    """Add a line, behind the end of a whole one."""
    with path.open("a+b") as file:
        size = file.seek(0, 2)
        file.seek(max(size - (64 << 20), 0))
        whole = file.read().rfind(b"\n") + 1 + max(size - (64 << 20), 0)
        file.truncate(whole if size else 0)
        file.write(msgspec.json.encode(line) + b"\n")
