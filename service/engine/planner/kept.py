"""Flags that the user keeps: read for an engine, put into every candidate, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from service.engine.commands import ParsedCommand, parse, render
from service.engine.commands.tables import option_named
from service.engine.config import Engine, Flags
from service.engine.errors import InvalidFlags
from service.engine.goal import Constraints, GoalRequest
from service.engine.hardware import Rig
from service.engine.memory.overrides import device_index
from service.engine.overrides import is_easy
from service.engine.planner.candidates import Candidate

FIELD = "constraints.keep_flags"
_FIELDS = {
    "no_flash_attn": ("flash_attn",), "op_policy": ("op_offload",), "load_mode": ("mmap", "mlock"),
    "fit": (), "model_path": (), "alias": (),
}  # fmt: skip
_NOT_OF: dict[Engine, tuple[str, ...]] = {"ik_llama.cpp": ("tensor",), "llama.cpp": ("graph", "attn")}  # of -sm
_OF_CARDS = ("-dev", "--device", "-rpc", "--rpc")


class Kept(msgspec.Struct, frozen=True):
    """What is kept, for one engine: fields of Flags with their values, and options without a field.

    `other`: options without a field.
    """

    fields: dict[str, object] = {}
    other: tuple[str, ...] = ()

    def in_all(self, found: Iterator[Candidate]) -> Iterator[Candidate]:
        """Yield the candidates with what is kept, each once."""
        seen = set()
        shares = self.fields.get("tensor_split")
        for candidate in found:
            if isinstance(shares, tuple) and len(shares) != len(candidate.cards):
                continue
            one = self._in(candidate) if self.fields or self.other else candidate
            key = (one.strategy, one.cards, one.flags)
            if key not in seen:
                seen.add(key)
                yield one

    def _in(self, candidate: Candidate) -> Candidate:
        flags = replace(candidate.flags, **self.fields, other=(*candidate.flags.other, *self.other))
        if "n_ubatch" not in self.fields:
            flags = replace(flags, n_ubatch=min(flags.n_ubatch, flags.n_batch))
        elif "n_batch" not in self.fields:
            flags = replace(flags, n_batch=max(flags.n_batch, flags.n_ubatch))
        return replace(candidate, flags=flags, kept=tuple(self.fields))


NOTHING = Kept()


def kept_flags(engine: Engine, constraints: Constraints) -> Kept:
    """Return what is kept for an engine. Raises InvalidFlags for what this engine does not know or cannot be kept."""
    if not constraints.keep_flags:
        return NOTHING
    parsed = _parsed(engine, constraints.keep_flags)
    if parsed.refused:
        raise _wrong(parsed.refused[0].detail)
    if parsed.unknown:
        raise _wrong(f"{engine} has no `{parsed.unknown[0][:80]}`")
    if any(option.split(" ")[0] in _OF_CARDS for option in parsed.flags.other):
        raise _wrong("which cards are used is not kept here: leave the others out of the hardware")
    for rule in parsed.flags.overrides:
        if not is_easy(rule.pattern):
            raise _wrong(f"-ot {rule.pattern[:80]}: this pattern may take too long to match: write a simpler one")
    fields = {name: getattr(parsed.flags, name) for used in parsed.used for name in _fields_of(used)}
    if fields.get("split_mode") in _NOT_OF[engine]:
        raise _wrong(f"{engine} has no -sm {fields['split_mode']}")
    other = tuple(o for o in (*parsed.flags.other, *parsed.rest) if o.partition(" ")[0] in parsed.used)
    _check_written(engine, Flags(**fields, other=other))
    return Kept(fields, other)


def _check_written(engine: Engine, flags: Flags) -> None:
    try:
        for tool in ("server", "bench"):
            render(engine, tool, flags, model_path="m")
    except InvalidFlags as error:
        raise InvalidFlags(error.detail, field=FIELD, choices=error.choices) from error


def check_kept(constraints: Constraints, rig: Rig) -> None:
    """Raise InvalidFlags where no allowed engine knows what is kept, or a rule names a device that is not there."""
    wrong = []
    for engine in constraints.engine_names:
        try:
            _check_devices(kept_flags(engine, constraints), len(rig.cards))
        except InvalidFlags as error:
            wrong.append(error)
    if len(wrong) == len(constraints.engine_names):
        raise InvalidFlags(wrong[-1].detail, field=FIELD, choices=wrong[-1].choices)


def _check_devices(kept: Kept, n_cards: int) -> None:
    flags = Flags(**kept.fields)  # type: ignore[arg-type]
    for rule in flags.overrides:
        device_index(rule.device, n_cards)
    if len(flags.tensor_split) > n_cards:
        raise _wrong(f"-ts has {len(flags.tensor_split)} numbers for {n_cards} GPUs")


def not_kept(engine: Engine, constraints: Constraints) -> str | None:
    """Return why an engine cannot keep what is to be kept, or None when it can."""
    try:
        kept_flags(engine, constraints)
    except InvalidFlags as error:
        return error.detail
    return None


def goal_with_kept(goal: GoalRequest, constraints: Constraints) -> GoalRequest:
    """Return the goal with the context and the slots that are kept. Raises InvalidFlags where the goal says another."""
    for engine in constraints.engine_names:
        if constraints.keep_flags and not_kept(engine, constraints) is None:
            fields = kept_flags(engine, constraints).fields
            goal = _with(_with(goal, "context", fields.get("n_ctx")), "parallel", fields.get("n_parallel"))
            break
    return goal


def _with(goal: GoalRequest, name: str, value: object) -> GoalRequest:
    if not isinstance(value, int) or value < 1:
        return goal
    stated = getattr(goal, name)
    if stated not in (None, value):
        raise _wrong(f"goal.{name} is {stated:,}, the flag that is kept says {value:,}: leave one of them out")
    return replace(goal, **{name: value})


def _parsed(engine: Engine, words: Sequence[str]) -> ParsedCommand:
    try:
        return parse(" ".join(words), engine, program="llama-server")
    except InvalidFlags as error:
        raise _wrong(error.detail) from error


def _fields_of(name: str) -> tuple[str, ...]:
    option = option_named(name, False)
    if option is None:
        return ()
    return _FIELDS.get(option.field, (option.field,))


def _wrong(text: str) -> InvalidFlags:
    return InvalidFlags(text, field=FIELD)
