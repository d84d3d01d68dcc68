"""`advisor admin`: what an operator does, on the machine that has the service's database. One module a verb."""

from __future__ import annotations

import argparse
from importlib import import_module

# The module `service.cli.admin.<verb>` has `add_arguments(parser)` and `run(arguments) -> int`.
VERBS = {
    "backup": "all of the database in one file, while the service runs",
    "moderate": "hide and show results, ban and vouch for accounts, revoke hosts, read reports and acts",
    "dump": "all results in files, as they are made each night; or in a Parquet file",
    "migrate": "the database brought to this version's tables; the old version may run meanwhile",
    "hosts": "all hosts: whose, what they have, when last seen",
    "purge": "what is older than the settings allow, removed; the service does it each night",
    "requeue": "failed advice and runs tried again, once the cause is mended",
    "restore": "the database as a backup has it; stop the service first",
    "seed": "published results that the package has, added; or one removed, as its author asks",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, text in VERBS.items():
        verb = verbs.add_parser(name, help=text, description=text.capitalize() + ".")
        module = import_module(f"service.cli.admin.{name}")
        module.add_arguments(verb)
        verb.set_defaults(admin=module.run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    code: int = arguments.admin(arguments)
    return code
