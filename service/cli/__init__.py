"""The `advisor` command, one module a verb. A verb's module is imported only when it is used."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NamedTuple

from service import __version__
from service.cli.lazy import LazyParser
from service.cli.output import FAILURE, USAGE_ERROR
from service.engine.errors import AdvisorError, InvalidInput


class Command(NamedTuple):
    """A verb, what `--help` says of it, and the extra of the package that it needs ("": the base is enough).

    The module `service.cli.<verb>` has `add_arguments(parser)` and `run(arguments) -> int`, and imports nothing of
    an extra at its top.
    """

    verb: str
    help: str
    extra: str = ""


COMMANDS = (
    Command("advise", "ranked configs for a repo (or local GGUF) and hardware"),
    Command("inspect", "the variants of a repo and what their headers say"),
    Command("check", "a command you use: memory, speed, and what is wrong with it"),
    Command("validate", "configs of an advice measured, on other machines or on this one"),
    Command("submit", "a benchmark that you ran, sent to a service's database after you have seen it"),
    Command("up", "a model fetched, started and watched, and compared with what was predicted", extra="agent"),
    Command("watch", "a running llama-server, compared with what was predicted for its command"),
    Command("hardware", "this machine's hardware, as the other commands take it"),
    Command("mcp", "the same for agents: tools of the Model Context Protocol on standard input and output"),
    Command("token", "who may send results, ask for validations, add hosts; on the service's own machine", "server"),
    Command("bots", "Discord and Slack: register commands, print the app's manifest", "server"),
    Command("calibrate", "the speed model fitted again to the results of this service; on its own machine", "server"),
    Command("admin", "backup, restore, moderate; on the service's own machine", "server"),
    Command("doctor", "what is wrong with this installation, and how to fix it", "server"),
    Command("serve", "API, workers and an embedded Valkey in one command", "server"),
    Command("completion", "completion of commands and options, for bash, zsh, fish and PowerShell"),
    Command("host", "this machine as one that measures: enrol, run, status, pause, resume, leave", extra="agent"),
)
_OWN_EXTRA = {
    "psycopg": "postgres",
    "pyarrow": "parquet",
    "psutil": "agent",
    "pynvml": "agent",
    "cpuinfo": "agent",
    "nacl": "agent",
}  # modules of an extra that no verb needs by itself


_UNIX = ("fcntl", "grp", "pwd", "resource", "termios")  # modules of Python that Windows does not have


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
    except OSError as error:  # a disk that is full, a folder that another user owns
        what = f"{error.filename}: " if error.filename else ""
        print(f"advisor: {what}{error.strerror or error}", file=sys.stderr)
        return FAILURE


def command_line() -> argparse.ArgumentParser:
    """Return what reads the words of the command line, with every command."""
    parser = argparse.ArgumentParser(
        prog="advisor", description="Where to put a GGUF model on your hardware: ranked, explained, ready to paste."
    )
    parser.add_argument("--version", action="version", version=f"advisor {__version__}")
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=LazyParser)
    for command in COMMANDS:
        verb = verbs.add_parser(command.verb, help=command.help)
        verb.module = f"service.cli.{command.verb}"
        verb.set_defaults(verb=command)
    return parser


def _what_to_install(error: ModuleNotFoundError, command: Command) -> str:
    """Return which extra has the module that is missing. Raises the error again where none has."""
    module = (error.name or "").partition(".")[0]
    if module in _UNIX:
        return f"`advisor {command.verb}` needs {module}, which this system lacks: on Windows, run it in WSL"
    extra = _OWN_EXTRA.get(module, command.extra)
    if module in ("service", "workers"):
        raise error
    if not extra:
        return f"`advisor {command.verb}` needs {module}, which is not installed: in a checkout, pip install ."
    return f"`advisor {command.verb}` needs {module}, which is not installed: in a checkout, pip install '.[{extra}]'"


def _complain(error: AdvisorError) -> None:
    from service.cli.inputs import OPTIONS

    name = (error.field or "").removeprefix("constraints.")
    where = f"--{OPTIONS[name].replace('_', '-')}: " if name in OPTIONS else f"{error.field}: " if error.field else ""
    print(f"advisor: {where}{error.detail}", file=sys.stderr)
    if any(choice not in error.detail for choice in error.choices):
        print(f"  did you mean: {', '.join(error.choices[:8])}", file=sys.stderr)
