"""The tools offered to AI agents; their arguments have the names and limits of the HTTP API.

`mcp_tools.json` has what each tool is called and does, in words.
"""

from __future__ import annotations

from importlib import resources
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.engine.config import Engine
from service.engine.goal import Constraints, EngineChoice, GoalRequest, Positive, Preset
from service.structs import made_from
from service.wire.advice.advice import AdviceRequest, HardwareText, Question, RepoText, RevisionText
from service.wire.advice.check import BuildText, CheckRequest, CommandText
from service.wire.results.board import PROVEN, BoardQuery, BoardTrust, Depth, Slug

_HARDWARE = (
    "shorthand such as '2x RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600', or pasted output of nvidia-smi, lscpu and free"
)
_REPO = "a GGUF repo of the Hugging Face Hub: OWNER/NAME, OWNER/NAME:VARIANT, or its URL"
Repo = Annotated[RepoText, Meta(description=_REPO)]
Machine = Annotated[HardwareText, Meta(description=_HARDWARE)]
EngineName = Annotated[Engine | None, Meta(description="only this engine; null: both")]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool."""


class Advise(Arguments, frozen=True, kw_only=True):
    """The fields of `AdviceRequest` that suit a conversation."""

    repo: Repo
    hardware: Machine
    goal: Annotated[Preset, Meta(description="what it is for; `agent` has long prompts, `long` much context")] = "chat"
    context: Annotated[Positive | None, Meta(description="tokens; null: the goal's")] = None
    engine: EngineName = None
    variant: Annotated[str | None, Meta(description="only this quantisation, such as Q4_K_M")] = None
    command: Annotated[CommandText | None, Meta(description="the command in use, which is compared")] = None
    what_if: Annotated[
        list[Question], Meta(max_length=8, description="changes to ask about: '+1 RTX 3090', '64 GB more RAM', 'best'")
    ] = []
    revision: RevisionText | None = None

    def request(self) -> AdviceRequest:
        """Return the request to the HTTP API with these arguments."""
        constraints = Constraints(
            engines=[EngineChoice(self.engine)] if self.engine else None,
            variants=[self.variant] if self.variant else None,
            current_command=self.command,
        )
        goal = GoalRequest(preset=self.goal, context=self.context)
        return made_from(AdviceRequest, self, goal=goal, constraints=constraints)


class Check(Arguments, frozen=True, kw_only=True):
    """The fields of `CheckRequest` that suit a conversation."""

    command: Annotated[CommandText, Meta(description="the command line, for llama-server or a benchmark of it")]
    hardware: Machine
    repo: Annotated[RepoText | None, Meta(description=f"{_REPO}; null: as the command names it")] = None
    engine: EngineName = None
    build: Annotated[BuildText | None, Meta(description="of the engine: 2025-05-11, b3700 or 8337e4c")] = None

    def request(self) -> CheckRequest:
        """Return the request to the HTTP API with these arguments."""
        return made_from(CheckRequest, self)


class Inspect(Arguments, frozen=True, kw_only=True):
    """A repo, and the variant whose model is shown."""

    repo: Repo
    variant: Annotated[Slug | None, Meta(description="whose model is shown; null: the smallest")] = None
    revision: RevisionText | None = None


class Leaderboard(Arguments, frozen=True, kw_only=True):
    """`BoardQuery` without sorting and paging."""

    q: Annotated[Slug | None, Meta(description="words of the model's, cards' or variant's name")] = None
    model: Annotated[Slug | None, Meta(description="a model's slug, as rows of an answer have it")] = None
    rig: Annotated[Slug | None, Meta(description="a set of cards, such as 2x-rtx-3090")] = None
    engine: EngineName = None
    depth: Depth = 0
    trust: BoardTrust = PROVEN
    limit: Annotated[int, Meta(ge=1, le=50)] = 10

    def request(self) -> BoardQuery:
        """Return the request to the HTTP API with these arguments."""
        return BoardQuery(**msgspec.structs.asdict(self))


class HardwareArguments(Arguments, frozen=True, kw_only=True):
    """A text about hardware."""

    text: Annotated[HardwareText, Meta(description=_HARDWARE)]


class ThisHardware(Arguments, frozen=True, kw_only=True):
    """A text about hardware, or nothing for the machine that runs this."""

    text: Annotated[HardwareText | None, Meta(description=f"{_HARDWARE}; null: this machine")] = None


class Tool(msgspec.Struct, frozen=True):
    """A tool's name, description, and the Struct of its arguments."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]

    def described(self) -> dict[str, Any]:
        """Return the tool's entry in `tools/list`."""

        (_,), schemas = msgspec.json.schema_components([self.arguments], ref_template="#/$defs/{name}")
        schema = {
            key: value
            for key, value in schemas.pop(self.arguments.__name__).items()
            if key not in ("title", "description")
        }
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema | ({"$defs": schemas} if schemas else {}),
            "annotations": {"title": self.title, "readOnlyHint": True, "idempotentHint": True, "openWorldHint": True},
        }


_SAID = msgspec.json.decode(
    resources.files("service.wire").joinpath("mcp_tools.json").read_bytes(), type=dict[str, tuple[str, str]]
)
_ARGUMENTS: dict[str, type[Arguments]] = {
    "advise": Advise, "check": Check, "inspect": Inspect, "leaderboard": Leaderboard, "hardware": HardwareArguments,
}  # fmt: skip
TOOLS = {name: Tool(name, *_SAID[name], kind) for name, kind in _ARGUMENTS.items()}
THIS_HARDWARE = Tool("hardware", *_SAID["this hardware"], ThisHardware)
