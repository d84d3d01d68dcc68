"""`advisor admin dump`: all results in files."""

from __future__ import annotations

import argparse
from pathlib import Path

from service.cli.inputs import load_settings
from service.cli.output import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "--parquet", type=Path, metavar="FILE", help="a Parquet file instead; needs offload-advisor[parquet]"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0."""
    from msgspec.structs import asdict

    from service.flows import accounts
    from service.flows.context import utc_now
    from service.flows.results import dumps

    settings = load_settings()
    with accounts.database(settings) as engine:
        if arguments.parquet:
            n_rows = dumps.write_parquet(engine, arguments.parquet)
            if arguments.json:
                print_json({"file": str(arguments.parquet), "n_rows": n_rows})
            else:
                print(f"{arguments.parquet}: {n_rows:,} measured rows")
            return 0
        folder = dumps.folder_of(settings)
        made = dumps.write_dumps(engine, folder, utc_now()).dumps[:2]
    if arguments.json:
        print_json([{**asdict(one), "folder": str(folder)} for one in made])
        return 0
    for one in made:
        print(f"{folder / one.name}: {one.n_results:,} results, {one.n_bytes:,} bytes")
    return 0
