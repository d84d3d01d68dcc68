"""`advisor admin restore`: the database as a backup has it."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from service.cli.inputs import load_settings
from service.cli.output import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("file", type=Path, metavar="FILE", help="what `advisor admin backup` wrote")
    parser.add_argument(
        "--before", type=Path, metavar="FILE",
        help="where to keep what is there now (default: next to FILE, with the time)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0. Raises StateInUse while `advisor serve` runs on this folder."""
    from service.serve import sole_user
    from service.store.operations.backups import keep_what_is_there, restore

    settings = load_settings()
    now = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    before = arguments.before or arguments.file.with_name(f"{arguments.file.name}.before-{now}")
    with nullcontext() if settings.redis_url else sole_user(settings.state_dir):
        was_there = keep_what_is_there(settings.database, before)
        restore(settings.database, arguments.file)
    if arguments.json:
        print_json({"restored": str(arguments.file), "before": str(before) if was_there else None})
        return 0
    print(f"restored; what was there before is in {before}" if was_there else "restored; there was no database before")
    return 0
