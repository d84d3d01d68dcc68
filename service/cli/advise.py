"""`advisor advise`: ranked configs for a repo and hardware."""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO, get_args

import msgspec

from service.cli.inputs import add_no_cache, converted, machine, reading_settings, text_argument, tokens
from service.cli.output import FAILURE, MORE, form_arguments, print_json
from service.cli.progress import Progress
from service.engine.config import FileFormat
from service.engine.errors import InvalidInput
from service.engine.goal import Constraints, GoalRequest, Preset

if TYPE_CHECKING:
    from service.wire.advice.advice import Advice

_NUMBERS = {  # of a goal
    "prompt": "tokens of a prompt",
    "output": "tokens of an answer",
    "depth": "tokens already in the cache",
    "context": "tokens of all requests together, as with -c",
    "parallel": "requests at once",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "repo", metavar="REPO", nargs="+",
        help="OWNER/NAME, OWNER/NAME:VARIANT, a Hub URL, or a path to GGUF files; several: models to serve together",
    )  # fmt: skip
    parser.add_argument(
        "--together", action="store_true", help="plan several repos so that all of them fit in memory at once"
    )
    parser.add_argument(
        "--hardware", "-H", help="shorthand, JSON, or pasted tool output; @FILE or - reads it from there"
    )
    parser.add_argument("--revision", help="branch, tag or commit (default: main)")
    goal = parser.add_argument_group("goal")
    goal.add_argument("--goal", default="chat", choices=get_args(Preset), help="preset (default: chat)")
    for name, of in _NUMBERS.items():
        kind = int if name == "parallel" else tokens
        goal.add_argument(f"--{name}", type=kind, metavar="N", help=f"{of} (default: the preset's)")
    for name in ("min-tg", "min-pp"):
        of = "a prompt" if name == "min-pp" else "an answer"
        goal.add_argument(f"--{name}", type=float, metavar="T/S", help=f"minimum tokens per second of {of}")
    parser.add_argument(
        "--what-if", action="append", metavar="CHANGE",
        help="'+1 RTX 3090', '256 GB more RAM', 'PCIe 4 x16 instead of x4', 'no GPU', 'best'; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--measured", action="append", metavar="FILE",
        help="measurements from this machine: what validate --here or up --log saved, or a command and what it "
        "printed; corrects the estimates; may be repeated",
    )  # fmt: skip
    _add_constraints(parser)
    add_no_cache(parser)
    form_arguments(parser).add_argument(
        "--as", dest="file_format", choices=get_args(FileFormat),
        help="print a file for another program: llama-swap's YAML, llama-server's router presets, compose, variables",
    )  # fmt: skip


def _add_constraints(parser: argparse.ArgumentParser) -> None:
    limits = parser.add_argument_group("constraints")
    limits.add_argument(
        "--engine", action="append", choices=("ik_llama.cpp", "llama.cpp"), help="use only this one; may be repeated"
    )
    limits.add_argument("--build", metavar="BUILD", help="build of that engine: 2025-05-11, b3700 or 8337e4cd3")
    limits.add_argument("--variant", action="append", help="use only this one; may be repeated")
    limits.add_argument("--kv-type", action="append", help="cache types allowed, such as f16 or q8_0; may be repeated")
    limits.add_argument("--min-bpw", type=float, metavar="BITS", help="minimum bits per weight of a variant")
    limits.add_argument("--max-bpw", type=float, metavar="BITS", help="maximum bits per weight of a variant")
    kept = "MiB to keep free on every GPU (default: 512; 1,024 with a display; 768 or more on Windows)"
    limits.add_argument("--reserve-mib", type=int, metavar="MIB", help=kept)
    limits.add_argument("--max-ram-gib", type=float, metavar="GIB", help="maximum GiB of RAM to use")
    limits.add_argument(
        "--command",
        metavar="COMMAND",
        help="the command you use now, ranked with the others; @FILE or - reads it from there",
    )
    limits.add_argument(
        "--keep",
        action="append",
        metavar="FLAGS",
        help="options that must not change: '-ub 2048' or =--no-mmap; may be repeated",
    )
    limits.add_argument(
        "--images",
        action="store_true",
        help="for images or sound too: adds the repo's projector, and counts its memory",
    )
    limits.add_argument("--models-dir", metavar="DIR", help="folder that the download command puts the files into")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0: there is a config for each repo; 1: none fits."""
    gc.disable()  # collecting cycles would take a third of the time, of a process that answers one question
    try:
        return _run(arguments)
    finally:
        gc.enable()


def _run(arguments: argparse.Namespace) -> int:
    from service.wire.advice.text import render_markdown, render_text

    advices = _advices(arguments)
    if arguments.measured:
        from service.cli.own_results import with_own

        advices = [with_own(reading_settings(arguments), advice, arguments.measured) for advice in advices]
    fits = all(advice.configs for advice in advices)
    if arguments.file_format or len(advices) > 1:
        return _print_together(arguments, advices)
    if arguments.json:
        print_json(advices[0])
    else:
        render = render_markdown if arguments.markdown else render_text
        print_text(render(advices[0], arguments.detail, MORE))
    return 0 if fits else FAILURE


def _advices(arguments: argparse.Namespace) -> list[Advice]:
    from service.engine.catalogue import resolve
    from service.engine.hardware_text import parse_hardware
    from service.engine.hardware_text.form import canonical
    from service.flows.advice.direct import advise_directly, advise_together

    settings, hardware = reading_settings(arguments), machine(arguments)
    goal, constraints, questions = _goal(arguments), _constraints(arguments), arguments.what_if or ()
    if arguments.together and questions:
        raise InvalidInput("--what-if works for one repo: leave out --together", field="--what-if")
    with Progress() as progress:
        show = progress.show if sys.stderr.isatty() else lambda share, text: None

        def advised(repo: str, limits: Constraints) -> Advice:
            return advise_directly(settings, repo, hardware, goal, limits, arguments.revision, questions, show)

        if arguments.together:
            rig = resolve(canonical(parse_hardware(hardware)))
            return advise_together(arguments.repo, rig, constraints, advised)
        return [advised(repo, constraints) for repo in arguments.repo]


def _print_together(arguments: argparse.Namespace, advices: list[Advice]) -> int:
    """Print the first config of each advice, as one file, or as text with which of them fit side by side."""
    from service.engine.commands.forms import PORT
    from service.engine.commands.shell import fold
    from service.wire.advice.files import advised_file, named_configs, together
    from service.wire.plain_text import wrapped

    for advice in advices:
        if not advice.configs:
            print(f"advisor: {advice.repo}: {advice.headline}", file=sys.stderr)
    if not all(advice.configs for advice in advices):
        return FAILURE
    if arguments.file_format:
        print(advised_file(arguments.file_format, advices), end="")
        return 0
    configs, found = named_configs(advices), together(advices)
    if arguments.json:
        print_json({"configs": configs, "together": found.together, "text": found.text})
    else:
        for n, (name, advice) in enumerate(zip(configs, advices, strict=True)):
            server = advice.configs[0].commands.server + (f" --port {PORT + n}" if n else "")
            print(*wrapped(f"{name}: {advice.headline}"), "", fold(server), "", sep="\n")
        print(*wrapped(f"{found.text} --as llama-swap prints one file for all."), sep="\n")
    return 0


def _goal(arguments: argparse.Namespace) -> GoalRequest:
    names = ("prompt", "output", "depth", "context", "parallel", "min_tg", "min_pp")
    numbers = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    return converted({"preset": arguments.goal, **numbers}, GoalRequest, "goal")


def _engines(names: list[str] | None, build: str | None) -> list[dict[str, str | None]] | None:
    if build and len(names or ()) != 1:
        raise InvalidInput("a build belongs to one engine: name it with --engine", field="--build")
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
        "images": arguments.images or None,
        "current_command": arguments.command and text_argument(arguments.command, "command"),
    }
    return converted(
        msgspec.to_builtins({k: v for k, v in stated.items() if v is not None}), Constraints, "constraints"
    )


_BOLD, _YELLOW, _RED, _CYAN, _END = "\033[1m", "\033[33m", "\033[31m", "\033[36m", "\033[0m"
_STYLES = (
    (re.compile(r"(?:#1 |[1-9]\. |Why this one:)"), _BOLD),
    (re.compile(r"(?:! |warning:|assumed:|and \d+ more assum)"), _YELLOW),
    (re.compile(r"(?:error:|refused)"), _RED),
    (re.compile(r"(?:git clone|cmake|hf download|llama-|brew|conda|winget|CUDA_|HIP_|numactl|  -)"), _CYAN),
)


def allows_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether to print colours: on a terminal that supports them, unless NO_COLOR is set."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def print_text(text: str) -> None:
    """Print an answer, coloured if allowed; colours change no characters."""
    print(coloured(text) if allows_colour(sys.stdout, os.environ) else text, end="")


def coloured(text: str) -> str:
    """Return an answer with its sentence and headings bold, commands cyan, warnings yellow and errors red."""
    lines, in_sentence = [], True
    for number, line in enumerate(text.split("\n")):
        in_sentence = in_sentence and (number == 0 or line.startswith("  "))
        style = _BOLD if in_sentence and line else next((s for shape, s in _STYLES if shape.match(line)), "")
        lines.append(f"{style}{line}{_END}" if style else line)
    return "\n".join(lines)
