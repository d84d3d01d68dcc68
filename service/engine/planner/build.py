"""Advice for a build of an engine: only options that it has, as it spells them."""

from __future__ import annotations

from msgspec.structs import replace

from service.engine.builds import Build, BuildAsked
from service.engine.commands import parse, render
from service.engine.config import Engine, Flags
from service.engine.errors import InvalidFlags
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.planner.candidates import Candidate
from service.engine.rules import case_of, findings, in_order

# What a build may lack and a config can be without: then the build's own default holds.
_OPTIONAL: tuple[dict[str, object], ...] = (
    {}, {"jinja": False}, {"attn_max_batch": None}, {"attn_max_batch": None, "jinja": False},
    {"mla": None, "attn_max_batch": None}, {"mla": None, "attn_max_batch": None, "jinja": False},
)  # fmt: skip


def untold(engine: Engine, flags: Flags, build: Build) -> str | None:
    """Return why a build cannot be told these flags, or None when it can."""
    try:
        for tool in ("server", "bench"):
            render(engine, tool, flags, model_path="m", build=build)
    except InvalidFlags as error:
        return error.detail
    return None


def said_by_rules(engine: Engine, command: str, model: Model, rig: Rig, build: Build) -> list[str]:
    """Return what the rules call an error of a command on a build: what it needs of how that build was made."""
    parsed = parse(command, engine, build=BuildAsked(date=build.date))
    found = in_order(findings(case_of(parsed, model, rig, command, "cuda"), None))
    wrong = [f for f in found if f.severity == "error"]
    return [f"{f.message}{f'; {f.fix}' if f.fix else ''}" for f in wrong]


def for_build(engine: Engine, candidate: Candidate, build: Build) -> Candidate:
    """Return the candidate without options that the build lacks. Raises InvalidFlags where it needs one of them."""
    for without in _OPTIONAL:
        one = replace(candidate, flags=candidate.with_flags(**without))
        why = untold(engine, one.flags, build)
        if why is None:
            return one
    raise InvalidFlags(why or "", field="build")
