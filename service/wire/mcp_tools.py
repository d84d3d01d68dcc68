"""The tools offered to AI agents; their arguments have the names and limits of the HTTP API.

`mcp_tools.json` has what each tool is called and does, in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.engine.config import Engine
from service.engine.goal import Constraints, EngineChoice, GoalRequest, Positive, Preset
from service.engine.tables import table_of
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
EngineName = Annotated[Engine | None, Meta(description="only this engine; else both")]
Revision = Annotated[RevisionText | None, Meta(description="a branch, tag or commit of the repo; else the newest")]
_LEFT_OUT = (None, "", "null")  # what clients send for an argument that their model left out
_LIMITS = ("pattern", "minLength", "maxLength", "maxItems")  # checked here; clients make grammars of schemas


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool."""


class Advise(Arguments, frozen=True, kw_only=True):
    """The fields of `AdviceRequest` that suit a conversation."""

    repo: Repo
    hardware: Machine
    goal: Annotated[Preset, Meta(description="what it is for; `agent` has long prompts, `long` much context")] = "chat"
    context: Annotated[Positive | None, Meta(description="tokens; else the goal's")] = None
    engine: EngineName = None
    variant: Annotated[str | None, Meta(description="only this quantisation, such as Q4_K_M")] = None
    command: Annotated[CommandText | None, Meta(description="the command in use, which is compared")] = None
    images: Annotated[bool, Meta(description="for images or sound too: adds the repo's projector")] = False
    what_if: Annotated[
        list[Question], Meta(max_length=8, description="changes to ask about: '+1 RTX 3090', '64 GB more RAM', 'best'")
    ] = []
    revision: Revision = None

    def request(self) -> AdviceRequest:
        constraints = Constraints(
            engines=[EngineChoice(self.engine)] if self.engine else None,
            variants=[self.variant] if self.variant else None,
            current_command=self.command,
            images=self.images,
        )
        goal = GoalRequest(preset=self.goal, context=self.context)
        return made_from(AdviceRequest, self, goal=goal, constraints=constraints)


class Check(Arguments, frozen=True, kw_only=True):
    """The fields of `CheckRequest` that suit a conversation."""

    command: Annotated[CommandText, Meta(description="the command line, for llama-server or a benchmark of it")]
    hardware: Machine
    repo: Annotated[RepoText | None, Meta(description=f"{_REPO}; else as the command names it")] = None
    engine: EngineName = None
    build: Annotated[BuildText | None, Meta(description="of the engine: 2025-05-11, b3700 or 8337e4c")] = None

    def request(self) -> CheckRequest:
        return made_from(CheckRequest, self)


class Inspect(Arguments, frozen=True, kw_only=True):
    """A repo, and the variant whose model is shown."""

    repo: Repo
    variant: Annotated[Slug | None, Meta(description="whose model is shown; else the smallest")] = None
    revision: Revision = None


class Leaderboard(Arguments, frozen=True, kw_only=True):
    """`BoardQuery` without sorting and paging."""

    q: Annotated[Slug | None, Meta(description="words of the model's, cards' or variant's name")] = None
    model: Annotated[Slug | None, Meta(description="a model's slug, as rows of an answer have it")] = None
    rig: Annotated[Slug | None, Meta(description="a set of cards, such as 2x-rtx-3090")] = None
    engine: EngineName = None
    depth: Annotated[Depth, Meta(description="tokens in the cache")] = 0
    trust: BoardTrust = PROVEN
    limit: Annotated[int, Meta(ge=1, le=50)] = 10

    def request(self) -> BoardQuery:
        return BoardQuery(**msgspec.structs.asdict(self))


class HardwareArguments(Arguments, frozen=True, kw_only=True):
    """A text about hardware."""

    text: Annotated[HardwareText, Meta(description=_HARDWARE)]


class ThisHardware(Arguments, frozen=True, kw_only=True):
    """A text about hardware, or nothing for the machine that runs this."""

    text: Annotated[HardwareText | None, Meta(description=f"{_HARDWARE}; else this machine")] = None


class Tool(msgspec.Struct, frozen=True):
    """A tool's name, description, and the Struct of its arguments."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]

    def given(self, sent: Mapping[str, Any]) -> Arguments:
        """Return the arguments that a model sent, which may be texts where the schema has numbers or a list.

        Raises msgspec.ValidationError.
        """
        given = {name: value for name, value in sent.items() if value not in _LEFT_OUT}
        for field in msgspec.structs.fields(self.arguments):
            if field.default_factory is list and isinstance(given.get(field.name), str):
                given[field.name] = _listed(given[field.name])
        return msgspec.convert(given, self.arguments, strict=False)

    def described(self) -> dict[str, Any]:
        """Return the tool's entry in `tools/list`."""
        _, schemas = msgspec.json.schema_components([self.arguments])
        schema = schemas[self.arguments.__name__]
        properties = {name: _plain(value) for name, value in schema["properties"].items()}
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": schema["required"],
                "additionalProperties": False,
            },
            "annotations": {"title": self.title, "readOnlyHint": True, "idempotentHint": True, "openWorldHint": True},
        }


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an argument's schema in what every client understands: one type, without limits of texts and lists.

    Older llama.cpp makes no grammar of lookaheads and long texts, and then answers nothing at all (llama.cpp#17473,
    codefuturist/email-mcp#58); Gemini wants a type beside `enum`, and only texts in it (google-gemini/gemini-cli#4400
    and #4127).
    """
    kinds = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    whole = {**schema, **(kinds[0] if kinds else {})}
    plain = {key: value for key, value in whole.items() if key not in ("anyOf", *_LIMITS)}
    if plain.get("default", ()) is None:
        del plain["default"]
    if "items" in plain:
        plain["items"] = _plain(plain["items"])
    choices = plain.get("enum", [""])
    plain.setdefault("type", "string" if isinstance(choices[0], str) else "integer")
    if plain["type"] == "integer" and "enum" in plain:
        plain["description"] += f": {', '.join(map(str, plain.pop('enum')))}"
    return plain


def _listed(text: str) -> list[str]:
    """Return the texts of a list that is one text in JSON (punkpeye/mcp-remote#319), or the only one."""
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.DecodeError:
        return [text]


_SAID = table_of("mcp_tools.json", dict[str, tuple[str, str]], "service.wire")
_ARGUMENTS: dict[str, type[Arguments]] = {
    "advise": Advise, "check": Check, "inspect": Inspect, "leaderboard": Leaderboard, "hardware": HardwareArguments,
}  # fmt: skip
TOOLS = {name: Tool(name, *_SAID[name], kind) for name, kind in _ARGUMENTS.items()}
THIS_HARDWARE = Tool("hardware", *_SAID["this hardware"], ThisHardware)
