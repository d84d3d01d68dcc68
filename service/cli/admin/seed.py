"""`advisor admin seed`: published results, added or removed."""

from __future__ import annotations

import argparse

from service.cli.inputs import load_settings
from service.cli.output import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("--remove", metavar="ID", help="take one off for good: its id here, or in published.jsonl")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0."""
    from service.flows import accounts
    from service.flows.context import utc_now
    from service.flows.results import seed

    with accounts.database(load_settings()) as engine:
        removed = seed.remove_published(engine, arguments.remove) if arguments.remove else None
        n_added = 0 if removed else seed.import_published(engine, utc_now())
    if arguments.json:
        print_json({"removed": removed, "n_added": n_added})
    else:
        print(f"{removed} is removed for good" if removed else f"{n_added} published results added")
    return 0
