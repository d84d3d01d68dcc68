"""The `advisor` command. Imports of the server and the Hub are made where they are needed: `--help` stays instant."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, get_args

import msgspec

from service import __version__
from service.engine.decoding import wrong_value
from service.engine.errors import AdvisorError, InvalidInput
from service.engine.goal import Constraints, GoalRequest, Preset
from service.engine.hardware import Hardware

if TYPE_CHECKING:
    from service.settings import Settings

USAGE_ERROR, FAILURE = 2, 1
_OPTIONS = {  # fields whose option has another name
    "engines": "engine",
    "variants": "variant",
    "kv_types": "kv_type",
    "current_command": "command",
    "what_if": "what_if",
}
_MAX_PASTE = 65_536
_MAX_LOG = 1 << 20
T = TypeVar("T")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 it cannot be done, 2 the input is wrong."""
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except AdvisorError as error:
        _complain(error)
        return USAGE_ERROR if isinstance(error, InvalidInput) else FAILURE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return FAILURE


def _complain(error: AdvisorError) -> None:
    name = (error.field or "").removeprefix("constraints.")
    where = f"--{_OPTIONS[name].replace('_', '-')}: " if name in _OPTIONS else f"{error.field}: " if error.field else ""
    print(f"advisor: {where}{error.detail}", file=sys.stderr)
    if any(choice not in error.detail for choice in error.choices):
        print(f"  did you mean: {', '.join(error.choices[:8])}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="advisor", description="Where to put a GGUF model on your hardware: ranked, explained, ready to paste."
    )
    parser.add_argument("--version", action="version", version=f"advisor {__version__}")
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _advise_parser(verbs.add_parser("advise", help="ranked configs for a repo (or local GGUF) and hardware"))
    _inspect_parser(verbs.add_parser("inspect", help="the variants of a repo and what their headers say"))
    _check_parser(verbs.add_parser("check", help="a command you use: memory, speed, and what is wrong with it"))
    _hardware_parser(verbs.add_parser("hardware", help="this machine's hardware, as the other commands take it"))
    _serve_parser(verbs.add_parser("serve", help="API, workers and an embedded Valkey in one command"))
    return parser


def _advise_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repo", help="OWNER/NAME, OWNER/NAME:VARIANT, a Hub URL, or a path to GGUF files")
    parser.add_argument(
        "--hardware", "-H", help="shorthand, JSON, or pasted tool output; @FILE or - reads it from there"
    )
    parser.add_argument("--revision", help="branch, tag or commit (default: main)")
    goal = parser.add_argument_group("goal")
    goal.add_argument("--goal", default="chat", choices=get_args(Preset), help="preset (default: chat)")
    for name in ("prompt", "output", "depth", "context", "parallel"):
        goal.add_argument(f"--{name}", type=int, metavar="N", help=f"overrides the preset's {name}")
    for name in ("min-tg", "min-pp"):
        goal.add_argument(f"--{name}", type=float, metavar="T/S", help="tokens per second that must be reached")
    parser.add_argument(
        "--what-if", action="append", metavar="CHANGE",
        help="'+1 RTX 3090', '256 GB more RAM', 'PCIe 4 x16 instead of x4', 'no GPU', 'best'; may be repeated",
    )  # fmt: skip
    limits = parser.add_argument_group("constraints")
    limits.add_argument("--engine", action="append", choices=("ik_llama.cpp", "llama.cpp"), help="may be repeated")
    limits.add_argument("--build", metavar="BUILD", help="of the one --engine: 2025-05-11, b3700 or 8337e4cd3")
    limits.add_argument("--variant", action="append", help="may be repeated")
    limits.add_argument("--kv-type", action="append", help="cache types allowed, such as f16 or q8_0; may be repeated")
    limits.add_argument("--min-bpw", type=float, metavar="BITS")
    limits.add_argument("--max-bpw", type=float, metavar="BITS")
    limits.add_argument("--reserve-mib", type=int, metavar="MIB", help="kept free on every GPU (default: 512)")
    limits.add_argument("--max-ram-gib", type=float, metavar="GIB")
    limits.add_argument(
        "--command", metavar="COMMAND", help="the command in use, which is a candidate; @FILE or - reads it from there"
    )
    limits.add_argument(
        "--keep",
        action="append",
        metavar="FLAGS",
        help="options never to change: '-ub 2048' or =--no-mmap; may be repeated",
    )
    limits.add_argument("--models-dir", metavar="DIR", help="where the printed download line puts the files")
    _form_arguments(parser)
    parser.set_defaults(run=_advise)


def _form_arguments(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the API's JSON")
    form.add_argument("--markdown", action="store_true", help="for a chat message")
    parser.add_argument("--detail", choices=("short", "full"), default="short")


def _inspect_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repo", help="OWNER/NAME, OWNER/NAME:VARIANT, a Hub URL, or a path to GGUF files")
    parser.add_argument("--revision", help="branch, tag or commit (default: main)")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=_inspect)


def _check_parser(parser: argparse.ArgumentParser) -> None:
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
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the API's JSON")
    form.add_argument("--markdown", action="store_true", help="for a chat message")
    parser.add_argument("--detail", choices=("short", "full"), default="short")
    parser.set_defaults(run=_check)


def _hardware_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="?", help="shorthand or paste to read instead of this machine; @FILE or -")
    parser.add_argument("--json", action="store_true", help="only the JSON form")
    parser.set_defaults(run=_hardware)


def _serve_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (default: ADVISOR_HOST or 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on, 0 for a free one (default: ADVISOR_PORT or 8000)")
    parser.add_argument("--workers", type=int, help="worker processes (default: ADVISOR_WORKERS)")
    parser.set_defaults(run=_serve)


def _text_argument(value: str, field: str = "hardware") -> str:
    """Return the text itself, or what `@FILE` or `-` (standard input) hold. Raises InvalidInput."""
    if value == "-":
        return sys.stdin.read(_MAX_PASTE + 1)
    if os.path.isfile(value):
        raise InvalidInput(f"{value} is a file: write @{value} to have it read", field=field)
    return _file_text(value[1:], field, _MAX_PASTE) if value.startswith("@") else value


def _file_text(path: str, field: str, at_most: int) -> str:
    try:
        with Path(path).open(errors="replace") as file:
            return file.read(at_most + 1)
    except OSError as error:
        right = "name a file that is there, or give the text itself, or - for standard input"
        raise InvalidInput(f"cannot read {path}: {error.strerror}; {right}", field=field) from error


def _machine(arguments: argparse.Namespace) -> str:
    """Return the text of `--hardware`. Raises InvalidInput where it is missing."""
    if not arguments.hardware:
        example = "-H 'RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600'"
        this = 'advisor hardware says what this machine has: -H "$(advisor hardware --json)"'
        raise InvalidInput(f"say on what it runs: {example}; {this}", field="--hardware")
    return _text_argument(arguments.hardware)


def _goal(arguments: argparse.Namespace) -> GoalRequest:
    names = ("prompt", "output", "depth", "context", "parallel", "min_tg", "min_pp")
    numbers = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    return _converted({"preset": arguments.goal, **numbers}, GoalRequest, "goal")


def _engines(names: list[str] | None, build: str | None) -> list[dict[str, str | None]] | None:
    if build and len(names or ()) != 1:
        raise InvalidInput("a build is one of an engine: name it with --engine", field="--build")
    return [{"name": name, "build": build} for name in names] if names else None


def _constraints(arguments: argparse.Namespace) -> Constraints:
    stated = {
        "engines": _engines(arguments.engine, arguments.build),
        "variants": arguments.variant,
        "kv_types": arguments.kv_type,
        "min_bpw": arguments.min_bpw,
        "max_bpw": arguments.max_bpw,
        "reserve_mib": arguments.reserve_mib,
        "max_ram_gib": arguments.max_ram_gib,
        "models_dir": arguments.models_dir,
        "keep_flags": arguments.keep,
        "current_command": _text_argument(arguments.command, "command") if arguments.command else None,
    }
    return _converted(
        msgspec.to_builtins({k: v for k, v in stated.items() if v is not None}), Constraints, "constraints"
    )


def _converted(value: object, kind: type[T], field: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, path, choices = wrong_value(error, kind)
        name = (path or "").partition("[")[0]
        name = _OPTIONS.get(name, name).replace("_", "-")
        detail = what[:1].lower() + what[1:]
        raise InvalidInput(detail, field=f"--{name}" if name else field, choices=choices) from error


def _advise(arguments: argparse.Namespace) -> int:
    gc.disable()  # one question a process: collecting cycles would cost a third of the time
    from service.flows.direct import advise_directly
    from service.wire.text import render_markdown, render_text

    advice = advise_directly(
        _settings(),
        arguments.repo,
        _machine(arguments),
        _goal(arguments),
        _constraints(arguments),
        arguments.revision,
        arguments.what_if or (),
    )
    if arguments.json:
        _print_json(advice)
    else:
        render = render_markdown if arguments.markdown else render_text
        print(render(advice, arguments.detail), end="")
    return 0 if advice.configs else FAILURE


def _inspect(arguments: argparse.Namespace) -> int:
    from service.flows.direct import inspect_directly
    from service.wire.repo_text import render_repo

    inspection = inspect_directly(_settings(), arguments.repo, arguments.revision, None)
    if arguments.json:
        _print_json(inspection)
    else:
        print(render_repo(inspection), end="")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from service.flows.check_direct import check_directly
    from service.wire.check import BatchCase
    from service.wire.check_text import render_check_markdown, render_check_text

    if arguments.batch:
        return _check_batch(arguments.batch)
    if not arguments.command:
        raise InvalidInput("a check needs COMMAND and --hardware; or --batch FILE", field="command")
    stated = {
        "command": _text_argument(arguments.command, "command"),
        "model": arguments.model,
        "hardware": _machine(arguments),
        "engine": arguments.engine,
        "build": arguments.build,
        "depths": _depths(arguments.depths),
        "reserve_mib": arguments.reserve_mib,
        "log": _file_text(arguments.log, "log", _MAX_LOG) if arguments.log else None,
        "draft": arguments.draft,
        "mmproj": arguments.mmproj,
    }
    checked = check_directly(_settings(), _converted(stated, BatchCase, "check"))
    if arguments.json:
        _print_json(checked)
    else:
        render = render_check_markdown if arguments.markdown else render_check_text
        print(render(checked, arguments.detail), end="")
    return 0 if checked.fits and all(f.severity != "error" for f in checked.findings) else FAILURE


def _check_batch(path: str) -> int:
    """Check a file's lines; 1 if one of them could not be checked."""
    from service.flows.check_direct import check_batch

    failed = False
    try:
        with Path(path).open("rb") if path != "-" else nullcontext(sys.stdin.buffer) as lines:
            for answer in check_batch(_settings(), lines):
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


def _hardware(arguments: argparse.Namespace) -> int:
    from service.detect import detect
    from service.engine.catalogue import resolve
    from service.engine.hardware_text import parse_hardware, to_shorthand

    hardware: Hardware = parse_hardware(_text_argument(arguments.text)) if arguments.text else detect()
    rig = resolve(hardware)
    if not arguments.json:
        print(to_shorthand(hardware))
        for a in rig.assumed:
            print(f"assumed: {a.field} = {a.value} ({a.why}); it changes {a.matters}")
        print()
    _print_json(hardware)
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    from service.serve import serve

    stated = {"ADVISOR_HOST": arguments.host, "ADVISOR_PORT": arguments.port, "ADVISOR_WORKERS": arguments.workers}
    return serve(_settings({name: str(value) for name, value in stated.items() if value is not None}))


def _settings(stated: Mapping[str, str] | None = None) -> Settings:
    from service.settings import load_settings

    return load_settings({**os.environ, **(stated or {})})


def _print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


if __name__ == "__main__":
    sys.exit(main())
