"""`advisor admin purge`: what is older than the settings allow, removed now; the service does it each night."""

from __future__ import annotations

import argparse

from service.cli.inputs import load_settings
from service.cli.output import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("--dry-run", action="store_true", help="count it and leave it")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0."""
    from service.flows.accounts import database
    from service.flows.context import Database
    from service.flows.operations.retention import purge

    settings = load_settings()
    with database(settings) as engine:
        purged = purge(Database(engine), settings, dry_run=arguments.dry_run)
    if arguments.json:
        print_json(purged)
        return 0
    word = "would be removed" if arguments.dry_run else "removed"
    for one in purged:
        print(f"{one.kind:<10} older than {one.days:>4} days: {one.rows:>8,} {word}")
    return 0
