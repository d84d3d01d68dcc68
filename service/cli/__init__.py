"""The `advisor` command, with one module per verb, imported only when it is used."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from service import __version__
from service.cli.lazy import LazyParser, Parser, add_verb
from service.cli.output import FAILURE, USAGE_ERROR
from service.engine.errors import AdvisorError, InvalidInput


class Command(NamedTuple):
    """A verb, its help text, and the package extra that it needs ("": none).

    The module `service.cli.<verb>` has `add_arguments(parser)` and `run(arguments) -> int`, and imports nothing from
    an extra at its top.
    """

    verb: str
    help: str
    extra: str = ""


COMMANDS = (
    Command("advise", "rank configs for a repo (or local GGUF files) on your hardware"),
    Command("inspect", "list the variants of a repo and what their headers say"),
    Command("check", "check a command you use: its memory, its speed, and what is wrong with it"),
    Command("validate", "measure advised configs, on other machines or on this one"),
    Command("submit", "send a benchmark you ran to a service, after showing you how it was read"),
    Command("up", "fetch a model, start it, and compare what it does with what was predicted", extra="agent"),
    Command("watch", "compare a running llama-server with what was predicted for its command"),
    Command("hardware", "show this machine's hardware in the form that the other commands take"),
    Command("mcp", "serve agents: a Model Context Protocol server on standard input and output"),
    Command(
        "token", "manage tokens for submitting, validating and adding hosts (on the service's own machine)", "server"
    ),
    Command("bots", "set up Discord and Slack: register commands, print the app's manifest", "server"),
    Command("calibrate", "fit the speed model to the results of this service (on its own machine)", "server"),
    Command("admin", "back up, restore and moderate (on the service's own machine)", "server"),
    Command("doctor", "find what is wrong with this installation, and how to fix it", "server"),
    Command("serve", "run the API, its workers and an embedded Valkey", "server"),
    Command("completion", "print completions for bash, zsh, fish or PowerShell"),
    Command("host", "let this machine measure: enrol, run, status, pause, resume, approve, leave", extra="agent"),
)
# Modules of extras that no verb needs as a whole.
_OWN_EXTRA = {"psycopg": "postgres", "pyarrow": "parquet"}
_OWN_EXTRA |= dict.fromkeys(("psutil", "pynvml", "cpuinfo", "nacl"), "agent")


_REPO_OPTION = re.compile(r"(?:-hfr?|--hf-repo)(?:[= ](\S+))?")
_UNIX = ("fcntl", "grp", "pwd", "resource", "termios")  # modules that Python lacks on Windows


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 success, 1 failure, 2 invalid input, 130 interrupted."""
    try:
        words = _with_plain_repo(sys.argv[1:] if argv is None else argv)
        return _run(command_line().parse_args(words))  # which imports the verb's module
    except KeyboardInterrupt:
        return 130


def _with_plain_repo(words: Sequence[str]) -> list[str]:
    """Return the words with a repo as these commands take it where it is written as for llama.cpp: `-hf OWNER/NAME`."""
    if not words or words[0] not in ("advise", "inspect"):
        return list(words)
    found = [(word, _REPO_OPTION.fullmatch(word)) for word in words]
    return [m[1] if m else word for word, m in found if not m or m[1]]


def _run(arguments: argparse.Namespace) -> int:
    logging.getLogger("advisor").addHandler(logging.NullHandler())  # events are for services, which log them
    try:
        code: int = arguments.run(arguments)
        return code
    except AdvisorError as error:
        _complain(error)
        return USAGE_ERROR if isinstance(error, InvalidInput) else FAILURE
    except ModuleNotFoundError as error:
        print(f"advisor: {_what_to_install(error, arguments.verb)}", file=sys.stderr)
        return FAILURE
    except BrokenPipeError:
        sys.stderr.close()
        return FAILURE
    except OSError as error:  # such as a full disk, or another user's folder
        what = f"{error.filename}: " if error.filename else ""
        print(f"advisor: {what}{error.strerror or error}", file=sys.stderr)
        return FAILURE


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line, with every command."""
    parser = Parser(
        prog="advisor", description="Where to put a GGUF model on your hardware: ranked, explained, ready to paste."
    )
    parser.add_argument("--version", action="version", version=f"advisor {__version__}")
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=LazyParser)
    for command in COMMANDS:
        verb = verbs.add_parser(command.verb, help=command.help)
        verb.add = partial(add_verb, command.verb)
        verb.set_defaults(verb=command)
    return parser


def _what_to_install(error: ModuleNotFoundError, command: Command) -> str:
    """Return which extra has the missing module. Raises the error again if none has."""
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
    from service.cli.inputs import OPTIONS, option

    group, _, name = (error.field or "").partition("[")[0].rpartition(".")
    where = error.field or ""
    if group in ("constraints", "goal") or (not group and name in OPTIONS):
        where = option(name)
    begins = tuple(f"{error.field}{after}" for after in (" is ", " has ", ": "))
    says_where = not where or error.detail.startswith(begins)
    print(f"advisor: {error.detail if says_where else f'{where}: {error.detail}'}", file=sys.stderr)
    if any(choice not in error.detail for choice in error.choices):
        print(f"  did you mean: {', '.join(error.choices[:8])}", file=sys.stderr)
