"""`advisor admin hosts`: every host, for the operator."""

from __future__ import annotations

import argparse

from service.cli.inputs import load_settings
from service.cli.output import print_json

_COLUMNS = "{:<22}  {:<24}  {:<20}  {:<8}  {:<8}  {:<16}  {:>5}  {}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0."""
    from service.flows.accounts import database
    from service.flows.context import Database
    from service.flows.measuring.hosts import all_hosts

    with database(load_settings()) as engine:
        found = all_hosts(Database(engine))
    if arguments.json:
        print_json(found)
        return 0
    print(_COLUMNS.format("ID", "HOST", "OWNER", "STATE", "SEEN BY", "LAST SEEN", "RUNS", "GPUS"))
    for one in found:
        seen = (one.seen_at or "never")[:16].replace("T", " ")
        print(_COLUMNS.format(
            one.id, one.pseudonym, one.owner[:20], one.state, one.visibility, seen, one.runs, one.gpus
        ))  # fmt: skip
    return 0
