"""`advisor doctor`: what is wrong with this installation, and what mends it."""

from __future__ import annotations

import argparse
import logging

from service.cli.inputs import load_settings
from service.cli.output import FAILURE, print_json

_MARKS = {"good": "ok  ", "warning": "warn", "bad": "BAD "}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("--json", action="store_true", help="a list of part, state, text and mend")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0, or 1 where a part is bad."""
    from service.flows.context import utc_now
    from service.flows.doctor import diagnose

    logging.disable(logging.NOTSET if arguments.json else logging.WARNING)
    found = []
    for one in diagnose(load_settings(), utc_now()):
        found.append(one)
        if not arguments.json:
            print(f"{_MARKS[one.state]}  {one.part:<12}  {one.text}", flush=True)
            if one.mend:
                print(f"{'':<20}-> {one.mend}", flush=True)
    if arguments.json:
        print_json(found)
    return FAILURE if any(one.state == "bad" for one in found) else 0
