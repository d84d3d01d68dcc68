"""Hold a running service to its OpenAPI document: `python -m bench.contract [--examples 12] [--seed 1]`.

Schemathesis with every check it has sends each operation good and bad requests, also in the order of their links.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import schemathesis.cli

from bench.contract.hooks import install
from bench.contract.world import World, world
from bench.stamp import stamp
from tests.end_to_end.stack import REPO

# What no schema says of their requests: texts and rows are understood, cursors are read, subjects looked up.
BEYOND_SHAPES = [
    *("request_advice", "check_command", "parse_hardware", "preview_submission", "submit_result", "correct_result"),
    *("send_probe", "note_progress", "report_run", "read_leaderboard", "list_results", "moderate", "enrol_host"),
    *("request_validation", "hosts_of_advice", "inspect_repo", "read_advice_file"),
]


def known(found: World) -> dict[str, list[str]]:
    """Return values of path and header parameters that name what is there, by parameter."""
    advice, results = [found.advice() for _ in range(5)], [found.result() for _ in range(3)]
    validations = [found.validation(advice[0]["id"])]
    owner, name = REPO.split("/")
    return {
        "path.advice_id": [one["id"] for one in advice],
        "path.validation_id": [one["id"] for one in validations],
        "path.result_id": [one["id"] for one in results],
        "path.run_id": [found.run()["run"]],
        "path.owner": [owner],
        "path.name": [name],
        "path.host_id": [found.agent.host],
        "header.X-Advice-Key": [one["delete_key"] for one in advice],
        "header.X-Edit-Key": [one["edit_key"] for one in results],
    }


def configuration(values: dict[str, Any]) -> str:
    """Return schemathesis.toml with those values in most of the requests."""
    names = {parameter: parameter.replace(".", "_") for parameter in values}
    lines = ["max-stream-events = 1", "request-timeout = 40", "cache.enabled = false"]
    lines += ["[parameters]"] + [
        f'"{parameter}" = {{ dictionary = "{name}", probability = 0.7 }}' for parameter, name in names.items()
    ]
    for parameter, several in values.items():
        lines += [f"[dictionaries.{names[parameter]}]", f"values = {json.dumps(several)}"]
    accepted = ["2xx", "3xx", "401", "403", "404", "409", "422", "429"]
    lines += ["[[operations]]", f"include-operation-id = {json.dumps(BEYOND_SHAPES)}"]
    lines += [f"checks.positive_data_acceptance.expected-statuses = {json.dumps(accepted)}"]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=12, help="of each operation, in each phase")
    parser.add_argument("--seed", type=int, default=1)
    arguments, more = parser.parse_known_args()
    print(stamp())
    print(f"{arguments.examples} examples of each operation and phase, seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder, world(Path(folder)) as found:
        install(found, arguments.seed)
        path = Path(folder, "schemathesis.toml")
        path.write_text(configuration(known(found)))
        words = ["--config-file", str(path), "run", f"{found.url}/openapi.json", "--checks", "all", "--no-color",
                 "--max-examples", str(arguments.examples), "--seed", str(arguments.seed),
                 "--generation-database", "none", *more]  # fmt: skip
        code = schemathesis.cli.schemathesis.main(words, standalone_mode=False)
    return int(code or 0)


if __name__ == "__main__":
    sys.exit(main())
