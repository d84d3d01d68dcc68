"""`advisor admin backup`: all of the database in one file."""

from __future__ import annotations

import argparse
from pathlib import Path

from service.cli.inputs import load_settings
from service.cli.output import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a new file")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0."""
    from service.store.operations.backups import back_up

    n_bytes = back_up(load_settings().database, arguments.file)
    if arguments.json:
        print_json({"file": str(arguments.file), "n_bytes": n_bytes})
    else:
        print(f"{arguments.file}: {n_bytes:,} bytes")
    return 0
