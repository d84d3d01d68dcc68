"""Options for the format of output, the exit codes, and questions at the terminal."""

from __future__ import annotations

import argparse
import sys

USAGE_ERROR, FAILURE = 2, 1
MORE = "--detail full"  # how everything is asked for


def form_arguments(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Add --json, --markdown and --detail. Return the group of the first two, which exclude each other."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the API's JSON")
    form.add_argument("--markdown", action="store_true", help="print Markdown, for a chat message")
    parser.add_argument(
        "--detail", choices=("short", "full"), default="short", help="how much to print (default: short)"
    )
    return form


def print_json(value: object) -> None:
    import msgspec  # imported here: it takes longer than everything `advisor --version` does

    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def confirmed(question: str) -> bool:
    """Return whether the user at the terminal agrees; without a terminal, False."""
    if not sys.stdin.isatty():
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
