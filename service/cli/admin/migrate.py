"""`advisor admin migrate`: the database brought to this version's tables, before the new version is started."""

from __future__ import annotations

import argparse

from service.cli.inputs import load_settings
from service.cli.output import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes: the settings name the database."""
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0."""
    from service.store.engines import make_engine
    from service.store.migrations import is_newer, migrate
    from service.store.operations import health

    engine = make_engine(load_settings().database)
    try:
        before = health.revision(engine)
        migrate(engine)
        after = health.revision(engine)
    finally:
        engine.dispose()
    if arguments.json:
        print_json({"tables": after, "before": before, "newer": is_newer(after)})
        return 0
    was = f", were {before or 'none'}" if after != before else ", newer than this version's" if is_newer(after) else ""
    print(f"tables of {after}{was}")
    return 0
