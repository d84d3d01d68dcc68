"""`advisor calibrate`: refits the speed model to this service's results, on its own machine."""

from __future__ import annotations

import argparse
from contextlib import closing

from service.cli.inputs import load_settings
from service.cli.output import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry", action="store_true", help="print the errors before and after, and save nothing")
    parser.add_argument("--json", action="store_true", help="the version, the counts and the errors as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0, or 1 if there are too few results or the fit would be worse."""
    from service.flows.context import DatabaseAndHub
    from service.flows.hub import make_hub
    from service.flows.results.calibration import calibrate
    from service.store.migrations import migrated

    settings = load_settings()
    with migrated(settings.database) as engine, closing(make_hub(settings)) as hub:
        found = calibrate(DatabaseAndHub(engine, hub), keep=not arguments.dry)
    errors = found.errors
    if arguments.json:
        fitted = {"version": found.calibration.version, "results": found.n_results, "kept": not arguments.dry}
        print_json({**fitted, "errors": errors})
        return 0
    print(f"{found.calibration.version}: {found.n_results} results fitted, {errors.kept_out} kept out of the fit")
    print(f"median error on those: tokens {errors.tg_before:.1%} before, {errors.tg_after:.1%} after")
    print(f"                      prompts {errors.pp_before:.1%} before, {errors.pp_after:.1%} after")
    print("nothing was kept" if arguments.dry else "in force; a running service uses it within half a minute")
    return 0
