"""`advisor doctor`: finds what is wrong with this installation, and how to fix it."""

from __future__ import annotations

import argparse
import logging
from itertools import chain

from service.cli.inputs import load_settings
from service.cli.output import FAILURE, print_json

_MARKS = {"good": "ok  ", "warning": "warn", "bad": "BAD "}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="a list of part, state, text and fix")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0, or 1 where a part is bad."""
    from service.bots.doctor import diagnose_bots
    from service.flows.context import utc_now
    from service.flows.operations.doctor import diagnose

    found, settings, before = [], load_settings(), logging.root.manager.disable
    logging.disable(before if arguments.json else logging.WARNING)  # the report tells the same in words
    try:
        for one in chain(diagnose(settings, utc_now()), diagnose_bots(settings)):
            found.append(one)
            if not arguments.json:
                print(f"{_MARKS[one.state]}  {one.part:<12}  {one.text}", flush=True)
                if one.fix:
                    print(f"{'':<20}-> {one.fix}", flush=True)
    finally:
        logging.disable(before)
    if arguments.json:
        print_json(found)
    return FAILURE if any(one.state == "bad" for one in found) else 0
