"""The flags in effect in a run, and where each comes from: given, the build's default, or forced by the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from service.engine.commands.tables import OPTIONS
from service.engine.config import Flags
from service.engine.engines import engine_spec
from service.engine.run.resolved import ResolvedRun

_SIMPLE = (
    *(("n_batch", "-b"), ("n_parallel", "-np"), ("n_gpu_layers", "-ngl"), ("split_mode", "-sm")),
    *(("cache_type_k", "-ctk"), ("cache_type_v", "-ctv"), ("op_offload", "--op-offload")),
)
# Options that determine the value of another option's field.
_ALSO = {"no_flash_attn": ("flash_attn",), "load_mode": ("mmap", "mlock"), "op_policy": ("op_offload",)}


class EffectiveFlag(msgspec.Struct, frozen=True, kw_only=True):
    """An option as it holds, by the name that is common today. `source`: given with the command, the default of the
    build, or forced by the engine, whatever was given; `because`: by what, empty for the other two.
    """

    option: str
    value: str
    source: Literal["given", "default", "forced"]
    because: str = ""


def effective_flags(run: ResolvedRun, written: Flags, used: Sequence[str]) -> list[EffectiveFlag]:
    """Return the flags of a run that decide memory and speed.

    `written`: what the command says, before `-fit`. `used`: the names of its options.
    """
    given = _given(used)
    return [_sourced(given, *one) for one in _in_effect(run, written)]


def _given(used: Sequence[str]) -> frozenset[str]:
    names = frozenset(used)
    fields = [option.field for option in OPTIONS if names.intersection(option.names)]
    return frozenset((*fields, *(also for field in fields for also in _ALSO.get(field, ()))))


def _sourced(given: frozenset[str], field: str, option: str, value: object, because: str) -> EffectiveFlag:
    text = {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    source: Literal["given", "default", "forced"] = "forced" if because else "given" if field in given else "default"
    return EffectiveFlag(option=option, value=text, source=source, because=because)


def _in_effect(run: ResolvedRun, written: Flags) -> Iterator[tuple[str, str, object, str]]:
    """Yield the field, option and value of each flag, and what forces it."""
    model, flags, memory = run.model, run.flags, engine_spec(run.engine).memory
    n_ctx, n_ubatch = run.n_ctx, run.n_ubatch
    padded = "the cache has whole blocks of rows" if flags.n_ctx not in (0, n_ctx) else ""
    yield "n_ctx", "-c", n_ctx, padded or _by_fit(flags.n_ctx, written.n_ctx)
    yield "n_ubatch", "-ub", n_ubatch, "no more than -b and -c" if n_ubatch < flags.n_ubatch else ""
    for field, option in _SIMPLE:
        value = getattr(flags, field)
        yield field, option, value, _by_fit(value, getattr(written, field))
    lacks = model.architecture in memory.without_flash_attention
    yield "flash_attn", "-fa", "off" if lacks else flags.flash_attn, f"{model.architecture} has none" if lacks else ""
    off = run.mmap_off
    yield "mmap", "--mmap", off is None, off if off and flags.mmap is not False else ""
    if model.mla is not None and engine_spec(run.engine).commands.latent_flags:
        usual = run.build.rules.memory.mla if flags.mla is None else flags.mla
        yield "mla", "-mla", run.mla, "this build, for this file and -ngl" if run.mla != usual else ""
    if memory.fuses_up_and_gate:
        yield "fused_moe", "-fmoe", flags.fused_moe, ""
    if memory.repacks_at_load:
        yield "runtime_repack", "-rtr", flags.runtime_repack, ""


def _by_fit(value: object, written: object) -> str:
    return "-fit" if value != written else ""
