"""`advisor admin requeue`: failed advice and runs tried again, once what made them fail is fixed."""

from __future__ import annotations

import argparse
from datetime import timedelta

from service.cli.inputs import load_settings
from service.cli.output import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("ids", nargs="*", metavar="ID", default=[], help="of an advice or a run that failed")
    which.add_argument("--failed", type=float, metavar="HOURS", help="all that failed in the last hours")
    parser.add_argument("--dry-run", action="store_true", help="show what it would be")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0."""
    from service.flows.accounts import database
    from service.flows.context import Database, utc_now
    from service.flows.operations.requeue import requeue

    since = None if arguments.failed is None else utc_now() - timedelta(hours=arguments.failed)
    with database(load_settings()) as engine:
        done = requeue(Database(engine), arguments.ids, since, dry_run=arguments.dry_run)
    if arguments.json:
        print_json(done)
        return 0
    word = "would be queued" if arguments.dry_run else "queued"
    for one in done.advice:
        print(f"advice {one} {word}")
    for one in done.runs:
        print(f"run {one} {word}")
    print(f"{len(done.advice)} advice and {len(done.runs)} runs {word}")
    return 0
