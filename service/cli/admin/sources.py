"""`advisor admin sources`: results of other services, imported."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from service.cli.inputs import load_settings
from service.cli.output import print_json

if TYPE_CHECKING:
    from service.flows.results.imports import Imported
    from service.store.results.sources import Source

_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    what = parser.add_mutually_exclusive_group()
    help_text = "take over the newest dump of this service (https://HOST), or of a folder with its dumps.json"
    what.add_argument("--import", dest="address", metavar="FROM", help=help_text)
    what.add_argument("--forget", action="store_true", help="remove all results of the service whose --key it is")
    parser.add_argument("--key", metavar="KEY", help="the key that signs its dumps, as its operator gave it to you")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0."""
    from service.engine.errors import InvalidInput
    from service.flows import accounts
    from service.flows.context import Database
    from service.flows.results import imports
    from service.store.results import sources

    if (arguments.address or arguments.forget) and not arguments.key:
        raise InvalidInput("--key is needed: GET /v1/dumps of the service shows it; ask its operator", field="--key")
    with accounts.database(load_settings()) as engine:
        context = Database(engine)
        if arguments.address:
            _print_imported(imports.import_results(context, arguments.address, arguments.key), as_json=arguments.json)
        elif arguments.forget:
            removed = imports.forget(context, arguments.key)
            print_json({"removed": removed}) if arguments.json else print(f"{removed:,} results removed")
        else:
            _print_sources(sources.every(engine), as_json=arguments.json)
    return 0


def _print_imported(found: Imported, *, as_json: bool) -> None:
    if as_json:
        print_json(found._asdict())
        return
    print(f"{found.added:,} results added, {found.removed:,} removed, {found.known:,} known before")
    for name, reason in found.refused[:_SHOWN]:
        print(f"refused {name}: {reason}")
    if len(found.refused) > _SHOWN:
        print(f"and {len(found.refused) - _SHOWN:,} more refused")


def _print_sources(found: Sequence[Source], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for one in found:
        print(f"{one.address}  key {one.key}  dump of {one.made_at:%Y-%m-%d %H:%M} UTC")
    if not found:
        print("nothing was imported; other services can import yours: GET /v1/dumps shows your key")
