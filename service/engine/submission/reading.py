"""From a paste to what was run, what came of it and on which build. What the paste lacks stays empty.

Requests of servers and chats become rows too, with a sentence on what such rows can tell. Also whether an output is
of a command, by the settings that the program printed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

import msgspec

from service.engine.commands.parse import BENCH_PROGRAMS, ParsedCommand
from service.engine.commands.reader import BenchTests
from service.engine.config import Flags
from service.engine.errors import InvalidInput
from service.engine.hardware import Assumption, Backend, Hardware
from service.engine.hardware_text import tools_in
from service.engine.logs.requests import Program, Request, read_requests, without_words
from service.engine.measured.doubts import LEAST_OUTPUT, LEAST_PROMPT
from service.engine.measured.reader import MAX_ROWS
from service.engine.measured.rows import MeasuredRow, row_of
from service.engine.submission.command import find_command
from service.engine.submission.lines import Line, lines_of
from service.engine.submission.objects import read_objects
from service.engine.submission.tables import Tool, read_table
from service.engine.units import GIB, MIB

_BUILD = re.compile(
    r"(?:^|\s)(?:build|version)\s*[:=]\s*(?:b?(?P<number>\d{1,6})\s*\((?P<of>[0-9a-f]{7,40})\)"
    r"|(?P<commit>[0-9a-f]{7,40})\s*\((?P<count>\d{1,6})\))"
    # ik_llama.cpp's server, in text or JSON (8337e4cd3 examples/server/server.cpp:488)
    r"|\bbuild\"?[=:]\d{1,6},? ?\"?commit\"?[=:]\"(?P<keyed>[0-9a-f]{7,40})\""
)
_COMMIT = re.compile(r"[0-9a-f]{6,40}")
_SETTINGS = re.compile(r"^\s*main: n_kv_max = \d")
_SETTING = re.compile(r"(\w{2,20}) = (-?\d{1,9})\b")
# The name of a GPU back end in the column `backend` of llama-bench, such as `Vulkan` or `Metal,BLAS`; and the line with
# which one starts: `ggml_vulkan: Found 1 Vulkan devices:`.
_BACKENDS: dict[str, Backend] = {
    "cuda": "cuda", "rocm": "rocm", "hip": "rocm", "sycl": "sycl", "vulkan": "vulkan", "metal": "metal", "mtl": "metal",
}  # fmt: skip
_STARTS = re.compile(r"\bfound \d{1,2} (CUDA|ROCm|SYCL|Vulkan) devices", re.I)
_SIZE = re.compile(r"(\d{1,6}[.,]\d\d) ?(MiB|GiB)")
_LOADED = re.compile(r"(?:model|file) size +=\s{1,8}(\d{1,6}[.,]\d{2,3}) (MiB|GiB)")
_ALL_LAYERS = 99  # from here on, and below 0, it means all of them
_PADDING = 256  # a context is rounded up to this (llama.cpp 0c1e57098 src/llama-context.cpp:62)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a paste says.

    `rows` are in the order of the output; `command` is one text, which begins on line `line`. `stated` holds settings
    that the program printed, by its own names; `build` is a commit or number; `hardware` is what tools or the engine
    listed, and `backend` the one that drove the GPUs, where it is only one. `sizes` are the bytes of weights that it
    printed, rounded to a hundredth of their unit. `dropped` has sentences about what was read
    but is not part of a result, and `assumed` what the rows of requests mean. `log` is what may be kept of a paste that
    may hold what people wrote to a model.
    """

    tool: Tool | None = None
    rows: tuple[MeasuredRow, ...] = ()
    command: str | None = None
    line: int | None = None
    build: str | None = None
    hardware: Hardware | None = None
    backend: Backend | None = None
    sizes: tuple[float, ...] = ()
    stated: dict[str, str] = {}
    dropped: tuple[str, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    log: str | None = None


def read_paste(text: str) -> Reading:
    """Return what a paste says: a command, a benchmark program's output, or both, whatever stands around them.

    What is not there is None or empty. Nothing is guessed: a line that cannot be understood raises InvalidInput (field
    `text`) with its number.
    """
    lines = lines_of(text)
    objects = read_objects(lines)
    rest = [line if not objects or line.number not in objects.used else Line(line.number, "") for line in lines]
    command = find_command(rest)
    rest = [line if not command or line.number not in command.used else Line(line.number, "") for line in rest]
    table = read_table(rest)
    if objects and table:
        raise InvalidInput(
            f"line {max(objects.line, table.line)}: a second output: send each run separately", field="text"
        )
    found = objects or table
    if found and found.left_out and not found.rows:
        raise InvalidInput(f"nothing that counts was measured: {found.left_out[0]}", field="text")
    texts = [line.text for line in rest]
    requests = None if found else request_rows(texts)
    stated = found.stated if found else {}
    hardware = tools_in(texts)
    reading = msgspec.structs.replace(
        requests or Reading(),
        command=command.text if command else None,
        line=command.line if command else None,
        build=_build(rest, stated),
        hardware=hardware,
        backend=_backend(texts, stated, hardware),
        sizes=tuple(_sizes(texts, stated)),
        stated={} if requests else _stated(rest, stated),
    )
    if found:
        reading = msgspec.structs.replace(
            reading, tool=found.tool, rows=tuple(map(row_of, found.rows)), dropped=tuple(found.left_out)
        )
    if len(reading.rows) > MAX_ROWS:
        raise InvalidInput(f"{len(reading.rows):,} rows: at most {MAX_ROWS:,} are read", field="text")
    return reading


def _stated(lines: Sequence[Line], stated: dict[str, str]) -> dict[str, str]:
    """Return the settings that the program printed: in its JSON or table (`stated`), or in a line before the table."""
    for line in lines:
        if _SETTINGS.match(line.text):
            return {**dict(_SETTING.findall(line.text)), **stated}
    return stated


def _build(lines: Sequence[Line], stated: dict[str, str]) -> str | None:
    if _COMMIT.fullmatch(stated.get("build_commit", "")):
        return stated["build_commit"]
    found = [match for line in lines if len(line.text) < 400 and (match := _BUILD.search(line.text))]
    return (found[-1]["of"] or found[-1]["commit"] or found[-1]["keyed"]) if found else None


def _sizes(texts: Sequence[str], stated: dict[str, str]) -> Iterator[float]:
    """Yield the bytes of weights in a benchmark's rows, else those that the engine printed while loading."""
    if (n_bytes := _number(stated.get("model_size"), digits=15)) is not None:
        yield n_bytes
        return
    column = _SIZE.fullmatch(stated.get("size", ""))
    lines = (_LOADED.search(text) for text in texts if " size " in text and len(text) < 400)
    for match in [column] if column else filter(None, lines):
        yield float(match[1].replace(",", ".")) * (MIB if match[2] == "MiB" else GIB)


def _backend(texts: Sequence[str], stated: dict[str, str], hardware: Hardware | None) -> Backend | None:
    """Return the back end that a benchmark names, else the one that starts or lists devices; None if several do."""
    column = stated.get("backend") or stated.get("backends")
    if column is not None:
        named = {_BACKENDS[name] for name in column.lower().split(",") if name in _BACKENDS}
    else:
        named = {_BACKENDS[m[1].lower()] for text in texts if (m := _STARTS.search(text[:400]))}
        named |= {hardware.backend} if hardware and hardware.backend else set()
    return named.pop() if len(named) == 1 else None


_OF_ONE = "one program's requests are one run: send each program's separately"
_MEANING = "a request's prompt counts as a whole, and its output follows it: they are not rows of a benchmark"
_WORDS: dict[Program, str] = {
    "llama-server": _MEANING,
    "llama-cli": f"{_MEANING}; for a chat, all turns together",
    "ollama": f"{_MEANING}; it chose layers and context itself, so the command must state them",
    "koboldcpp": f"{_MEANING}; times are given to hundredths of a second",
}


def request_rows(lines: Sequence[str]) -> Reading | None:
    """Return the requests of a paste as rows, two of each: prompt and output; None if there are none.

    `dropped` has sentences about the others. Raises InvalidInput (field `text`) if none of them measured anything, with
    the reason, or if they are of several programs.
    """
    read = read_requests(lines)
    why = [_why_not(one) for one in read.found]
    taken = [one for one, reason in zip(read.found, why, strict=True) if reason is None]
    left = [f"{count} request{'s' * (count > 1)}: {reason}" for reason, count in Counter(filter(None, why)).items()]
    dropped = (*read.refused, *left)
    if not taken:
        if dropped:
            raise InvalidInput(dropped[0], field="text")
        return None
    if len({one.program for one in taken}) > 1:
        raise InvalidInput(_OF_ONE, field="text")
    program = taken[0].program
    return Reading(
        tool=program, rows=tuple(row for one in taken for row in _rows(one)), dropped=dropped,
        assumed=tuple(_assumed(program, taken)), log="\n".join(without_words(lines)),
    )  # fmt: skip


def _why_not(one: Request) -> str | None:
    if one.flaw is not None:
        return one.flaw
    if one.n_prompt < LEAST_PROMPT or one.n_output < LEAST_OUTPUT:
        return f"fewer than {LEAST_PROMPT} tokens of prompt or {LEAST_OUTPUT} of output say little"
    try:
        _rows(one)
    except ValueError as error:
        return str(error)
    return None


def _rows(one: Request) -> tuple[MeasuredRow, MeasuredRow]:
    """Return a request's rows, prompt and output. Raises ValueError for times that are not possible."""
    return (
        MeasuredRow(n_kv=one.n_cached or 0, n_prompt=one.n_prompt, pp_seconds=(one.prompt_seconds,)),
        MeasuredRow(n_kv=one.depth, n_gen=one.n_output, tg_seconds=(one.output_seconds,)),
    )


def _assumed(program: Program, taken: Sequence[Request]) -> list[Assumption]:
    n = len(taken)
    found = [
        Assumption("rows", f"{n} request{'s' * (n > 1)} of {program}", _WORDS[program], "what it is compared with")
    ]
    if any(one.n_cached is None for one in taken):
        what = "how much of the prompt was cached is not stated: none is assumed"
        found.append(Assumption("depth", "0", what, "the depth of prompt and output"))
    return found


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


def _number(text: str | None, digits: int = 9) -> int | None:
    return int(text) if text and re.fullmatch(rf"-?\d{{1,{digits}}}", text) else None
