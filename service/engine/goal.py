"""Goals and constraints: what the user wants of a config. Presets as docs/glossary.md lists them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from service.engine.builds import Build, BuildAsked, resolve_build
from service.engine.config import ENGINES, CacheType, Engine
from service.engine.errors import InvalidInput

Tokens = Annotated[int, msgspec.Meta(ge=0, le=16_777_216)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=16_777_216)]
Speed = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
Mib = Annotated[int, msgspec.Meta(ge=0, le=1_048_576)]
ReserveMib: TypeAlias = Mib | Annotated[list[Mib], msgspec.Meta(max_length=64)]  # for every GPU, or one a GPU
BuildText = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
KeptText = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
Preset: TypeAlias = Literal["chat", "agent", "long", "batch", "fastest", "quality"]


class GoalRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A goal as asked for: a preset, and numbers that override the preset's.

    `fastest` ranks by the time of a request: a loss of quality does not count. `quality` counts it 12.5 times as much
    as the others do.
    """

    preset: Preset = "chat"
    prompt: Positive | None = None
    output: Positive | None = None
    depth: Tokens | None = None
    context: Positive | None = None
    parallel: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    min_tg: Speed | None = None
    min_pp: Speed | None = None


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A goal with every number filled in. Tokens; tokens per second (None: no minimum).

    `context` is that of all `parallel` requests together, as `-c` has it.
    """

    preset: str
    prompt: int
    output: int
    depth: int
    context: int
    parallel: int
    min_tg: float | None
    min_pp: float | None

    @property
    def context_each(self) -> int:
        """Tokens that one of the requests may have: what the engines give to a slot."""
        return self.context // max(self.parallel, 1)

    @property
    def deeper(self) -> list[int]:
        """Depths from the goal's to the full context of one request, at most four; none where that is not deeper."""
        full = self.context_each
        if full <= self.depth:
            return []
        return sorted({self.depth + (full - self.depth) * step // 3 for step in range(4)})


class EngineChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An engine allowed. `build`: the one in use, as `/v1/check` takes it; None: that of `versions.engines`."""

    name: Engine
    build: BuildAsked | BuildText | None = None


class Constraints(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits that advice must keep. `reserve_mib`: one number for every GPU, or one a GPU, fastest first.

    `current_command`: the command in use, which is a candidate, for `current_engine` (None: guessed from it). Where the
    goal names no context, the command's is taken.
    `keep_flags`: options with their values, such as `-ub 2048`, that are never changed.
    `images`: for images or sound too: the repo's projector is downloaded, loaded and counted.
    """

    engines: Annotated[list[EngineChoice], msgspec.Meta(max_length=16)] | None = None
    variants: Annotated[list[str], msgspec.Meta(max_length=200)] | None = None
    kv_types: Annotated[list[CacheType], msgspec.Meta(min_length=1, max_length=16)] | None = None
    min_bpw: Annotated[float, msgspec.Meta(ge=0, le=32)] | None = None
    max_bpw: Annotated[float, msgspec.Meta(ge=0, le=32)] | None = None
    reserve_mib: ReserveMib | None = None
    max_ram_gib: Annotated[float, msgspec.Meta(gt=0, le=1_048_576)] | None = None
    keep_flags: Annotated[list[KeptText], msgspec.Meta(max_length=64)] | None = None
    current_command: Annotated[str, msgspec.Meta(min_length=1, max_length=32_768)] | None = None
    current_engine: Engine | None = None
    images: bool = False
    models_dir: Annotated[str, msgspec.Meta(max_length=512, pattern=r"^[^\x00-\x1f]*$")] | None = None

    @property
    def engine_names(self) -> tuple[Engine, ...]:
        """The engines to consider, each once: those named, else all."""
        return tuple(dict.fromkeys(choice.name for choice in self.engines)) if self.engines else ENGINES

    def build_of(self, engine: Engine) -> Build:
        """Return the build of an engine, today's where none is stated. Raises InvalidInput for an unknown one."""
        stated = next((c.build for c in self.engines or () if c.name == engine and c.build is not None), None)
        return resolve_build(engine, stated)


_NUMBERS = ("prompt", "output", "depth", "context", "parallel", "min_tg")
_PRESETS: dict[str, tuple[int | float | None, ...]] = {
    "chat": (1_000, 400, 4_000, 16_384, 1, 8.0),
    "agent": (4_000, 600, 24_000, 65_536, 1, 12.0),
    "long": (32_000, 800, 32_000, 131_072, 1, 5.0),
    "batch": (2_000, 200, 0, 16_384, 4, None),
    "fastest": (1_000, 400, 4_000, 16_384, 1, None),
    "quality": (1_000, 400, 4_000, 16_384, 1, 5.0),
}


def resolve_goal(request: GoalRequest, n_ctx_train: int) -> Goal:
    """Return the goal with its preset's numbers filled in.

    A preset's context is as large for each request, however many are asked for, and never exceeds what the model was
    trained for; one that the user states is kept, and shared. Raises InvalidInput when depth, prompt and output
    together do not fit what each request has of it.
    """
    numbers = dict(zip(_NUMBERS, _PRESETS[request.preset], strict=True))
    each = int(numbers["context"] or 0) // int(numbers["parallel"] or 1)
    numbers["context"] = min(each, max(n_ctx_train, 256)) * (request.parallel or int(numbers["parallel"] or 1))
    stated = {name: getattr(request, name) for name in (*numbers, "min_pp") if getattr(request, name, None) is not None}
    values = {"min_pp": None, **numbers, **stated}
    goal = msgspec.convert({"preset": request.preset, **values}, Goal)
    return _within_context(goal, stated)


def _within_context(goal: Goal, stated: dict[str, object]) -> Goal:
    needed = goal.depth + goal.prompt + goal.output
    if needed <= goal.context_each:
        return goal
    if "depth" not in stated:
        room = goal.context_each - goal.prompt - goal.output
        if room >= 0:
            return msgspec.structs.replace(goal, depth=room)
    if "context" not in stated:
        return msgspec.structs.replace(goal, context=-(-needed // 1024) * 1024 * goal.parallel)
    shared = f", {goal.context_each} for each of {goal.parallel} requests" if goal.parallel > 1 else ""
    raise InvalidInput(
        f"depth, prompt and output are {needed} tokens together, the context is {goal.context}{shared}: "
        "raise `context` or lower one of the others",
        field="goal.context",
    )
