"""`advisor check`: the memory and speed of a command in use, and what is wrong with it."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from service.cli.inputs import add_no_cache, converted, file_text, machine, reading_settings, text_argument
from service.cli.output import FAILURE, MORE, form_arguments, print_json
from service.engine.errors import AdvisorError, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from service.engine.commands.read_files import NamedCommand
    from service.settings import Settings
    from service.wire.advice.check import BatchCase, Checked

    Answers: TypeAlias = list[tuple[NamedCommand, Checked, BatchCase]]
    Unread: TypeAlias = dict[str, AdvisorError]

_MAX_LOG = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "command",
        metavar="COMMAND",
        nargs="?",
        help="the command, quoted; @FILE or - reads it from there, or the command of each model in a file of "
        "llama-swap, router presets, compose, systemd or KoboldCpp",
    )
    parser.add_argument(
        "--model", metavar="MODEL", help="OWNER/NAME:VARIANT or GGUF files (default: what COMMAND names)"
    )
    parser.add_argument(
        "--hardware", "-H", help="shorthand, JSON, or pasted tool output; @FILE or - reads it from there"
    )
    parser.add_argument("--engine", choices=("ik_llama.cpp", "llama.cpp"), help="default: guessed from the command")
    parser.add_argument(
        "--build", metavar="BUILD", help="build of the engine: 2025-05-11, b3700 or 8337e4cd3 (default: today's)"
    )
    parser.add_argument("--log", metavar="FILE", help="what the command printed, to compare buffers and speeds with")
    parser.add_argument("--depths", metavar="N,N", help="depths, in tokens, to predict speeds for")
    parser.add_argument(
        "--reserve-mib", type=int, metavar="MIB", help="MiB that suggested changes leave free on every GPU"
    )
    parser.add_argument("--draft", metavar="MODEL", help="draft model (default: the one that COMMAND names)")
    parser.add_argument("--mmproj", metavar="FILE", help="projector (default: the one that COMMAND names)")
    parser.add_argument(
        "--engine-dir",
        metavar="DIR",
        help="folder of llama.cpp's programs: also asks llama-fit-params about the header, before any download",
    )
    parser.add_argument(
        "--batch", metavar="FILE", help="check many: one JSON object per line, in and out; - reads standard input"
    )
    add_no_cache(parser)
    form_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0: it fits, and no finding is an error; 1 otherwise."""
    from service.engine.commands.read_files import commands_of
    from service.wire.advice.check import BatchCase
    from service.wire.advice.check_text import check_lines
    from service.wire.plain_text import as_markdown, as_text

    if arguments.batch:
        return _check_batch(arguments.batch, reading_settings(arguments))
    if not arguments.command:
        raise InvalidInput("a check needs COMMAND and --hardware; or --batch FILE", field="command")
    stated = {
        "model": arguments.model,
        "hardware": machine(arguments),
        "build": arguments.build,
        "depths": _depths(arguments.depths),
        "reserve_mib": arguments.reserve_mib,
        "log": file_text(arguments.log, "log", _MAX_LOG) if arguments.log else None,
        "draft": arguments.draft,
        "mmproj": arguments.mmproj,
    }
    if arguments.engine_dir and arguments.json:
        raise InvalidInput("--engine-dir prints text: leave out --json", field="engine_dir")
    text = text_argument(arguments.command, "command")
    settings, commands = reading_settings(arguments), commands_of(text)
    render = as_markdown if arguments.markdown else as_text
    cases: list[tuple[NamedCommand, BatchCase]] = []
    for one in commands:
        own = one.command if len(commands) > 1 else text  # the original text also tells what was left out
        named = {**stated, "command": own, "engine": arguments.engine or one.engine}
        cases.append((one, converted(named, BatchCase, "check")))
    answers, unread = _answers(settings, cases)
    file, shown = _corrected(text, answers) if len(commands) > 1 else ("", answers)
    if arguments.json:
        several = {one.name or "": checked for one, checked, _ in shown}
        not_checked = {name: {"error": {"type": one.problem, "detail": one.detail}} for name, one in unread.items()}
        print_json({**several, **not_checked} if len(commands) > 1 else shown[0][1])
    else:
        for one, checked, case in shown:
            print(f"{one.name}:\n" if len(commands) > 1 else "", end="")
            print(render(check_lines(checked, arguments.detail, MORE)), end="")
            if arguments.engine_dir:
                print("\n".join(_asked(Path(arguments.engine_dir), settings, case)))
        for name, wrong in unread.items():
            print(f"{name}: not checked: {wrong.detail}")
        print(file, end="")
    fine = not unread and all(
        checked.fits and all(f.severity != "error" for f in checked.findings) for _, checked, _ in answers
    )
    return 0 if fine else FAILURE


def _answers(settings: Settings, cases: Sequence[tuple[NamedCommand, BatchCase]]) -> tuple[Answers, Unread]:
    """Return the checks of a file's commands, and why some have none: those of other programs, or of models that are
    nowhere. Raises AdvisorError where the same is wrong with all."""
    from service.flows.advice.check_direct import DirectChecks

    checks = DirectChecks(settings)
    answers: Answers = []
    unread: Unread = {}
    for one, case in cases:
        try:
            answers.append((one, checks.check(case), case))
        except AdvisorError as wrong:
            unread[one.name or ""] = wrong
    if not answers and len({wrong.detail for wrong in unread.values()}) == 1:
        raise next(iter(unread.values()))
    return answers, unread


def _corrected(text: str, answers: Answers) -> tuple[str, Answers]:
    """Return a file of several commands with the corrected ones, and what each takes there, as text, "" where nothing
    could be written; and the answers, whose lines would replace nothing in the file."""
    from service.engine.check.fixed import corrected_file
    from service.wire.advice.check_text import fixed_words

    said: list[str] = []
    for one, checked, _ in answers:
        if checked.fixed and (written := corrected_file(text, one, checked.fixed)):
            text = written
            said.append(f"{one.name}: {fixed_words(checked)}")
    plain: Answers = [
        (one, msgspec.structs.replace(checked, fixed=None, fixed_figures=None), case) for one, checked, case in answers
    ]
    return "\n".join(["corrected file, as a whole:", *said, text.rstrip("\n"), ""]) if said else "", plain


def _asked(folder: Path, settings: Settings, case: BatchCase) -> Iterator[str]:
    """Yield the memory that the engine in `folder` reports for a case, each device beside our figures for that
    program."""
    from service.cli.engine_asked import ask_engine
    from service.engine.commands.parse import parse
    from service.flows.advice.check_direct import DirectChecks

    checks, parsed = DirectChecks(settings), parse(case.command, case.engine, build=case.build)
    rows = ask_engine(folder, parsed, checks.model_of(case))
    yield ""
    yield f"llama-fit-params in {folder} says, from the header alone, in MiB rounded down"
    yield "(here: computed for that program, which reserves logits of a whole batch):"
    devices = checks.check(msgspec.structs.replace(case, allocator="lab")).memory.devices
    ours = {("Host" if row.device == "CPU" else row.device): row for row in devices}
    for row in rows:
        line = f"{row.device:<8} weights {row.weights_mib:,}, cache {row.kv_mib:,}, compute {row.compute_mib:,}"
        here = ours.get(row.device)
        figures = f"{here.weights_mib:,.0f}, {here.kv_mib:,.0f}, {here.compute_mib:,.0f}" if here else "no such device"
        yield f"{line}  (here {figures})"
    if {row.device for row in rows} != ours.keys():
        yield "the engine sees other devices on this machine than the check was asked for: compare the sums"


def _check_batch(path: str, settings: Settings) -> int:
    """Check a file's lines; return 1 if one of them could not be checked."""
    from service.flows.advice.check_direct import check_batch

    failed = False
    try:
        with Path(path).open("rb") if path != "-" else nullcontext(sys.stdin.buffer) as lines:
            for answer in check_batch(settings, lines):
                failed |= "error" in answer
                print(msgspec.json.encode(answer).decode(), flush=True)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}", field="batch") from error
    return FAILURE if failed else 0


def _depths(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InvalidInput("--depths takes whole numbers such as 0,8192", field="depths") from error
