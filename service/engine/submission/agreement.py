"""Whether an output is that of a command: the settings that the program printed, compared with the command's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from service.engine.commands.parse import BENCH_PROGRAMS, ParsedCommand
from service.engine.commands.reader import BenchTests
from service.engine.config import Flags
from service.engine.logs.requests import Program
from service.engine.measured.rows import MeasuredRow
from service.engine.submission.tables import Tool

_ALL_LAYERS = 99  # from here on, and below 0, it means all of them
_PADDING = 256  # a context is rounded up to this (llama.cpp 0c1e57098 src/llama-context.cpp:62)


def disagreement(
    parsed: ParsedCommand, flags: Flags, tool: Tool, stated: Mapping[str, str], rows: Sequence[MeasuredRow]
) -> str | None:
    """Return a sentence on the first sign that an output is not of this command, None if there is no sign.

    `flags` are those of the command as the engine takes them. `stated` is what the program printed, by its own names:
    columns of llama-bench, fields of its JSON, or the line that llama-sweep-bench prints before its table.
    """
    found = [*_settings(flags, stated)]
    if tool in get_args(Program) and parsed.program in BENCH_PROGRAMS:
        return f"the output is of {tool}, the command of {parsed.program}"
    if tool == "llama-sweep-bench":
        found += _sweep(flags, rows)
    elif tool == "llama-bench" and parsed.program == "llama-bench" and parsed.tests is not None:
        found += _tests(parsed.tests, rows)
    return found[0] if found else None


def _settings(flags: Flags, stated: Mapping[str, str]) -> Iterator[str]:
    for name, ours in (
        ("n_ubatch", flags.n_ubatch),
        ("type_k", flags.cache_type_k),
        ("type_v", flags.cache_type_v),
        ("threads", flags.threads),
        ("n_threads", flags.threads),
    ):
        if name in stated and ours is not None and stated[name] != str(ours):
            yield f"the output says {name} {stated[name][:40]}, the command {ours}"
    for name in ("ngl", "n_gpu_layers"):
        said = _number(stated.get(name))
        if said is not None and _layers(said) != _layers(flags.n_gpu_layers):
            yield f"the output says {name} {said}, the command {flags.n_gpu_layers}"
    context = _number(stated.get("n_kv_max"))
    if context is not None and not flags.n_ctx <= context < flags.n_ctx + _PADDING:
        yield f"the output says a context of {context:,} tokens, the command {flags.n_ctx:,}"


def _sweep(flags: Flags, rows: Sequence[MeasuredRow]) -> Iterator[str]:
    """Yield where rows of llama-sweep-bench contradict the command.

    Their prompts are one micro-batch (ik_llama.cpp 8337e4cd3 examples/sweep-bench/sweep-bench.cpp:226).
    """
    for row in rows:
        if row.n_prompt != flags.n_ubatch:
            yield f"the output has prompts of {row.n_prompt:,} tokens, the command micro-batches of {flags.n_ubatch:,}"
        if row.n_kv > flags.n_ctx:
            yield f"the output has a depth of {row.n_kv:,} tokens, the command a context of {flags.n_ctx:,}"


def _tests(tests: BenchTests, rows: Sequence[MeasuredRow]) -> Iterator[str]:
    pairs = {(p, g) for p, g in tests.pairs}
    for row in rows:
        asked = row.n_kv in tests.depths and (
            row.n_prompt in tests.prompts if row.pp_seconds else row.n_gen in tests.generations
        )
        if not asked and not any((row.n_kv - depth, row.n_gen) in pairs for depth in tests.depths):
            kind = f"pp{row.n_prompt}" if row.pp_seconds else f"tg{row.n_gen}"
            at = f" at a depth of {row.n_kv:,}" if row.n_kv else ""
            yield f"the output has {kind}{at}, which the command does not measure"


def _layers(count: int) -> int:
    return count if 0 <= count < _ALL_LAYERS else _ALL_LAYERS


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?\d{1,9}", text) else None
