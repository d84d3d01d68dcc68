"""`advisor admin`: what an operator does, on the machine that has the service's database. One module a verb."""

from __future__ import annotations

import argparse

from service.cli.lazy import LazyParser

# The module `service.cli.admin.<verb>` has `add_arguments(parser)` and `run(arguments) -> int`.
VERBS = {
    "backup": "all of the database in one file, while the service runs",
    "moderate": "hide and show results, ban and vouch for accounts, revoke hosts, read reports and acts",
    "dump": "all results in files, as they are made each night; or in a Parquet file",
    "migrate": "the database brought to this version's tables; the old version may run meanwhile",
    "hosts": "all hosts: whose, what they have, when last seen",
    "jobs": "what runs on a schedule: when each last succeeded, when it is due; or one made due now",
    "purge": "what is older than the settings allow, removed; the service does it each night",
    "requeue": "failed advice and runs tried again, once the cause is fixed",
    "restore": "the database as a backup has it; stop the service first",
    "sources": "results of other services: what was imported, newly imported, or removed again",
    "seed": "published results that the package has, added; or one removed, as its author asks",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=LazyParser)
    for name, text in VERBS.items():
        verb = verbs.add_parser(name, help=text, description=text.capitalize() + ".")
        verb.module, verb.runs_as = f"service.cli.admin.{name}", "admin"


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    code: int = arguments.admin(arguments)
    return code
