"""`advisor advise`: ranked configs for a repo and hardware."""

from __future__ import annotations

import argparse
import gc
from typing import get_args

import msgspec

from service.cli.inputs import add_no_cache, converted, machine, reading_settings, text_argument
from service.cli.output import FAILURE, form_arguments, print_json
from service.engine.errors import InvalidInput
from service.engine.goal import Constraints, GoalRequest, Preset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
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
    limits.add_argument(
        "--engine", action="append", choices=("ik_llama.cpp", "llama.cpp"), help="only this one; may be repeated"
    )
    limits.add_argument("--build", metavar="BUILD", help="of the one --engine: 2025-05-11, b3700 or 8337e4cd3")
    limits.add_argument("--variant", action="append", help="only this one; may be repeated")
    limits.add_argument("--kv-type", action="append", help="cache types allowed, such as f16 or q8_0; may be repeated")
    limits.add_argument("--min-bpw", type=float, metavar="BITS", help="bits per weight of a variant, at least")
    limits.add_argument("--max-bpw", type=float, metavar="BITS", help="bits per weight of a variant, at most")
    limits.add_argument("--reserve-mib", type=int, metavar="MIB", help="kept free on every GPU (default: 512)")
    limits.add_argument("--max-ram-gib", type=float, metavar="GIB", help="of RAM to use, at most")
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
    add_no_cache(parser)
    form_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0: there is a config; 1: none fits."""
    gc.disable()  # one question a process: collecting cycles would cost a third of the time
    from service.flows.direct import advise_directly
    from service.wire.text import render_markdown, render_text

    advice = advise_directly(
        reading_settings(arguments),
        arguments.repo,
        machine(arguments),
        _goal(arguments),
        _constraints(arguments),
        arguments.revision,
        arguments.what_if or (),
    )
    if arguments.json:
        print_json(advice)
    else:
        render = render_markdown if arguments.markdown else render_text
        print(render(advice, arguments.detail), end="")
    return 0 if advice.configs else FAILURE


def _goal(arguments: argparse.Namespace) -> GoalRequest:
    names = ("prompt", "output", "depth", "context", "parallel", "min_tg", "min_pp")
    numbers = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    return converted({"preset": arguments.goal, **numbers}, GoalRequest, "goal")


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
        "current_command": text_argument(arguments.command, "command") if arguments.command else None,
    }
    return converted(
        msgspec.to_builtins({k: v for k, v in stated.items() if v is not None}), Constraints, "constraints"
    )
