"""The forms an answer is printed in, and the exit codes."""

from __future__ import annotations

import argparse

import msgspec

USAGE_ERROR, FAILURE = 2, 1


def form_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --json, --markdown and --detail."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the API's JSON")
    form.add_argument("--markdown", action="store_true", help="for a chat message")
    parser.add_argument("--detail", choices=("short", "full"), default="short", help="how much text (default: short)")


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
