"""The closed set of flags that a host may be asked to run: enumerated names, numeric ranges, `-ot` by a grammar.

Nothing here can carry an argument of somebody's choice: no path, no address, no free word. What a command holds beyond
it is dropped by name before a run is made of it.

Patterns of `-ot` are a part of ECMAScript's, none of which takes long to match. std::regex goes back and tries again:
`(a|a)(a|a)…` or `.*.*.*…` from a stranger would keep an engine busy for hours. So nothing here repeats a group, and the
ways in which a pattern can be tried on a name are counted beforehand.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.engine.config import CacheType, Flags, Override
from service.engine.errors import InvalidFlags
from service.engine.overrides import MAX_PATTERN
from service.engine.purpose import WITHOUT_TEXT

Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 22)]
Batch: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 16)]
Threads: TypeAlias = Annotated[int, Meta(ge=1, le=1024)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]
MAX_OVERRIDES = 256
MAX_GPUS = 16


class RunOverride(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `-ot` rule of a run: see `is_tensor_pattern` for what a pattern may be."""

    pattern: Annotated[str, Meta(min_length=1, max_length=MAX_PATTERN)]
    device: Annotated[str, Meta(pattern=r"^(CPU|(CUDA|ROCm|Vulkan|SYCL)([0-9]|1[0-5]))$(?!\n)")]

    def __post_init__(self) -> None:
        """Raise ValueError for a pattern outside the grammar, so that no document with one can be decoded."""
        if not is_tensor_pattern(self.pattern):
            raise ValueError(f"{self.pattern!r} is not a pattern of tensor names that a host may be asked to run")


class RunFlags(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`Flags` as a host may be asked to run them: each field as there, and within a range.

    `n_logits` changes neither placement nor speed, and is left out where it is not set: agents of before 2026-11-28
    do not know it.
    """

    n_ctx: Tokens
    n_batch: Batch = 2048
    n_ubatch: Batch = 512
    n_gpu_layers: Annotated[int, Meta(ge=0, le=999)] = 999
    split_mode: Literal["none", "layer", "row", "graph", "tensor", "attn"] = "layer"
    tensor_split: Annotated[tuple[Share, ...], Meta(max_length=MAX_GPUS)] = ()
    main_gpu: Annotated[int, Meta(ge=0, lt=MAX_GPUS)] | None = None
    overrides: Annotated[tuple[RunOverride, ...], Meta(max_length=MAX_OVERRIDES)] = ()
    cpu_moe: bool = False
    n_cpu_moe: Annotated[int, Meta(ge=0, le=999)] = 0
    no_kv_offload: bool = False
    flash_attn: Literal["on", "off", "auto"] = "on"
    cache_type_k: CacheType = "f16"
    cache_type_v: CacheType = "f16"
    mla: Annotated[int, Meta(ge=0, le=3)] | None = None
    attn_max_batch: Annotated[int, Meta(ge=0, le=1 << 16)] | None = None
    fused_moe: bool = True
    runtime_repack: bool = False
    op_offload: bool = True
    n_logits: Batch | UnsetType = UNSET
    threads: Threads | None = None
    threads_batch: Threads | None = None
    mmap: bool | None = None
    mlock: bool = False
    numa: Literal["distribute", "isolate", "numactl"] | None = None


def to_flags(run: RunFlags) -> Flags:
    """Return the same as `Flags`: what placement, memory, speed and the command are computed from."""
    overrides = tuple(Override(rule.pattern, rule.device) for rule in run.overrides)
    stated = {name: getattr(run, name) for name in run.__struct_fields__ if name != "overrides"}
    stated["n_logits"] = None if run.n_logits is UNSET else run.n_logits
    return Flags(**stated, overrides=overrides)


class Closed(msgspec.Struct, frozen=True):
    """Flags as a host may be asked to run them, and the words beyond them that were left away."""

    flags: RunFlags
    dropped: tuple[str, ...] = ()


def closed(flags: Flags) -> Closed:
    """Return the flags within the closed set, and what was dropped: nothing that changes placement or speed.

    A benchmark program has one sequence, and reserves logits of every token: slots, chat templates, and what a server
    returns in place of text fall away. Raises InvalidFlags, naming it, for what lies outside and would make it another
    measurement.
    """
    if other := [option for option in flags.other if option not in WITHOUT_TEXT]:
        raise InvalidFlags(
            f"{other[0][:80]} changes memory or speed, and no host may be asked to run it", field="flags.other"
        )
    stated = {name: getattr(flags, name) for name in RunFlags.__struct_fields__ if name != "overrides"}
    if flags.n_logits is None:
        del stated["n_logits"]
    stated["overrides"] = [{"pattern": rule.pattern, "device": rule.device} for rule in flags.overrides]
    try:
        run = msgspec.convert(msgspec.to_builtins(stated), RunFlags)
    except msgspec.ValidationError as error:
        raise InvalidFlags(f"no host may be asked to run it: {error}", field="flags") from error
    dropped = [f"-np {flags.n_parallel}"] if flags.n_parallel != 1 else []
    return Closed(run, (*dropped, *(["--jinja"] if flags.jinja else []), *flags.other))


MAX_NAME = 64  # GGML_MAX_NAME, ggml.h of both engines: no tensor's name is longer
# Three `.*`. The published patterns have up to 4,096; libstdc++ 12 gives up the worst at this bound after 1.3 s a name.
MAX_WAYS = 1 << 18
_MAX_DEPTH = 8
_MAX_COPIES = 16

_LITERAL = re.compile(r"[A-Za-z0-9_-]|\\[.dw-]|\.")
_CLASS = re.compile(r"\[\^?(?:[A-Za-z0-9_.]-[A-Za-z0-9_.](?!-)|[A-Za-z0-9_.|]|\\[.d])+\]")
_SPAN = re.compile(r"(.)-(.)")
_QUANTIFIER = re.compile(r"[*+?]\??|\{(\d{1,2})\}")


def is_tensor_pattern(text: str) -> bool:
    r"""Return whether `text` is a pattern of tensor names as `-ot` of a run may hold.

    Letters, digits, `_`, `-` (not first), `.`, `\.`, `\d`, `\w`, classes such as `[0-9]`, alternatives in parentheses
    (one may be empty), `^` before and `$` behind all; `*`, `+`, `{2}` behind a single character or class, `?` also
    behind a group.
    """
    if not 0 < len(text) <= MAX_PATTERN or text.startswith("-"):
        return False
    inside = text.removeprefix("^")
    try:
        ways, end = _alternatives(inside, 0, 0)
    except _Outside:
        return False
    return inside[end:] in ("", "$") and ways <= MAX_WAYS


class _Outside(Exception):
    """The text is not a pattern of the grammar."""


def _alternatives(text: str, i: int, depth: int) -> tuple[int, int]:
    """Return (in how many ways the alternatives at `i` can be tried on one name, where they end)."""
    ways, i = _sequence(text, i, depth)
    while text[i : i + 1] == "|":
        more, i = _sequence(text, i + 1, depth)
        ways += more
    return ways, i


def _sequence(text: str, i: int, depth: int) -> tuple[int, int]:
    ways = 1
    while i < len(text) and text[i] not in "|)$":
        more, i = _item(text, i, depth)
        ways = min(ways * more, MAX_WAYS + 1)
    return ways, i


def _item(text: str, i: int, depth: int) -> tuple[int, int]:
    if text[i] == "(":
        return _group(text, i, depth + 1)
    match = _CLASS.match(text, i) or _LITERAL.match(text, i)
    if match is None or any(low > high for low, high in _SPAN.findall(match[0]) if match[0][0] == "["):
        raise _Outside
    repeated = _QUANTIFIER.match(text, match.end())
    if repeated is None:
        return 1, match.end()
    if repeated[1] is not None and not 1 <= int(repeated[1]) <= _MAX_COPIES:
        raise _Outside
    return {"*": MAX_NAME, "+": MAX_NAME, "?": 2, "{": 1}[repeated[0][0]], repeated.end()


def _group(text: str, i: int, depth: int) -> tuple[int, int]:
    if depth > _MAX_DEPTH:
        raise _Outside
    ways, end = _alternatives(text, i + (3 if text.startswith("(?:", i) else 1), depth)
    if text[end : end + 1] != ")":
        raise _Outside
    return (ways + 1, end + 2) if text[end + 1 : end + 2] == "?" else (ways, end + 1)
