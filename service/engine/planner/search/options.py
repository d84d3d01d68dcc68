"""Options of a command that are not the planner's choice: those that the user keeps, and those that a build lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from service.engine.builds import Build, BuildAsked
from service.engine.commands.companions import PLACE_PROJECTOR, PROJECTOR
from service.engine.commands.parse import ParsedCommand, parse
from service.engine.commands.render import render
from service.engine.commands.tables import known_options, option_named
from service.engine.config import Engine, Flags
from service.engine.engines import engine_spec
from service.engine.errors import InvalidFlags
from service.engine.goal import Constraints, GoalRequest
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.overrides import is_easy
from service.engine.planner.pricing.candidate import Candidate
from service.engine.planner.search.fitting import PLACEMENT_FIELDS
from service.engine.planner.search.outcome import SearchCase
from service.engine.purpose import computes_logits, reads_at_once, server_words, unserved
from service.engine.rules.all_rules import findings, in_order
from service.engine.rules.case import case_of
from service.engine.run.overrides import device_index

FIELD = "constraints.keep_flags"
# Options whose field is none of Flags: the fields of Flags that they set.
_FIELDS = {
    "no_flash_attn": ("flash_attn",), "op_policy": ("op_offload",), "load_mode": ("mmap", "mlock"),
    "fit": (), "model_path": (), "alias": (),
}  # fmt: skip
_CHOOSING_CARDS = ("-dev", "--device", "-rpc", "--rpc")
_NO_CHOICE = "the cards cannot be chosen here: leave the others out of the hardware"
_ONE_CARD = "-sm none"  # kept as it is: where only one card is visible, it changes nothing


class UserFlags(msgspec.Struct, frozen=True):
    """The flags that the user sets, for one engine: values of fields of Flags, and `other` options without a field."""

    fields: dict[str, object] = {}
    other: tuple[str, ...] = ()

    def _least_cards(self) -> int:
        """Two where they share every layer, one where `-ngl` puts layers on it."""
        layers = self.fields.get("n_gpu_layers", 0)
        together = self.fields.get("split_mode", "layer") != "layer"
        return 2 if together else int(isinstance(layers, int) and layers > 0)

    def applied_to(self, found: Iterator[Candidate]) -> Iterator[Candidate]:
        """Yield the candidates with these flags set, each once; none with another number of cards than `-ts` has, or
        fewer than the flags are for."""
        seen, tried = set(), list(found)
        shares = self.fields.get("tensor_split")
        least = min(self._least_cards(), max((len(one.cards) for one in tried), default=0))
        for candidate in tried:
            n = len(candidate.cards)
            if n < least or (n > 1 and _ONE_CARD in self.other) or (isinstance(shares, tuple) and len(shares) != n):
                continue
            one = self._applied(candidate) if self.fields or self.other else candidate
            key = (one.strategy, one.cards, one.flags)
            if key not in seen:
                seen.add(key)
                yield one

    def _applied(self, candidate: Candidate) -> Candidate:
        flags = replace(candidate.flags, **self.fields, other=(*candidate.flags.other, *self.other))
        if "n_ubatch" not in self.fields:
            flags = replace(flags, n_ubatch=min(flags.n_ubatch, flags.n_batch))
        elif "n_batch" not in self.fields:
            flags = replace(flags, n_batch=max(flags.n_batch, flags.n_ubatch))
        return replace(candidate, flags=flags, user_fields=tuple(self.fields))


NO_USER_FLAGS = UserFlags()


def user_flags(engine: Engine, constraints: Constraints) -> UserFlags:
    """Return the flags that the user sets, as an engine reads them. Raises InvalidFlags for those it does not know."""
    if not constraints.keep_flags:
        return NO_USER_FLAGS
    parsed = _parsed(engine, constraints.keep_flags)
    if parsed.refused:
        raise _wrong(parsed.refused[0].detail)
    if parsed.unknown:
        raise _wrong(f"{engine} has no `{parsed.unknown[0][:80]}`")
    if parsed.flags.main_gpu or any(option.split(" ")[0] in _CHOOSING_CARDS for option in parsed.flags.other):
        raise _wrong(_NO_CHOICE)
    if not {*PROJECTOR}.isdisjoint(parsed.used):
        raise _wrong("a projector that is kept as it is would not be counted: ask for `images` (--images) instead")
    if constraints.images and not {*PLACE_PROJECTOR}.isdisjoint(parsed.used):
        raise _wrong("the projector is placed on the first card used: with `images` (--images) it cannot be elsewhere")
    for rule in parsed.flags.overrides:
        if not is_easy(rule.pattern):
            raise _wrong(f"-ot {rule.pattern[:80]}: this pattern may take too long to match: write a simpler one")
    fields = {name: getattr(parsed.flags, name) for used in parsed.used for name in _fields_of(used)}
    mode = fields.get("split_mode", "layer")
    gone = mode == "row" and constraints.build_of(engine).date is None  # from the CUDA back end of llama.cpp too
    if gone or mode not in engine_spec(engine).memory.split_modes:
        raise _wrong(f"{engine} has no -sm {mode}")
    other = tuple(o for o in (*parsed.flags.other, *parsed.rest) if o.partition(" ")[0] in parsed.used)
    _check_written(engine, Flags(**fields, other=other))
    if mode == "none":
        del fields["split_mode"]
        other = (*other, _ONE_CARD)
    return UserFlags(fields, other)


def kept_flags(engine: Engine, constraints: Constraints) -> Flags:
    """Return an engine's defaults with the flags that the user sets, if it knows them."""
    if user_flags_refusal(engine, constraints) is not None:
        return Flags()
    stated = user_flags(engine, constraints)
    return Flags(**stated.fields, other=stated.other)  # type: ignore[arg-type]


def wanted_flags(case: SearchCase) -> UserFlags:
    """Return the user's flags with those that the model needs for what it is for, where the user does not say.

    A model that reads an input at once gets micro-batches of a whole context. Raises InvalidFlags as `user_flags`.
    """
    stated, words = user_flags(case.engine, case.constraints), server_words(case.model)
    if stated.fields.get("flash_attn") == "off":  # without which no engine takes a quantised V cache
        stated = UserFlags({"cache_type_v": "f16", **stated.fields}, stated.other)
    if not words:
        return stated
    needed: dict[str, object] = {"n_logits": None}  # every token has an output
    if reads_at_once(case.model) and stated.fields.keys().isdisjoint(("n_batch", "n_ubatch")):
        needed |= dict.fromkeys(("n_batch", "n_ubatch"), case.goal.context_each)
    if not computes_logits(case.model) and case.constraints.kv_types is None:
        needed |= dict.fromkeys(("cache_type_k", "cache_type_v"), "f16")  # there is no cache
    given = not set(words).isdisjoint(stated.other)
    return UserFlags(needed | stated.fields, stated.other if given else (*stated.other, words[0]))


def _check_written(engine: Engine, flags: Flags) -> None:
    try:
        for tool in ("server", "bench"):
            render(engine, tool, flags, model_path="m")
    except InvalidFlags as error:
        raise InvalidFlags(error.detail, field=FIELD, choices=error.choices) from error


def check_user_flags(constraints: Constraints, rig: Rig) -> None:
    """Raise InvalidFlags where no allowed engine knows these flags, or a rule names a device that is not there."""
    wrong = []
    for engine in constraints.engine_names:
        try:
            _check_devices(user_flags(engine, constraints), rig)
        except InvalidFlags as error:
            wrong.append(error)
    if len(wrong) == len(constraints.engine_names):
        raise InvalidFlags(wrong[-1].detail, field=FIELD, choices=wrong[-1].choices)


def _check_devices(user_fields: UserFlags, rig: Rig) -> None:
    flags, n_cards = Flags(**user_fields.fields), len(rig.cards)  # type: ignore[arg-type]
    if n_cards > 1 and _ONE_CARD in user_fields.other and any(card.backend == "vulkan" for card in rig.cards):
        raise _wrong(_NO_CHOICE)
    for rule in flags.overrides:
        device_index(rule.device, n_cards)
    if len(flags.tensor_split) > n_cards:
        raise _wrong(f"-ts has {len(flags.tensor_split)} numbers for {n_cards} GPU{'s' * (n_cards != 1)}")


def user_flags_refusal(engine: Engine, constraints: Constraints) -> str | None:
    """Return why an engine cannot take the user's flags, or None when it can."""
    try:
        user_flags(engine, constraints)
    except InvalidFlags as error:
        return error.detail
    return None


def flags_refusal(engine: Engine, constraints: Constraints, model: Model) -> str | None:
    """Return why an engine cannot take the user's flags, or has no server for what the model is for; else None."""
    if reason := user_flags_refusal(engine, constraints):
        return reason
    if reason := unserved(model):
        return f"{engine} {reason}"
    known = known_options(engine, engine_spec(engine).programs["server"])
    lacks = [word for word in server_words(model)[:1] if word not in known]
    return f"{engine}'s server has no {lacks[0]}, which this model needs" if lacks else None


def kept_placement(constraints: Constraints) -> str:
    """Return the kept options that place the whole model, with their values as written; empty if there are none."""
    words = " ".join(constraints.keep_flags or ()).split()
    found: list[str] = []
    for word, following in pairwise([*words, "-"]):
        if set(_fields_of(word)) & set(PLACEMENT_FIELDS):
            found += [word] if following.startswith("-") else [word, following]
    return " ".join(found)


def goal_with_user_flags(goal: GoalRequest, constraints: Constraints) -> GoalRequest:
    """Return the goal with the context and slots of the user's flags. Raises InvalidFlags where they contradict it."""
    for engine in constraints.engine_names:
        if constraints.keep_flags and user_flags_refusal(engine, constraints) is None:
            fields = user_flags(engine, constraints).fields
            goal = _with(_with(goal, "context", fields.get("n_ctx")), "parallel", fields.get("n_parallel"))
            break
    return goal


def _with(goal: GoalRequest, name: str, value: object) -> GoalRequest:
    if not isinstance(value, int) or value < 1:
        return goal
    stated = getattr(goal, name)
    if stated not in (None, value):
        raise _wrong(f"goal.{name} is {stated:,}, but the flag says {value:,}: leave one of them out")
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


# Options that a build may lack and a config can do without: then the build's own default holds.
_OPTIONAL: tuple[dict[str, object], ...] = (
    {}, {"jinja": False}, {"attn_max_batch": None}, {"attn_max_batch": None, "jinja": False},
    {"mla": None, "attn_max_batch": None}, {"mla": None, "attn_max_batch": None, "jinja": False},
)  # fmt: skip


def build_refusal(engine: Engine, flags: Flags, build: Build) -> str | None:
    """Return why a build cannot take these flags, or None when it can."""
    try:
        for tool in ("server", "bench"):
            render(engine, tool, flags, model_path="m", build=build)
    except InvalidFlags as error:
        return error.detail
    return None


def rule_errors(engine: Engine, command: str, model: Model, rig: Rig, build: Build) -> list[str]:
    """Return the errors that the rules find in a command for a build."""
    parsed = parse(command, engine, build=BuildAsked(date=build.date))
    found = in_order(findings(case_of(parsed, model, rig, command, "cuda"), None))
    wrong = [f for f in found if f.severity == "error"]
    return [f"{f.message}{f'; {f.fix}' if f.fix else ''}" for f in wrong]


def for_build(engine: Engine, candidate: Candidate, build: Build) -> Candidate:
    """Return the candidate without options that the build lacks. Raises InvalidFlags where it needs one of them."""
    for without in _OPTIONAL:
        one = replace(candidate, flags=candidate.with_flags(**without))
        why = build_refusal(engine, one.flags, build)
        if why is None:
            return one
    raise InvalidFlags(why or "", field="build")
