"""The `advisor` command, one module a verb. What a verb needs is imported when it runs: `--help` stays instant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from service import __version__
from service.cli.inputs import OPTIONS
from service.cli.output import FAILURE, USAGE_ERROR
from service.engine.errors import AdvisorError, InvalidInput


class Command(NamedTuple):
    """A verb, what `--help` says of it, and the extra of the package that it needs (None: the base is enough).

    The module `service.cli.<verb>` has `add_arguments(parser)` and `run(arguments) -> int`, and imports nothing of
    an extra at its top.
    """

    verb: str
    help: str
    extra: str | None = "server"


COMMANDS = (
    Command("advise", "ranked configs for a repo (or local GGUF) and hardware"),
    Command("inspect", "the variants of a repo and what their headers say"),
    Command("check", "a command you use: memory, speed, and what is wrong with it"),
    Command("validate", "configs of an advice measured, on other machines or on this one", extra="agent"),
    Command("submit", "a benchmark that you ran, sent to a service's database after you have seen it"),
    Command("hardware", "this machine's hardware, as the other commands take it", extra=None),
    Command("token", "who may send results, ask for validations, add hosts; on the service's own machine"),
    Command("bots", "Discord and Slack: register commands, print the app's manifest"),
    Command("calibrate", "the speed model fitted anew to the results of this service; on its own machine"),
    Command("admin", "backup, restore, moderate; on the service's own machine"),
    Command("doctor", "what is wrong with this installation, and what mends it"),
    Command("serve", "API, workers and an embedded Valkey in one command"),
    Command("host", "this machine as one that measures: enrol, run, status, pause, resume, leave", extra="agent"),
)
_OWN_EXTRA = {
    "psycopg": "postgres",
    "pyarrow": "parquet",
    "psutil": "agent",
    "pynvml": "agent",
    "cpuinfo": "agent",
}  # modules of an extra that no verb needs by itself


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 it cannot be done, 2 the input is wrong."""
    arguments = command_line().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        return code
    except AdvisorError as error:
        _complain(error)
        return USAGE_ERROR if isinstance(error, InvalidInput) else FAILURE
    except ModuleNotFoundError as error:
        print(f"advisor: {_what_to_install(error, arguments.verb)}", file=sys.stderr)
        return FAILURE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return FAILURE


def command_line() -> argparse.ArgumentParser:
    """Return what reads the words of the command line, with every command."""
    parser = argparse.ArgumentParser(
        prog="advisor", description="Where to put a GGUF model on your hardware: ranked, explained, ready to paste."
    )
    parser.add_argument("--version", action="version", version=f"advisor {__version__}")
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        verb = verbs.add_parser(command.verb, help=command.help)
        module = import_module(f"service.cli.{command.verb}")
        module.add_arguments(verb)
        verb.set_defaults(run=module.run, verb=command)
    return parser


def _what_to_install(error: ModuleNotFoundError, command: Command) -> str:
    """Return which extra has the module that is missing. Raises the error again where none has."""
    module = (error.name or "").partition(".")[0]
    extra = _OWN_EXTRA.get(module, command.extra)
    if extra is None or module in ("service", "workers"):
        raise error
    return f"`advisor {command.verb}` needs {module}, which is not installed: in a checkout, pip install '.[{extra}]'"


def _complain(error: AdvisorError) -> None:
    name = (error.field or "").removeprefix("constraints.")
    where = f"--{OPTIONS[name].replace('_', '-')}: " if name in OPTIONS else f"{error.field}: " if error.field else ""
    print(f"advisor: {where}{error.detail}", file=sys.stderr)
    if any(choice not in error.detail for choice in error.choices):
        print(f"  did you mean: {', '.join(error.choices[:8])}", file=sys.stderr)
