"""`advisor admin jobs`: what runs on a schedule, as the database has it."""

from __future__ import annotations

import argparse
from datetime import datetime

from service.cli.inputs import load_settings
from service.cli.output import print_json

_COLUMNS = "{:<10}  {:<17}  {:<17}  {:<17}  {}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="make this one due now; a running service does it")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0. Raises InvalidInput for a job that is not scheduled."""
    from service.engine.errors import InvalidInput
    from service.flows.accounts import database
    from service.flows.context import utc_now
    from service.flows.operations.schedule import schedule
    from service.store.operations import jobs

    settings = load_settings()
    scheduled = {job.name: job for job in schedule(settings)}
    if arguments.name is not None and arguments.name not in scheduled:
        raise InvalidInput("no such job is scheduled", field="NAME", choices=tuple(scheduled))
    with database(settings) as engine:
        now = utc_now()
        jobs.ensure(engine, {name: job.first_due(now) for name, job in scheduled.items()})
        if arguments.name is not None:
            jobs.hasten(engine, arguments.name, now)
        states = [jobs.states(engine)[name] for name in scheduled]
    if arguments.json:
        print_json(states)
        return 0
    print(_COLUMNS.format("JOB", "DUE", "LAST SUCCEEDED", "LAST FAILED", "WHAT IT DOES"))
    for one in states:
        times = (_shown(at) for at in (one.due_at, one.succeeded_at, one.failed_at))
        print(_COLUMNS.format(one.name, *times, scheduled[one.name].text))
    return 0


def _shown(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M}Z" if at else "never"
