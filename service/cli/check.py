"""`advisor check`: the memory and speed of a command in use, and what is wrong with it."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from service.cli.inputs import add_no_cache, converted, file_text, machine, reading_settings, text_argument
from service.cli.output import FAILURE, form_arguments, print_json
from service.engine.errors import InvalidInput

if TYPE_CHECKING:
    from service.settings import Settings

_MAX_LOG = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("command", nargs="?", help="the command line, quoted; @FILE or - reads it from there")
    parser.add_argument(
        "--model",
        metavar="MODEL",
        help="OWNER/NAME:VARIANT, or its GGUF files (default: what COMMAND names)",
    )
    parser.add_argument(
        "--hardware", "-H", help="shorthand, JSON, or pasted tool output; @FILE or - reads it from there"
    )
    parser.add_argument("--engine", choices=("ik_llama.cpp", "llama.cpp"), help="default: guessed from the command")
    parser.add_argument(
        "--build", metavar="BUILD", help="of the engine: 2025-05-11, b3700 or 8337e4cd3 (default: today's)"
    )
    parser.add_argument("--log", metavar="FILE", help="what it printed: buffers and speeds are compared")
    parser.add_argument("--depths", metavar="N,N", help="depths in tokens for the speeds")
    parser.add_argument("--reserve-mib", type=int, metavar="MIB", help="that proposed changes leave free on every GPU")
    parser.add_argument(
        "--draft", metavar="MODEL", help="the draft model that the command loads (default: as it names)"
    )
    parser.add_argument("--mmproj", metavar="FILE", help="the projector that the command loads (default: as it names)")
    parser.add_argument("--batch", metavar="FILE", help="one JSON object a line in and out; - reads standard input")
    add_no_cache(parser)
    form_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0: it fits, and no finding is an error; 1 otherwise."""
    from service.flows.check_direct import check_directly
    from service.wire.check import BatchCase
    from service.wire.check_text import render_check_markdown, render_check_text

    if arguments.batch:
        return _check_batch(arguments.batch, reading_settings(arguments))
    if not arguments.command:
        raise InvalidInput("a check needs COMMAND and --hardware; or --batch FILE", field="command")
    stated = {
        "command": text_argument(arguments.command, "command"),
        "model": arguments.model,
        "hardware": machine(arguments),
        "engine": arguments.engine,
        "build": arguments.build,
        "depths": _depths(arguments.depths),
        "reserve_mib": arguments.reserve_mib,
        "log": file_text(arguments.log, "log", _MAX_LOG) if arguments.log else None,
        "draft": arguments.draft,
        "mmproj": arguments.mmproj,
    }
    checked = check_directly(reading_settings(arguments), converted(stated, BatchCase, "check"))
    if arguments.json:
        print_json(checked)
    else:
        render = render_check_markdown if arguments.markdown else render_check_text
        print(render(checked, arguments.detail), end="")
    return 0 if checked.fits and all(f.severity != "error" for f in checked.findings) else FAILURE


def _check_batch(path: str, settings: Settings) -> int:
    """Check a file's lines; 1 if one of them could not be checked."""
    from service.flows.check_direct import check_batch

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
