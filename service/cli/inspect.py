"""`advisor inspect`: prints a repo's variants, the contents of their headers, and the cost of reading them."""

from __future__ import annotations

import argparse

from service.cli.inputs import add_no_cache, reading_settings
from service.cli.output import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repo", metavar="REPO", help="OWNER/NAME, OWNER/NAME:VARIANT, a URL, or a path to GGUF files")
    parser.add_argument("--revision", help="branch, tag or commit (default: main)")
    add_no_cache(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    from service.flows.advice.repo_view import inspect_directly
    from service.wire.advice.repo_text import render_repo

    inspection = inspect_directly(reading_settings(arguments), arguments.repo, arguments.revision)
    if arguments.json:
        print_json(inspection)
    else:
        print(render_repo(inspection), end="")
    return 0
