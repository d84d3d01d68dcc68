"""`advisor admin seed`: published results, added or removed."""

from __future__ import annotations

import argparse

from service.cli.inputs import load_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("--remove", metavar="ID", help="take one off for good: its id here, or in published.jsonl")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0."""
    from service.flows import accounts
    from service.flows.context import utc_now
    from service.flows.results import seed

    with accounts.database(load_settings()) as engine:
        if arguments.remove:
            print(f"{seed.remove_published(engine, arguments.remove)} is removed for good")
        else:
            print(f"{seed.import_published(engine, utc_now())} published results added")
    return 0
