"""What a command loads besides its model: a draft model with options of its own, and a multimodal projector.

Options: `--help` of llama.cpp 0c1e57098; ik_llama.cpp 8337e4cd3 common/common.cpp:1266-2302.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from service.engine.commands.changes import Words
from service.engine.commands.parse import ParsedCommand, parse_words
from service.engine.commands.tables import MODEL_REPO
from service.engine.config import Flags
from service.engine.engines import engine_spec
from service.engine.model import Model
from service.engine.run.settings import drafts_next_tokens, loads_next_tokens, option_value, speculation_types

DRAFT = ("-md", "--model-draft", "--spec-draft-model")
DRAFT_REPO = ("-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf")
CONTEXT, IN_QUOTES = ("-cd", "--ctx-size-draft"), ("-draft", "--draft-params")
NAME_A_DRAFT = (*DRAFT, *DRAFT_REPO, *IN_QUOTES)
PROJECTOR = ("-mm", "--mmproj", "-mmu", "--mmproj-url")
NO_PROJECTOR = ("--no-mmproj", "--no-mmproj-auto")
_LOAD_PROJECTORS = ("llama-server", "llama-cli", "llama-mtmd-cli")  # of `mmproj_examples`, common/arg.cpp:60
_PROJECTOR_OFF_GPU = ("--no-mmproj-offload",)
_PROJECTOR_DEVICE, _PROJECTOR_VARIABLE = ("-mmdev", "--mmproj-device"), "MTMD_BACKEND_DEVICE"  # in both engines
PLACE_PROJECTOR = (*NO_PROJECTOR, *_PROJECTOR_OFF_GPU, *_PROJECTOR_DEVICE)

# the option of the draft, by the option of a model that it stands for; whether a value follows
_OF_DRAFT: dict[str, tuple[tuple[str, ...], bool]] = {
    "-ngl": (("-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft", "--spec-draft-ngl"), True),
    "-ctk": (("-ctkd", "--cache-type-k-draft", "--spec-draft-type-k"), True),
    "-ctv": (("-ctvd", "--cache-type-v-draft", "--spec-draft-type-v"), True),
    "-ot": (("-otd", "--override-tensor-draft", "--spec-draft-override-tensor"), True),
    "-dev": (("-devd", "--device-draft", "--spec-draft-device"), True),
    "-cmoe": (("-cmoed", "--cpu-moe-draft", "--spec-draft-cpu-moe"), False),
    "-ncmoe": (("-ncmoed", "--n-cpu-moe-draft", "--spec-draft-n-cpu-moe", "--spec-draft-ncmoe"), True),
}
OPTIONS = frozenset(
    {*DRAFT, *DRAFT_REPO, *PROJECTOR, *_PROJECTOR_OFF_GPU, *_PROJECTOR_DEVICE, "--spec-draft-n-max"}
    | {name for names, _ in _OF_DRAFT.values() for name in names}
)

_DEVICE, _TYPE = ("-dev", "--device"), "--spec-type"
OF_DRAFT = frozenset((*NAME_A_DRAFT, *CONTEXT, *(name for names, _ in _OF_DRAFT.values() for name in names)))
_TYPES_OF_IK = (("cache_type_k", "-ctk"), ("cache_type_v", "-ctv"))


class Projector(msgspec.Struct, frozen=True):
    """A multimodal projector that a command loads. `device`: the one it asks for, None for the first GPU.

    `path` None: the one that `-hf` finds in its repo, if there is one. `image_tokens`: the most that an image may have,
    where the command says so.
    """

    path: str | None
    on_gpu: bool
    device: str | None
    image_tokens: int | None = None


def file_name(path: str) -> str:
    """Return the last part of a Windows or POSIX path."""
    return re.split(r"[/\\]", path)[-1]


def draft_of(parsed: ParsedCommand) -> str | None:
    """Return the path or repo of the draft model that a command names, or None."""
    quoted = pairwise(_quoted(parsed))
    named = option_value(parsed.flags.other, (*DRAFT, *DRAFT_REPO))
    return named or next((value for name, value in quoted if name in ("-m", "--model")), None)


def draft_kind(parsed: ParsedCommand, draft: Model | None) -> str:
    """Return the value of `--spec-type` for the draft model that a command names, by its header or its name."""
    kinds = engine_spec(parsed.engine).commands.draft_kinds
    if draft is not None and draft.n_layer_nextn:
        return kinds["mtp"]
    hints = file_name(draft_of(parsed) or "") if draft is None else draft.architecture
    return next(kind for word, kind in kinds.items() if word in hints.lower())


def drafts(parsed: ParsedCommand, draft: Model | None = None) -> bool:
    """Return whether the program uses the draft model that a command names. `draft`: it, where its header is known."""
    commands, flags = engine_spec(parsed.engine).commands, parsed.flags
    if draft_of(parsed) is None:
        return False
    if parsed.build.rules.drafts_unasked or "speculative" in parsed.program:
        return True
    kinds = {commands.speculation(kind.partition(":")[0]) for kind in speculation_types(flags)} - {"none"}
    if not kinds:
        return commands.infers_drafting(draft_kind(parsed, draft), draft)
    return not kinds.isdisjoint(commands.draft_kinds.values())


def loads_draft(parsed: ParsedCommand) -> bool:
    """Return whether the program loads the draft model that a command names."""
    if loads_next_tokens(parsed.flags) and not drafts_next_tokens(parsed.engine, parsed.flags):
        return False
    return drafts(parsed) or (draft_of(parsed) is not None and engine_spec(parsed.engine).commands.loads_idle_draft)


def projector_of(parsed: ParsedCommand) -> Projector | None:
    """Return the projector that a command names or `-hf` may find by itself, or None."""
    options = parsed.flags.other
    path = option_value(options, PROJECTOR)
    device = option_value(options, _PROJECTOR_DEVICE) or parsed.env.get(_PROJECTOR_VARIABLE)
    if path is None and not _finds_one(parsed):
        return None
    off = device == "none" or any(option in _PROJECTOR_OFF_GPU for option in options)
    return Projector(path, not off, None if device == "none" else device, image_tokens_asked(parsed.rest))


def image_tokens_asked(options: Sequence[str]) -> int | None:
    """Return the most tokens that an image may have by `--image-max-tokens`; None without it, or for no limit."""
    most = option_value(options, ("--image-max-tokens",)) or ""
    return int(most) or None if most.isdecimal() else None


def _finds_one(parsed: ParsedCommand) -> bool:
    """Whether `-hf` also loads the projector of its repo (common/arg.cpp:400)."""
    loads = parsed.build.rules.finds_projector and parsed.program in _LOAD_PROJECTORS
    return loads and option_value(parsed.flags.other, MODEL_REPO) is not None and not {*NO_PROJECTOR} & {*parsed.used}


def finds_head(parsed: ParsedCommand) -> bool:
    """Return whether `-hf` also loads next-token layers that lie in a file of their own in its repo
    (llama.cpp common/arg.cpp:396 and 641, common/download.cpp:602).
    """
    asked = parsed.build.rules.finds_head and loads_next_tokens(parsed.flags) and draft_of(parsed) is None
    return asked and option_value(parsed.flags.other, MODEL_REPO) is not None


def draft_context(parsed: ParsedCommand) -> int | None:
    """Return the tokens that a command states for a context of the draft model; None for those of the model's slots.

    llama.cpp had `-cd` until pull 22838; ik_llama.cpp takes the model's where that is known
    (common/speculative.cpp:1978).
    """
    if told := _own(parsed).n_ctx:
        return told
    rules, stated = parsed.build.rules, option_value(parsed.flags.other, CONTEXT)
    heeds = rules.draft_per_slot or rules.own_draft_settings
    return int(stated) or None if heeds and stated is not None and stated.isdecimal() else None


def draft_command(parsed: ParsedCommand) -> ParsedCommand:
    """Return the command that would load the draft model alone, with the options that it inherits from the model's.

    Layers, devices, rules and cache types are the draft's own (llama.cpp common/speculative.cpp:2446); in ik_llama.cpp
    rules and, unless given, cache types are the model's, and there is one slot (common/speculative.cpp:1940).
    Raises InvalidFlags.
    """
    words, own = _own_words(parsed), _own(parsed)
    kept = [option for option in parsed.flags.other if option.partition(" ")[0] not in (*OPTIONS, *_DEVICE, _TYPE)]
    follows = engine_spec(parsed.engine).commands.draft_takes_rules
    if follows and parsed.build.rules.own_draft_settings:
        names = ["flash_attn", "main_gpu", *(name for name, main in _TYPES_OF_IK if main not in words)]
        inherited = {name: getattr(parsed.flags, name) for name in names}
        return msgspec.structs.replace(parsed, flags=msgspec.structs.replace(own, n_parallel=1, **inherited))
    names = ["n_gpu_layers", "cache_type_k", "cache_type_v", "overrides", "cpu_moe", "n_cpu_moe"]
    if follows:
        names = ["n_gpu_layers", *(name for name, main in _TYPES_OF_IK if main in words)]
    changed = {name: getattr(own, name) for name in names} | {"other": (*kept, *own.other)}
    if follows:
        changed["n_parallel"] = 1
    return msgspec.structs.replace(parsed, flags=msgspec.structs.replace(parsed.flags, **changed))


def _own(parsed: ParsedCommand) -> Flags:
    """The flags that the draft model's own options amount to. Raises InvalidFlags."""
    return parse_words(Words((), "llama-server", tuple(_own_words(parsed))), parsed.build).flags


def _own_words(parsed: ParsedCommand) -> list[str]:
    """The draft model's own options, as a model's: ik_llama.cpp takes them in quotes as well (pull 932)."""
    words = [word for main, option in _OF_DRAFT.items() for word in _words(parsed.flags.other, main, *option)]
    return [*words, *_quoted(parsed)]


def _quoted(parsed: ParsedCommand) -> list[str]:
    try:
        return shlex.split(option_value(parsed.rest, IN_QUOTES) or "")
    except ValueError:
        return []


def _words(options: Sequence[str], main: str, names: Sequence[str], takes_value: bool) -> list[str]:
    if takes_value:
        value = option_value(options, names)
        return [] if value is None else [main, value]
    return [main] if any(option in names for option in options) else []
